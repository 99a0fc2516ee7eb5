// The sections of the report above the trajectories.

function results(data, tint) {
  if (!data.runs.length) return;
  show("results"); show("method");
  byId("verdicts").append(...data.comparisons.map((c) => el("div", { class: "verdict" },
    el("div", { class: "delta" }, c.mean === null ? "–" : signed(c.mean), el("small", {}, "points")),
    el("div", {}, el("div", { class: "pair" }, `${c.before} → ${c.after}`), el("p", {}, c.sentence)))));
  const code = data.runs.some((run) => run.code && (run.rubrics_to_judge || run.code.mean !== run.mean));
  byId("headline").append(table("Scores and what they are based on",
    ["Run", "Harness", "Score", "95 % interval", "Solved", "95 % interval", "Planned", "Scored", "Truncated", "Unscored",
      ...(code ? ["Checks alone", "Rubrics to judge"] : [])],
    data.runs.map((run) => [
      el("span", { class: `name ${tint[run.name]}` }, el("i", { class: "swatch" }), run.name),
      run.harness,
      el("b", {}, points(run.mean)), spanOf(run.interval),
      run.success.rate === null ? "–" : `${points(run.success.rate)} %`, spanOf(run.success.interval),
      String(run.planned), String(run.scored), String(run.truncated),
      run.unscored ? el("b", { class: "warn" }, String(run.unscored)) : "0",
      ...(code ? [points(run.code.mean), String(run.rubrics_to_judge)] : []),
    ]), { align: ["left", "left"] }));
  const sampled = data.runs.filter((r) => Object.keys(r.pass_at_k || {}).length > 1);
  if (sampled.length) {
    const ks = [...new Set(sampled.flatMap((r) => Object.keys(r.pass_at_k)))].sort((a, b) => a - b);
    byId("headline").append(table("At least one of k attempts solves the task (unbiased)",
      ["Run", ...ks.map((k) => `pass@${k}`)],
      sampled.map((r) => [r.name, ...ks.map((k) => (r.pass_at_k[k] ? `${points(r.pass_at_k[k].value)} %` : "–"))]), { align: ["left"], class: "narrow" }));
  }
  const settings = data.runs.filter((r) => r.settings && Object.values(r.settings).some((v) => v !== null));
  if (settings.length) {
    byId("headline").append(el("details", {}, el("summary", {}, "Settings of the runs"),
      table("What the agent was run with", ["Run", "Settings"], settings.map((r) => [r.name,
        Object.entries(r.settings).filter((e) => e[1] !== null).map(([k, v]) => `${k} ${v}`).join(" · ")]), { align: ["left", "left"] })));
  }
  byId("intervals").append(
    intervalPlot(data.runs.map((run) => ({
      label: run.name, colour: tint[run.name],
      low: run.interval ? 100 * run.interval[0] : null, high: run.interval ? 100 * run.interval[1] : null,
      mid: run.mean === null ? null : 100 * run.mean,
      value: run.mean === null ? "no score" : points(run.mean),
      note: run.mean === null ? "nothing was scored"
        : `${points(run.mean)} points, 95 % interval ${spanOf(run.interval)}, ${withScore(run)} of ${plural(run.planned, "attempt")}`,
    })), { range: [0, 100], label: "mean score, points (dot) with 95 % interval (line)" }));
}

// Attempts that have a score: one whose rubric nobody has judged has none.
const withScore = (group) => group.scored + group.truncated - (group.rubrics_to_judge || 0);

function differences(data, tint) {
  if (!data.comparisons.length) return;
  show("differences");
  const rows = data.comparisons.map((c) => ({
    label: `${c.after} − ${c.before}`, colour: tint[c.after],
    low: c.interval ? 100 * c.interval.low : null, high: c.interval ? 100 * c.interval.high : null,
    mid: c.mean === null ? null : 100 * c.mean, value: c.mean === null ? "unknown" : signed(c.mean), note: c.sentence,
  }));
  const ends = rows.flatMap((r) => [r.low, r.high, r.mid]).filter((v) => v !== null);
  const pad = Math.max(2, 0.08 * (Math.max(0, ...ends) - Math.min(0, ...ends)));
  byId("paired").append(intervalPlot(rows, {
    range: [Math.min(0, ...ends) - pad, Math.max(0, ...ends) + pad], zero: true,
    label: "difference in mean score, points (dot) with 95 % interval (line)",
  }));
  byId("paired-table").append(table("Task by task",
    ["Comparison", "Difference", "95 % interval", "Tasks compared", "Better", "Same", "Worse", "Left out"],
    data.comparisons.map((c) => [`${c.after} − ${c.before}`, c.mean === null ? "–" : signed(c.mean),
      c.interval ? span(c.interval.low, c.interval.high) : "unknown",
      String(c.tasks), String(c.better), String(c.same), String(c.worse), String(c.left_out)]), { align: ["left"] }));
}

function breakdown(data) {
  if (!data.runs.length) return;
  show("breakdown");
  for (const [id, caption, key] of [["families", "Family", "families"], ["categories", "Category", "categories"]]) {
    const names = [...new Set(data.runs.flatMap((r) => Object.keys(r[key])))].sort();
    if (!names.length || (key === "categories" && names.length < 2)) continue;
    const tasks = (name) => Math.max(...data.runs.map((r) => (r[key][name] ? r[key][name].tasks : 0)));
    byId(id).append(table(`Mean score by ${caption.toLowerCase()}`, [caption, "Tasks", ...data.runs.map((r) => r.name)],
      names.map((name) => [name, String(tasks(name)), ...data.runs.map((run) => heat(run, name, run[key][name]))]),
      { class: `heat ${key}`, align: ["left"] }));
  }
}

function heat(run, name, group) {
  if (!group || group.mean === null) return el("td", { class: "empty", title: "nothing was scored" }, "–");
  const note = `${run.name}, ${name}: ${points(group.mean)} points, 95 % interval ${spanOf(group.interval)}, ` +
    `${withScore(group)} of ${plural(group.planned, "attempt")} scored`;
  const at = (x, y) => showTip(x, y, note);
  return el("td", {
    class: "hot", style: { "--heat": `${Math.round(60 * group.mean)}%` }, tabindex: 0, "aria-label": note,
    onpointermove: (e) => at(e.clientX, e.clientY), onpointerleave: hideTip, onblur: hideTip,
    onfocus: (e) => { const b = e.currentTarget.getBoundingClientRect(); at(b.left, b.top); },
  }, points(group.mean));
}

function causes(data) {
  const rows = data.runs.flatMap((run) => ["truncated", "unscored"].flatMap((status) =>
    Object.entries(run.by_cause[status]).map(([cause, n]) => [run.name, status, cause, String(n)])));
  const remade = data.runs.flatMap((run) => Object.entries(run.remade || {})
    .map(([cause, n]) => [run.name, "lost, then made again", cause, String(n)]));
  if (!rows.length && !remade.length) return;
  show("losses");
  byId("causes").append(table("Why", ["Run", "Outcome", "Cause", "Attempts"], [...rows, ...remade], { align: ["left", "left", "left"] }));
}

function training(data, tint) {
  if (!data.training.length) return;
  show("training");
  for (const set of data.training) {
    const colour = tint[set.run] && tint[set.run] !== "grey" ? tint[set.run] : "blue";
    const box = el("div", { class: "set" });
    const draw = (axis) => {
      const grid = (list) => el("div", { class: "grid-of-curves" }, list.map((c) => lineChart(c, axis, colour)));
      const open = box.querySelector("details[open]") !== null;
      box.replaceChildren(grid(set.main), set.other.length
        ? el("details", { open }, el("summary", {}, `${plural(set.other.length, "other metric")}`), grid(set.other)) : "");
    };
    const choice = set.x.length > 1 ? el("div", { class: "choice", role: "group", "aria-label": "Horizontal axis" },
      set.x.map((axis, i) => el("button", {
        type: "button", "aria-pressed": String(i === 0),
        onclick: (e) => {
          [...e.currentTarget.parentNode.children].forEach((b) => b.setAttribute("aria-pressed", String(b === e.currentTarget)));
          draw(axis);
        },
      }, `by ${axis.label}`))) : null;
    byId("curves").append(el("div", { class: "set-head" },
      el("h3", { class: colour }, el("i", { class: "swatch" }), set.run), choice,
      set.binned > 1 ? el("span", { class: "muted" }, `each point is the mean of ${set.binned} steps`) : null), box);
    if (set.x.length) draw(set.x[0]);
  }
}

function time(data) {
  if (!data.stages.length) return;
  show("time");
  const total = data.stages.reduce((sum, s) => sum + s.seconds, 0);
  const longest = Math.max(...data.stages.map((s) => s.seconds)) || 1;
  byId("stages").append(table(`${duration(total)} in all`, ["Stage", "Time", "Share", ""],
    data.stages.map((s) => [s.title, duration(s.seconds), total ? `${fixed((100 * s.seconds) / total, 1)} %` : "–",
      el("td", { class: "share" }, el("div", { style: { width: `${(100 * s.seconds) / longest}%` } }))]), { align: ["left"], class: "stages" }));
}
