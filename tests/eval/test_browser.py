"""The page in a real browser: what it shows, how it is used, what it never does."""

import json
import random
import shutil

import pytest

from clawgym_jax.contracts import trajectory as contract
from eval.report import build, runs
from tests.eval import invented

BROWSER = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER),
    reason="no chromium and chromedriver here: apt-get install chromium chromium-driver",
)
HOSTILE = (
    '</script><script>window.owned = 1</script><img src="http://127.0.0.1:9/x"'
    ' onerror="window.owned = 1"><style>body{display:none}</style>'
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
  from selenium import webdriver
  from selenium.webdriver.chrome.service import Service

  options = webdriver.ChromeOptions()
  options.binary_location = BROWSER
  profile = tmp_path_factory.mktemp("profile")
  for argument in (
      "headless", "no-sandbox", "disable-gpu", "disable-background-networking",
      "disable-component-update", "disable-sync", "no-first-run",
      "disable-dev-shm-usage", "window-size=1280,1000", f"user-data-dir={profile}",
  ):
    options.add_argument(f"--{argument}")
  options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
  driver = webdriver.Chrome(options=options, service=Service(DRIVER))
  driver.set_page_load_timeout(60)
  driver.set_script_timeout(30)
  yield driver
  driver.quit()


@pytest.fixture(scope="module")
def page(runs_folder, tmp_path_factory):
  """Four runs, one of them with a hostile trajectory, as a file."""
  folder = tmp_path_factory.mktemp("page")
  loaded = [runs.load_run(n, runs_folder / n) for n in invented.SKILL]
  suite = invented.make_suite(folder / "suite", 8)
  tokenizer = invented.byte_tokenizer()
  step = contract.Step(
      "s0", None,
      [{"role": HOSTILE, "content": HOSTILE}],
      {"role": "assistant", "content": HOSTILE, "tool_calls": [
          {"id": HOSTILE, "function": {"name": HOSTILE, "arguments": json.dumps({HOSTILE: HOSTILE})}}]},
      "stop",
      prompt_ids=[1], response_ids=(ids := tokenizer.encode(HOSTILE)),
      logprobs=[-1.0] * len(ids), untempered_logprobs=[-5.0] * len(ids),
      policy_versions=[0] * len(ids),
  )
  loaded[-1].trajectories.append(contract.Trajectory(
      HOSTILE, suite[0].id, "g", 1, 1, "claw", [step],
      contract.truncated(HOSTILE, 0.5, {HOSTILE: 0.5}), final_message=HOSTILE,
      metadata={"changes": {HOSTILE: "added"}}))
  path = folder / "report.html"
  path.write_text(build.page(
      loaded,
      title=f"Report {HOSTILE}",
      metrics={n: runs.load_metrics(runs_folder / f"{n}.jsonl") for n in ("sft", "rl")},
      stages=runs.load_timings(runs_folder / "timings.json"),
  ))
  return path


@pytest.fixture
def opened(browser, page):
  """Opens the page afresh at a hash; at the end nothing went wrong meanwhile."""

  from selenium.webdriver.support.ui import WebDriverWait

  def go(fragment=""):
    browser.get("about:blank")
    browser.get(page.as_uri() + fragment)
    # `get` has been seen to return before the page's script ended.
    WebDriverWait(browser, 30).until(lambda driver: _texts(driver, "#contents a"))
    return browser

  go()
  browser.get_log("browser")
  browser.get_log("performance")
  yield go
  assert browser.execute_script("return window.owned === undefined")
  assert browser.get_log("browser") == []
  requests = [
      message["params"]["request"]["url"]
      for message in (json.loads(e["message"])["message"] for e in browser.get_log("performance"))
      if message["method"] == "Network.requestWillBeSent"
  ]
  assert [u for u in requests if not u.startswith(("file:///", "data:", "about:"))] == []


def _texts(browser, selector):
  return browser.execute_script(
      "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector)


def _press(browser, selector, *keys):
  from selenium.webdriver.common.by import By

  element = browser.find_element(By.CSS_SELECTOR, selector)
  element.send_keys(*keys)


def _keys():
  from selenium.webdriver.common.keys import Keys

  return Keys


def test_what_waits_for_a_judge_is_shown_apart(browser, tmp_path):
  suite = invented.make_suite(tmp_path / "suite", 1)[:2]
  outcomes = (
      contract.awaiting_rubric(contract.scored(0.5)),
      contract.Outcome(
          "scored", contract.hybrid(1.0, 0.5), 1.0, 0.5, criteria={"tone": 0.5}
      ),
  )
  tokenizer, rng = invented.byte_tokenizer(), random.Random(1)
  made = [
      invented.make_trajectory(task, "claw", 0, outcome, rng, tokenizer)
      for task, outcome in zip(suite, outcomes)
  ]
  invented.write_run(tmp_path / "run", "run", suite, made)
  path = tmp_path / "report.html"
  path.write_text(build.page([runs.load_run("run", tmp_path / "run")], title="R"))
  browser.get(path.as_uri())
  heads = _texts(browser, "#headline table:first-child thead th")
  cells = _texts(browser, "#headline table:first-child tbody tr > *")
  assert dict(zip(heads[-2:], cells[-2:])) == {
      "Checks alone": "75.0", "Rubrics to judge": "1"
  }  # fmt: skip
  assert cells[2] == "85.0"
  badges = _texts(browser, "#trajectories [role=option] .badge")
  assert sorted(badges) == ["85", "checks 50"]
  browser.get(f"{path.as_uri()}#trajectory=run%2F{made[1].id}")
  browser.refresh()
  assert "checks 100.0 · rubric 50.0 · tone 50.0" in _texts(browser, "header p.muted")


def test_the_tables_hold_the_numbers(opened, runs_folder):
  browser = opened()
  cells = _texts(browser, "#headline table:first-child tbody tr > *")
  rows = [cells[i : i + 10] for i in range(0, len(cells), 10)]
  assert [row[0] for row in rows] == list(invented.SKILL)
  for row in rows:
    summary = json.loads((runs_folder / row[0] / "summary.json").read_text())
    assert row[2] == f"{100 * summary['mean']:.1f}"
    assert row[6:] == [
        str(summary[k]) for k in ("planned", "scored", "truncated", "unscored")]
  assert "sft gained" in _texts(browser, ".verdict p")[0]
  assert "measurabl" in _texts(browser, ".verdict p")[1]
  assert len(_texts(browser, "#families tbody tr")) == len(invented.FAMILIES)
  assert len(_texts(browser, "#curves figure")) >= 8
  assert "Supervised fine-tuning" in " ".join(_texts(browser, "#stages tbody th"))
  assert browser.execute_script(
      "return document.documentElement.scrollWidth <= window.innerWidth")


def test_charts_tell_their_values(opened):
  from selenium.webdriver.common.action_chains import ActionChains

  keys = _keys()
  browser = opened()
  _press(browser, "#curves figure svg", keys.ARROW_LEFT)
  assert _texts(browser, "#tip")[0].startswith("step 239")
  assert "training: 0." in _texts(browser, "#tip")[0]
  mark = browser.execute_script(
      "const m = document.querySelectorAll('#intervals .mark')[2];"
      "m.scrollIntoView({block: 'center'}); return m")
  ActionChains(browser).move_to_element(mark).perform()
  assert "95 % interval" in _texts(browser, "#tip")[0]
  assert browser.execute_script("return !document.getElementById('tip').hidden")


def test_a_trajectory_opens_and_keys_move(opened):
  keys = _keys()
  browser = opened()
  _press(browser, "#list", keys.ARROW_DOWN)
  first = browser.execute_script("return location.hash")
  assert first.startswith("#trajectory=")
  _press(browser, "#list", keys.ARROW_DOWN, keys.ARROW_DOWN)
  assert browser.execute_script("return location.hash") != first
  assert _texts(browser, "#list [aria-selected=true] .run") == ["sft"]
  assert _texts(browser, "#viewer .turn header b") == [
      "system", "user", "assistant", "tool", "assistant", "tool", "assistant"]
  command = _texts(browser, "#viewer .call .argument pre")[1]
  assert "\nEND{for(r in s)\n  print r, s[r]}" in command
  _press(browser, "#list", keys.ENTER)
  active = browser.switch_to.active_element
  assert active.get_attribute("id") == "viewer"
  active.send_keys(keys.ARROW_RIGHT)
  browser.switch_to.active_element.send_keys(keys.ARROW_RIGHT)
  assert browser.execute_script("return location.hash").endswith("&turn=2")
  browser.switch_to.active_element.send_keys(keys.ARROW_LEFT)
  assert _texts(browser, "#viewer .turn.at header b") == ["system"]
  browser.switch_to.active_element.send_keys(keys.ESCAPE)
  assert browser.switch_to.active_element.get_attribute("id") == "list"


def test_a_deep_link_opens_its_turn(opened):
  browser = opened("#trajectory=sft%2Fclaw-log_triage_002-1-0&turn=5")
  assert "log_triage_002" in _texts(browser, "#viewer h3")[0]
  assert _texts(browser, "#viewer .turn.at .ordinal") == ["5"]
  assert browser.execute_script(
      "const box = document.querySelector('#list').getBoundingClientRect();"
      "const row = document.querySelector('#list [aria-selected=true]').getBoundingClientRect();"
      "return row.top >= box.top - 1 && row.bottom <= box.bottom + 1")
  browser = opened("#trajectory=no%2Fsuch")
  assert "is not in this page" in _texts(browser, "#viewer")[0]


def test_filters_narrow_the_list(opened):
  browser = opened()
  count = lambda: int(_texts(browser, "#filter-count")[0].split()[0])
  everything = count()
  assert everything == len(_texts(browser, "#list .row")) == 4 * 80 + 1
  choose = lambda which, value: browser.execute_script(
      "const s = document.getElementById(arguments[0]); s.value = arguments[1];"
      "s.dispatchEvent(new Event('input', {bubbles: true}))", which, value)
  choose("filter-run", "sft")
  assert count() == 80
  choose("filter-status", "unscored")
  assert 0 < count() < 20
  assert set(_texts(browser, "#list .badge")) == {"unscored"}
  choose("filter-run", "base")
  assert count() == 0 and "No trajectory fits" in _texts(browser, "#list")[0]
  choose("filter-run", "")
  choose("filter-status", "")
  choose("filter-score", "1")
  assert set(t.split()[0] for t in _texts(browser, "#list .badge")) == {"100"}
  choose("filter-score", "")
  choose("filter-text", "inbox_reply_003")
  assert count() == 8


def test_tokens_are_shaded_by_their_log_probs(opened):
  browser = opened("#trajectory=rl%2Fclaw-csv_totals_001-0-0&turn=3")
  browser.execute_script("document.querySelector('.switch input').click()")
  assert "I read the file first.<|im_end|>" in _texts(browser, "#viewer pre.tokens")[0]
  title = browser.execute_script(
      "return document.querySelector('pre.tokens span').getAttribute('title')")
  assert "probability" in title and "policy version 3" in title and "as drawn" in title
  assert len(set(browser.execute_script(
      "return [...document.querySelectorAll('pre.tokens span')]"
      ".map((e) => getComputedStyle(e).backgroundColor)"))) >= 4
  assert _texts(browser, "#viewer .turn.at .ordinal") == ["3"]


def test_hostile_data_stays_text(opened):
  browser = opened()
  browser.execute_script(
      "[...document.querySelectorAll('#list .row')]"
      ".find((r) => r.textContent.includes('truncated') && r.id).scrollIntoView()")
  browser.execute_script(
      "const t = JSON.parse(document.getElementById('data').textContent).trajectories;"
      "location.hash = '#trajectory=' + encodeURIComponent("
      "'rl/' + t.find((x) => x.id.includes('owned')).id)")
  browser.execute_async_script("setTimeout(arguments[0], 200)")
  shown = _texts(browser, "#viewer")[0]
  assert shown.count(HOSTILE) >= 6
  browser.execute_script("document.querySelector('.switch input').click()")
  assert HOSTILE in _texts(browser, "pre.tokens")[0]
  assert browser.title == f"Report {HOSTILE}"
  assert browser.execute_script(
      "return document.querySelectorAll('main img, main script, main style, main iframe').length") == 0
  assert browser.execute_script("return getComputedStyle(document.body).display") == "block"


def test_an_injected_script_is_refused_by_the_page_itself(opened, browser):
  opened()
  browser.execute_script(
      "const s = document.createElement('script'); s.textContent = 'window.owned = 1';"
      "document.body.append(s)")
  assert browser.execute_script("return window.owned === undefined")
  assert any("Content Security Policy" in e["message"] for e in browser.get_log("browser"))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast_in_both_themes(opened, theme):
  """WCAG AA: 4.5 to 1 for every text colour on the ground it stands on."""
  browser = opened("#trajectory=rl%2Fclaw-csv_totals_001-0-0&turn=3")
  browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
  low = browser.execute_script("""
    const canvas = document.createElement("canvas"), c = canvas.getContext("2d", {willReadFrequently: true});
    canvas.width = canvas.height = 1;
    const flat = (colours) => { for (const k of colours) { c.fillStyle = k; c.fillRect(0, 0, 1, 1); }
      return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3); };
    const light = (rgb) => { const [r, g, b] = rgb.map((v) => { v /= 255;
      return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const grounds = (e) => { const list = [];
      for (; e; e = e.parentElement) list.unshift(getComputedStyle(e).backgroundColor);
      return ["white", ...list]; };
    const result = {};
    const walker = document.createTreeWalker(document.querySelector("body"), NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const e = walker.currentNode.parentElement;
      if (!walker.currentNode.textContent.trim() || e.closest("script, noscript, [hidden], #tip, option, .skip")) continue;
      const under = grounds(e), style = getComputedStyle(e);
      const ink = e.namespaceURI.includes("svg") ? style.fill : style.color;
      const a = light(flat(under)), b = light(flat([...under, ink]));
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (ratio < 4.5) result[`${e.tagName} ${e.getAttribute("class")} ${e.textContent.slice(0, 20)}`] = ratio;
    }
    return result;""")
  assert low == {}


def test_a_page_of_one_run_is_the_viewer_alone(browser, tmp_path, tokenizer):
  suite = invented.make_suite(tmp_path / "suite", 1)
  lost = [
      invented.make_trajectory(t, "claw", 0, contract.unscored("lost"), random.Random(0), tokenizer)
      for t in suite
  ]
  folder = invented.write_run(tmp_path / "run", "run", suite, lost)
  (folder / "summary.json").unlink()
  path = tmp_path / "view.html"
  path.write_text(build.page([runs.load_run("run", folder, suite=False)], title="View"))
  browser.get(path.as_uri())
  assert _texts(browser, "#contents a") == ["Trajectories"]
  assert len(_texts(browser, "#list .row")) == 5
