// Charts as SVG, drawn in user units that equal CSS pixels at full width.

const SERIES = ["violet", "blue", "orange", "teal", "pink", "olive"];

// Colours follow the runs' order; harnesses without a model are grey.
function colours(runs) {
  let next = 0;
  const result = {};
  for (const run of runs) result[run.name] = run.baseline ? "grey" : SERIES[next++ % SERIES.length];
  return result;
}

function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const result = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) result.push(i * step);
  return result;
}

const text = (x, y, anchor, kind, content) =>
  svg("text", { x, y, "text-anchor": anchor, class: kind }, content);

// Rows of {label, colour, low, mid, high, value, note} on one horizontal axis.
function intervalPlot(rows, axis) {
  const width = 960, left = 170, right = 150, rowHeight = 40, top = 8;
  const bottom = top + rows.length * rowHeight;
  const [low, high] = axis.range;
  const x = (v) => left + ((v - low) / (high - low)) * (width - left - right);
  const root = svg("svg", {
    viewBox: `0 0 ${width} ${bottom + 48}`, role: "img", class: "chart",
    "aria-label": `${axis.label}: ` + rows.map((r) => `${r.label} ${r.value}`).join("; "),
  });
  const marks = ticks(low, high, 8);
  const decimals = marks.every((v) => Math.abs(v - Math.round(v)) < 1e-9) ? 0 : 1;
  for (const v of marks) {
    root.append(
      svg("line", { x1: x(v), x2: x(v), y1: top, y2: bottom, class: axis.zero && Math.abs(v) < 1e-9 ? "zero" : "grid" }),
      text(x(v), bottom + 18, "middle", "tick", fixed(v, decimals)));
  }
  root.append(text((left + width - right) / 2, bottom + 40, "middle", "axis", axis.label));
  rows.forEach((row, i) => {
    const y = top + (i + 0.5) * rowHeight;
    const group = svg("g", {
      class: `mark ${row.colour}`, tabindex: 0, role: "img", "aria-label": `${row.label}: ${row.note}`,
      onpointermove: (e) => showTip(e.clientX, e.clientY, el("b", {}, row.label), " ", row.note),
      onpointerleave: hideTip, onblur: hideTip,
      onfocus: (e) => { const b = e.currentTarget.getBoundingClientRect(); showTip(b.left + b.width / 2, b.top + 8, el("b", {}, row.label), " ", row.note); },
    }, svg("rect", { x: 0, y: y - rowHeight / 2, width, height: rowHeight, class: "hit" }));
    group.append(text(left - 16, y + 5, "end", "label", row.label));
    if (row.low !== null) {
      group.append(svg("line", { x1: x(row.low), x2: x(row.high), y1: y, y2: y, class: "bar" }));
      for (const end of [row.low, row.high]) {
        group.append(svg("line", { x1: x(end), x2: x(end), y1: y - 6, y2: y + 6, class: "cap" }));
      }
    }
    if (row.mid !== null) group.append(svg("circle", { cx: x(row.mid), cy: y, r: 5.5, class: "dot" }));
    group.append(text(width - right + 16, y + 5, "start", "value", row.value));
    root.append(group);
  });
  return root;
}

// One chart of series over x, with a crosshair that pointer and keys move.
function lineChart(chart, xAxis, colour) {
  const width = 460, height = 230, left = 58, right = 14, top = 14, bottom = 44;
  const xs = xAxis.values;
  const known = chart.series.flatMap((s) => s.values).filter((v) => v !== null);
  let low = Math.min(...known), high = Math.max(...known);
  if (low >= 0 && low < 0.75 * high) low = 0;
  if (low === high) { low -= Math.abs(low) * 0.1 || 0.5; high += Math.abs(high) * 0.1 || 0.5; }
  const marks = ticks(low, high, 4);
  const gap = marks.length > 1 ? marks[1] - marks[0] : high - low;
  low = Math.min(low, Math.floor(low / gap + 1e-9) * gap);
  high = Math.max(high, Math.ceil(high / gap - 1e-9) * gap);
  const first = xs[0], last = xs[xs.length - 1];
  const x = (v) => left + ((v - first) / (last - first || 1)) * (width - left - right);
  const y = (v) => height - bottom - ((v - low) / (high - low)) * (height - top - bottom);
  const summary = chart.series.map((s) => {
    const values = s.values.filter((v) => v !== null);
    return `${s.label} from ${compact(values[0])} to ${compact(values[values.length - 1])}, lowest ${compact(Math.min(...values))}, highest ${compact(Math.max(...values))}`;
  }).join("; ");
  const root = svg("svg", {
    viewBox: `0 0 ${width} ${height}`, class: "chart line", tabindex: 0, role: "img",
    "aria-label": `${chart.title}${chart.unit ? `, ${chart.unit}` : ""}, by ${xAxis.label}: ${summary}. Left and right arrows read single points.`,
  });
  for (const v of ticks(low, high, 4)) {
    root.append(svg("line", { x1: left, x2: width - right, y1: y(v), y2: y(v), class: "grid" }),
      text(left - 8, y(v) + 4, "end", "tick", compact(v)));
  }
  for (const v of ticks(first, last, 5).filter(Number.isInteger)) {
    root.append(svg("line", { x1: x(v), x2: x(v), y1: height - bottom, y2: height - bottom + 4, class: "grid" }),
      text(x(v), height - bottom + 18, "middle", "tick", compact(v)));
  }
  root.append(svg("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "base" }),
    text((left + width - right) / 2, height - 8, "middle", "axis", xAxis.label));
  const tints = chart.series.map((_, i) => (i ? SERIES[(SERIES.indexOf(colour) + i + 1) % SERIES.length] : colour));
  chart.series.forEach((series, i) => {
    const smooth = running(series.values);
    root.append(path(xs, series.values, x, y, `${tints[i]} ${smooth ? "raw" : ""}`));
    if (smooth) root.append(path(xs, smooth, x, y, tints[i]));
  });
  const cross = svg("line", { y1: top, y2: height - bottom, class: "cross", visibility: "hidden" });
  const dots = chart.series.map((_, i) => svg("circle", { r: 3.5, class: `dot ${tints[i]}`, visibility: "hidden" }));
  root.append(cross, ...dots);
  let at = xs.length - 1;
  const point = (i, clientX, clientY) => {
    at = i;
    cross.setAttribute("x1", x(xs[i])); cross.setAttribute("x2", x(xs[i]));
    cross.setAttribute("visibility", "visible");
    chart.series.forEach((s, k) => {
      const v = s.values[i];
      dots[k].setAttribute("visibility", v === null ? "hidden" : "visible");
      if (v !== null) { dots[k].setAttribute("cx", x(xs[i])); dots[k].setAttribute("cy", y(v)); }
    });
    showTip(clientX, clientY, el("b", {}, `${xAxis.label} ${xs[i].toLocaleString("en")}`),
      ...chart.series.map((s) => el("div", {}, `${s.label}: ${compact(s.values[i])}`)));
  };
  const leave = () => {
    hideTip();
    [cross, ...dots].forEach((n) => n.setAttribute("visibility", "hidden"));
  };
  const nearest = (wanted) => xs.reduce((best, v, i) => (Math.abs(x(v) - wanted) < Math.abs(x(xs[best]) - wanted) ? i : best), 0);
  const place = (i) => {
    const box = root.getBoundingClientRect();
    point(i, box.left + (x(xs[i]) / width) * box.width, box.top + box.height / 2);
  };
  root.addEventListener("pointermove", (e) => {
    const box = root.getBoundingClientRect();
    point(nearest(((e.clientX - box.left) / box.width) * width), e.clientX, e.clientY);
  });
  root.addEventListener("pointerleave", leave);
  root.addEventListener("blur", leave);
  root.addEventListener("keydown", (e) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (!move) return;
    e.preventDefault();
    place(Math.max(0, Math.min(xs.length - 1, at + move)));
  });
  return el("figure", { class: "curve" },
    el("figcaption", {}, el("b", {}, chart.title), chart.unit ? el("span", { class: "muted" }, ` ${chart.unit}`) : null,
      chart.series.length > 1 ? el("span", { class: "legend" }, chart.series.map((s, i) =>
        el("span", { class: tints[i] }, el("i", { class: "swatch" }), s.label))) : null),
    root);
}

// Centred running mean of a noisy series; null for few points or a smooth one.
function running(values) {
  const numbers = values.filter((v) => v !== null), known = numbers.length;
  if (known < 40) return null;
  const bend = numbers.slice(2).reduce((sum, v, i) => sum + Math.abs(v - 2 * numbers[i + 1] + numbers[i]), 0) / (known - 2);
  if (bend < 0.01 * (Math.max(...numbers) - Math.min(...numbers))) return null;
  const half = Math.max(2, Math.round(known / 40));
  return values.map((_, i) => {
    const near = values.slice(Math.max(0, i - half), i + half + 1).filter((v) => v !== null);
    return near.length ? near.reduce((a, b) => a + b, 0) / near.length : null;
  });
}

function path(xs, values, x, y, kind) {
  let d = "", pen = false;
  const lone = values.filter((v) => v !== null).length < 2;
  values.forEach((v, i) => {
    if (v === null) return;
    d += `${pen ? "L" : "M"}${x(xs[i]).toFixed(1)} ${y(v).toFixed(1)}`;
    pen = true;
  });
  return svg("path", { d: lone ? d + "h0.01" : d, class: `series ${kind}` });
}
