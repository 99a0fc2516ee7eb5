// The list of trajectories and the transcript of the chosen one. A body is
// parsed when it is opened and one transcript is in the document at a time.

const LONG = 40; // lines of a text before it is folded

class Viewer {
  constructor(data, tint) {
    this.all = data.trajectories.map((t, index) => ({ ...t, index, key: `${t.run}/${t.id}` }));
    this.byKey = new Map(this.all.map((t) => [t.key, t]));
    this.siblings = new Map();
    for (const t of this.all) {
      if (!this.siblings.has(t.task)) this.siblings.set(t.task, []);
      this.siblings.get(t.task).push(t);
    }
    this.shared = data.shared;
    this.tint = tint;
    this.shown = this.all;
    this.current = null;
    this.turn = 0;
    this.withTokens = false;
    this.list = byId("list");
    this.pane = byId("viewer");
    this.fillFilters(data);
    this.list.addEventListener("keydown", (e) => this.listKey(e));
    this.list.addEventListener("click", (e) => {
      const row = e.target.closest("[role=option]");
      if (row) this.open(this.all[Number(row.dataset.index)]);
    });
    this.pane.addEventListener("keydown", (e) => this.paneKey(e));
    byId("trajectories").addEventListener("keydown", (e) => {
      if (e.key === "/" && !e.target.closest("input, select")) {
        e.preventDefault();
        byId("filter-text").focus();
      }
    });
    this.filter();
  }

  fillFilters(data) {
    const fill = (id, any, values) => byId(id).append(el("option", { value: "" }, any),
      ...values.map((v) => (Array.isArray(v) ? el("option", { value: v[0] }, v[1]) : el("option", { value: v }, v))));
    fill("filter-run", "all runs", data.names);
    fill("filter-family", "all families", [...new Set(this.all.map((t) => t.family))].filter(Boolean).sort());
    fill("filter-status", "all outcomes", ["scored", "truncated", "unscored"]);
    fill("filter-score", "any score", [["1", "100"], ["part", "between"], ["0", "0"]]);
    byId("filters").addEventListener("submit", (e) => e.preventDefault());
    byId("filters").addEventListener("input", () => this.filter());
    byId("filter-text").addEventListener("keydown", (e) => {
      if (e.key === "ArrowDown" || e.key === "Enter") { e.preventDefault(); this.list.focus(); }
    });
  }

  filter() {
    const words = byId("filter-text").value.toLowerCase().split(/\s+/).filter(Boolean);
    const [run, family, status, score] = ["run", "family", "status", "score"].map((n) => byId(`filter-${n}`).value);
    const band = (s) => (s === null ? "" : s >= 1 - 1e-9 ? "1" : s <= 1e-9 ? "0" : "part");
    this.shown = this.all.filter((t) => (!run || t.run === run) && (!family || t.family === family) &&
      (!status || t.status === status) && (!score || band(t.score) === score) &&
      words.every((w) => `${t.task} ${t.id} ${t.family} ${t.instruction} ${t.cause || ""}`.toLowerCase().includes(w)));
    byId("filter-count").textContent = `${this.shown.length} of ${this.all.length}`;
    this.list.replaceChildren(...this.shown.map((t) => this.row(t)));
    if (!this.shown.length) this.list.append(el("p", { class: "muted none" }, "No trajectory fits these filters."));
    this.mark();
  }

  row(t) {
    return el("div", { role: "option", id: `row-${t.index}`, "data-index": t.index, class: "row", "aria-selected": "false" },
      el("span", { class: `run ${this.tint[t.run] || "grey"}` }, el("i", { class: "swatch" }), t.run),
      badge(t),
      el("span", { class: "task" }, t.task + (t.sample ? ` · sample ${t.sample}` : "")),
      el("span", { class: "about muted" }, t.instruction || t.family));
  }

  mark() {
    for (const row of this.list.querySelectorAll("[aria-selected=true]")) row.setAttribute("aria-selected", "false");
    const row = this.current && byId(`row-${this.current.index}`);
    if (row) {
      row.setAttribute("aria-selected", "true");
      this.list.setAttribute("aria-activedescendant", row.id);
      const top = row.offsetTop, end = top + row.offsetHeight;
      if (top < this.list.scrollTop) this.list.scrollTop = top;
      else if (end > this.list.scrollTop + this.list.clientHeight) this.list.scrollTop = end - this.list.clientHeight;
    } else this.list.removeAttribute("aria-activedescendant");
  }

  listKey(e) {
    const last = this.shown.length - 1;
    if (last < 0) return;
    const at = this.shown.indexOf(this.current);
    const to = { ArrowDown: at + 1, ArrowUp: at < 0 ? last : at - 1, Home: 0, End: last, PageDown: at + 10, PageUp: at - 10 }[e.key];
    if (to !== undefined) {
      e.preventDefault();
      this.open(this.shown[Math.max(0, Math.min(last, to))]);
    } else if (e.key === "Enter" && this.current) {
      e.preventDefault();
      this.pane.focus();
    } else this.turnKey(e);
  }

  paneKey(e) {
    if (e.key === "Escape") this.list.focus();
    else this.turnKey(e);
  }

  turnKey(e) {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (!move || !this.current || e.altKey || e.ctrlKey || e.metaKey || e.target.closest("input, select")) return;
    e.preventDefault();
    this.goTo(Math.max(1, Math.min(this.turns.length, this.turn + move)));
  }

  // Opens a trajectory; turn counts from 1, 0 is none.
  open(t, turn = 0) {
    this.current = t;
    this.turn = 0;
    this.mark();
    const body = embedded(`trajectory-${t.index}`);
    this.body = body;
    this.pane.replaceChildren(this.head(t, body), ...this.transcript(body));
    this.pane.setAttribute("aria-label", `Trajectory ${t.key}`);
    this.pane.scrollTop = 0;
    if (turn) this.goTo(Math.min(turn, this.turns.length));
    else this.address();
  }

  goTo(turn) {
    const old = this.turns[this.turn - 1];
    if (old) old.classList.remove("at");
    this.turn = turn;
    const now = this.turns[turn - 1];
    if (!now) return;
    now.classList.add("at");
    this.pane.scrollTop = now.offsetTop - 12;
    if (this.pane.contains(document.activeElement)) now.focus({ preventScroll: true });
    this.address();
  }

  address() {
    const hash = `#trajectory=${encodeURIComponent(this.current.key)}${this.turn ? `&turn=${this.turn}` : ""}`;
    history.replaceState(null, "", hash);
  }

  head(t, body) {
    const others = this.siblings.get(t.task).filter((o) => o !== t).slice(0, 24);
    const checks = Object.entries(body.checks || {});
    const changes = Object.entries(body.changes || {});
    const any = body.tokens && Object.keys(body.tokens).length;
    return el("header", {},
      el("h3", {}, el("span", { class: this.tint[t.run] || "grey" }, el("i", { class: "swatch" }), t.run), ` ${t.task}`, badge(t)),
      el("p", { class: "muted facts" }, [t.family, t.category, t.harness, `sample ${t.sample}`, t.attempt ? `after ${plural(t.attempt, "lost attempt")}` : null,
        plural(t.calls, "model call"), t.tokens ? plural(t.tokens, "sampled token") : null, t.id].filter(Boolean).join(" · ")),
      t.cause ? el("p", { class: "cause" }, `${t.status}: ${t.cause}`) : null,
      t.rubric !== null ? el("p", { class: "muted" }, [`checks ${points(t.code)}`, `rubric ${points(t.rubric)}`,
        ...Object.entries(body.criteria || {}).map(([name, value]) => `${name} ${points(value)}`)].join(" · ")) : null,
      checks.length ? el("details", { open: checks.length <= 8 }, el("summary", {},
        `Checks: ${checks.filter((c) => c[1] >= 1).length} of ${checks.length} passed`),
      el("ul", { class: "checks" }, checks.map(([name, value]) => el("li", { class: value >= 1 ? "pass" : value > 0 ? "part" : "fail" },
        el("span", { class: "mark-of", "aria-hidden": "true" }, value >= 1 ? "✓" : value > 0 ? "~" : "✗"),
        el("code", {}, name), el("span", { class: "muted" }, value >= 1 ? "passed" : value > 0 ? points(value) : "failed"))))) : null,
      changes.length ? el("details", { open: changes.length <= 6 }, el("summary", {}, `Workspace: ${plural(changes.length, "path")} changed`),
        el("ul", { class: "checks" }, changes.map(([path, kind]) => el("li", {}, el("code", {}, path), el("span", { class: "muted" }, kind))))) : null,
      others.length ? el("p", { class: "siblings" }, "Same task: ", others.map((o) => el("button", {
        type: "button", onclick: () => this.open(o),
      }, el("span", { class: this.tint[o.run] || "grey" }, el("i", { class: "swatch" }), o.run), badge(o)))) : null,
      any ? el("label", { class: "switch" }, el("input", {
        type: "checkbox", checked: this.withTokens,
        onchange: (e) => { this.withTokens = e.currentTarget.checked; const at = this.turn; this.open(t); if (at) this.goTo(at); },
      }), " Show sampled tokens, shaded by surprise",
      this.withTokens ? el("span", { class: "scale", "aria-label": "shades from likely to unlikely" },
        ["≥ 90 %", "≥ 60 %", "≥ 37 %", "≥ 14 %", "≥ 2 %", "< 2 %"].map((label, i) => el("span", { class: `s${i}` }, label))) : null) : null);
  }

  transcript(body) {
    this.turns = body.turns.map((turn, i) => this.turnElement(turn, i, body));
    const parts = body.turns.flatMap((turn, i) => [
      turn.note ? el("p", { class: "fork" }, turn.note) : null, this.turns[i]]).filter(Boolean);
    const last = body.turns[body.turns.length - 1];
    if (body.final && !(last && last.role === "assistant" && last.text.trim() === body.final.trim())) {
      parts.push(el("section", { class: "turn final" }, el("header", {}, el("b", {}, "final message")), fold(body.final)));
    }
    if (!body.turns.length) parts.unshift(el("p", { class: "muted none" }, "This attempt made no model call."));
    return parts;
  }

  turnElement(turn, i, body) {
    const facts = [
      turn.finish && turn.finish !== "stop" && turn.finish !== "tool_calls" ? `ended by ${turn.finish}` : null,
      turn.prompt_tokens !== undefined ? `${plural(turn.prompt_tokens, "new prompt token")}` : null,
      turn.response_tokens !== undefined ? `${plural(turn.response_tokens, "sampled token")}` : null,
      turn.seconds ? `${fixed(turn.seconds, 2)} s` : null, turn.answers ? `answers ${turn.answers}` : null, turn.name || null,
    ].filter(Boolean).join(" · ");
    const tokens = this.withTokens && turn.step && body.tokens && body.tokens[turn.step];
    const content = turn.shared !== undefined ? this.shared[turn.shared] : turn.text;
    const parts = [];
    if (turn.reasoning) parts.push(el("details", {}, el("summary", {}, "Reasoning"), fold(turn.reasoning)));
    if (tokens) parts.push(tokenStream(tokens));
    else if (turn.role === "system" && content) {
      parts.push(el("details", {}, el("summary", {}, `System message, ${plural(content.length, "character")}`), fold(content)));
    } else if (content) parts.push(fold(content));
    parts.push(...(turn.calls || []).map(callElement));
    if (turn.tools !== undefined) parts.push(toolList(JSON.parse(this.shared[turn.tools])));
    if (!parts.length) parts.push(el("p", { class: "muted" }, "(empty)"));
    return el("section", { class: `turn ${["system", "user", "assistant", "tool"].includes(turn.role) ? turn.role : "other"}`, tabindex: -1, "aria-label": `Turn ${i + 1}, ${turn.role}`,
      onclick: (e) => { if (!e.target.closest("button, summary, a, input")) this.select(i + 1); } },
    el("header", {}, el("span", { class: "ordinal" }, String(i + 1)), el("b", {}, turn.role), el("span", { class: "muted" }, facts)), parts);
  }

  // Marks a turn without moving the page, as a click does.
  select(turn) {
    if (this.turns[this.turn - 1]) this.turns[this.turn - 1].classList.remove("at");
    this.turn = turn;
    this.turns[turn - 1].classList.add("at");
    this.address();
  }
}

function badge(t) {
  if (t.status === "unscored") return el("span", { class: "badge lost" }, "unscored");
  const value = t.score === null ? t.code : t.score;
  const kind = value >= 1 - 1e-9 ? "full" : value > 0 ? "part" : "zero";
  return el("span", { class: `badge ${kind}` }, t.score === null ? "checks " : "", fixed(100 * value, 0), t.status === "truncated" ? " truncated" : "");
}

function fold(content) {
  const pre = el("pre", {}, content);
  const lines = content.split("\n").length;
  if (lines <= LONG && content.length < 6000) return pre;
  pre.classList.add("folded");
  const button = el("button", { type: "button", class: "more", "aria-expanded": "false", onclick: () => {
    const open = pre.classList.toggle("folded") === false;
    button.setAttribute("aria-expanded", String(open));
    button.textContent = open ? "Show less" : `Show all ${plural(lines, "line")}`;
  } }, `Show all ${plural(lines, "line")}`);
  return el("div", {}, pre, button);
}

function callElement(call) {
  const body = call.arguments === undefined
    ? [el("p", { class: "cause" }, "The arguments are not a JSON object:"), fold(call.raw)]
    : Object.entries(call.arguments).map(([name, value]) => el("div", { class: "argument" }, el("span", { class: "key" }, name), fold(value)));
  return el("div", { class: "call" }, el("div", { class: "call-head" }, el("span", { class: "verb" }, "calls"), el("code", {}, call.name), call.id ? el("span", { class: "muted" }, call.id) : null), body);
}

function toolList(tools) {
  const names = tools.map((t) => (t.function || t).name || "?");
  return el("details", { class: "tools" }, el("summary", {}, `Tools offered: ${names.join(", ")}`), fold(JSON.stringify(tools, null, 1)));
}

function tokenStream(tokens) {
  const known = tokens.texts.length > 0;
  return el("pre", { class: "tokens" }, tokens.ids.map((id, i) => {
    const p = Math.exp(tokens.logprobs[i]);
    const level = p >= 0.9 ? 0 : p >= 0.6 ? 1 : p >= 0.37 ? 2 : p >= 0.14 ? 3 : p >= 0.02 ? 4 : 5;
    const version = tokens.versions.length === 1 ? tokens.versions[0] : tokens.versions[i];
    const note = `token ${id} · probability ${(100 * p).toPrecision(3)} % · log-prob ${fixed(tokens.logprobs[i], 3)}` +
      `${tokens.drawn ? ` · as drawn ${fixed(tokens.drawn[i], 3)}` : ""} · policy version ${version}`;
    return el("span", { class: `s${level}`, title: note }, known ? tokens.texts[i] : `${id} `);
  }));
}
