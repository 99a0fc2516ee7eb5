// Building the document. Data reaches it through text nodes and attributes
// only, never as markup, so nothing in a trajectory can become an element.

const SVG = "http://www.w3.org/2000/svg";

function make(namespace, tag, attributes, children) {
  const element = namespace ? document.createElementNS(namespace, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.entries(value).forEach(([k, v]) => element.style.setProperty(k, v));
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}
const el = (tag, attributes, ...children) => make(null, tag, attributes, children);
const svg = (tag, attributes, ...children) => make(SVG, tag, attributes, children);
const byId = (id) => document.getElementById(id);
const embedded = (id) => JSON.parse(byId(id).textContent);

function show(id) {
  byId(id).hidden = false;
}

// Numbers as a person reads them: true minus signs, no "-0.0".
function fixed(value, digits) {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? (0).toFixed(digits) : text.replace("-", "\u2212");
}
const points = (score) => (score === null || score === undefined ? "–" : fixed(100 * score, 1));
const span = (low, high) => `${fixed(100 * low, 1)} to ${fixed(100 * high, 1)}`;
const spanOf = (interval) => (interval ? span(interval[0], interval[1]) : "unknown");
const signed = (score) => (score >= 0.0005 ? "+" : "") + points(score);
const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

function compact(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e9) return `${trim(value / 1e9)}G`;
  if (size >= 1e6) return `${trim(value / 1e6)}M`;
  if (size >= 1e4) return `${trim(value / 1e3)}k`;
  if (size < 1e-3) return value.toExponential(1).replace("e-", "e\u2212").replace("-", "\u2212");
  return trim(value);
}
function trim(value) {
  return String(Number(value.toPrecision(3))).replace("-", "\u2212");
}

function duration(seconds) {
  if (seconds < 60) return `${fixed(seconds, 1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function table(caption, header, rows, options = {}) {
  const align = options.align || [];
  const cell = (tag, content, i, extra) =>
    el(tag, { class: align[i] === "left" ? null : "number", ...extra }, content);
  return el("table", { class: options.class },
    el("caption", {}, caption),
    el("thead", {}, el("tr", {}, header.map((h, i) => cell("th", h, i, { scope: "col" })))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value, i) =>
      value instanceof HTMLTableCellElement ? value
        : cell(i ? "td" : "th", value, i, i ? {} : { scope: "row" }))))));
}

// One tooltip for the page; what it says is also read out to screen readers.
const tip = el("div", { id: "tip", role: "status", hidden: true });
function showTip(x, y, ...content) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(x + 14, window.innerWidth - box.width - 8);
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, y - box.height - 12)}px`;
}
function hideTip() {
  tip.hidden = true;
}
