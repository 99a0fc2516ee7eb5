// Starts the page: sections in order, the theme, the address.

const data = embedded("data");
document.body.append(tip);
const tint = colours(data.runs.length ? data.runs : data.names.map((name) => ({ name })));

byId("subtitle").textContent = [
  data.suite ? `${plural(data.suite.tasks, "task")}, suite ${data.suite.hash.slice(0, 12)}` : null,
  data.names.length > 1 ? plural(data.names.length, "run") : null, `written ${data.created}`,
].filter(Boolean).join(" · ");
results(data, tint);
differences(data, tint);
breakdown(data);
causes(data);
training(data, tint);
time(data);

if (data.trajectories.length) {
  show("trajectories");
  byId("notes").append(...data.notes.map((note) => el("p", { class: "notice" }, note)));
  const viewer = new Viewer(data, tint);
  const follow = () => {
    const wanted = new URLSearchParams(location.hash.slice(1));
    if (!wanted.has("trajectory")) return false;
    const found = viewer.byKey.get(wanted.get("trajectory"));
    if (found) viewer.open(found, Number(wanted.get("turn")) || 0);
    else viewer.pane.replaceChildren(el("p", { class: "notice" }, `Trajectory ${wanted.get("trajectory")} is not in this page.`));
    byId("trajectories").scrollIntoView();
    return true;
  };
  window.addEventListener("hashchange", follow);
  if (!follow()) viewer.pane.append(el("p", { class: "muted none" }, "Choose a trajectory to read it turn by turn."));
}

byId("contents").append(...[...document.querySelectorAll("main > section")].filter((s) => !s.hidden)
  .map((s) => el("a", { href: `#${s.id}` }, s.dataset.nav)));

const themes = ["automatic", "light", "dark"];
let theme = 0;
byId("theme").addEventListener("click", () => {
  theme = (theme + 1) % themes.length;
  if (theme) document.documentElement.dataset.theme = themes[theme];
  else delete document.documentElement.dataset.theme;
  byId("theme").textContent = `Theme: ${themes[theme]}`;
});
