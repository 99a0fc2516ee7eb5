"""The page's data: what it says, what it embeds and what it refuses."""

import json
import math
import random
import re

import pytest

from clawgym_jax.contracts import trajectory as contract
from clawgym_jax.contracts.errors import UserError
from eval import stats
from eval.report import build, curves, runs, transcript
from eval.report.words import conclude
from tests.eval import invented

HOSTILE = '</script><script>document.title = "owned"</script><img src=x onerror=owned()>'


def _data(page):
  block = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
  return json.loads(block.group(1))


def _load(folder, *names):
  return [runs.load_run(n, folder / n) for n in names]


@pytest.fixture(scope="module")
def page(runs_folder):
  return build.page(
      _load(runs_folder, "null", "base", "sft", "rl"),
      title="A <b>title</b>",
      metrics={n: runs.load_metrics(runs_folder / f"{n}.jsonl") for n in ("sft", "rl")},
      stages=runs.load_timings(runs_folder / "timings.json"),
  )


def test_the_headline_holds_the_summaries(page, runs_folder):
  data = _data(page)
  for run in data["runs"]:
    summary = json.loads((runs_folder / run["name"] / "summary.json").read_text())
    for key in ("planned", "scored", "truncated", "unscored", "mean", "interval", "success"):
      assert run[key] == summary[key]
    assert run["planned"] == run["scored"] + run["truncated"] + run["unscored"]
  assert [r["baseline"] for r in data["runs"]] == [True, False, False, False]
  assert [(c["before"], c["after"]) for c in data["comparisons"]] == [
      ("base", "sft"), ("sft", "rl"), ("base", "rl")]


def test_every_trajectory_is_embedded_beside_its_entry(page):
  data = _data(page)
  bodies = re.findall(r'id="trajectory-(\d+)">(.*?)</script>', page, re.S)
  assert len(bodies) == len(data["trajectories"]) == 4 * 40 * 2
  entry, body = data["trajectories"][7], json.loads(bodies[7][1])
  assert len(body["turns"]) == entry["turns"]


def test_nothing_in_the_page_names_another_address(page):
  outside = re.sub(r'<script type="application/json".*?</script>', "", page, flags=re.S)
  assert set(re.findall(r"https?://[^\s\"']+", outside)) == {"http://www.w3.org/2000/svg"}
  assert "A &lt;b&gt;title&lt;/b&gt;" in page
  assert "default-src 'none'" in page


def test_hostile_text_stays_inside_its_script_element():
  text = build.embed({HOSTILE: [HOSTILE, "\u2028 & \ud800"]})
  assert not set("<>&\u2028") & set(text)
  assert json.loads(text) == {HOSTILE: [HOSTILE, "\u2028 & \ud800"]}


def test_runs_of_different_suites_are_refused(runs_folder, tmp_path):
  other = invented.write_run(tmp_path / "other", "other", invented.make_suite(tmp_path / "suite", 1), [])
  with pytest.raises(UserError, match="different suites"):
    runs.require_one_suite([
        runs.load_run("sft", runs_folder / "sft"),
        runs.Run("other", json.loads((other / "summary.json").read_text()), [], None),
    ])


@pytest.mark.parametrize("entries,message", [
    (["sft"], "not name=path"),
    (["=out"], "not name=path"),
    (["a=x", "a=y"], "given twice"),
])
def test_flags_that_make_no_sense(entries, message):
  with pytest.raises(UserError, match=message):
    runs.named_paths("runs", entries)


def test_an_unfinished_run_is_refused(tmp_path):
  with pytest.raises(UserError, match="trajectories.jsonl does not exist"):
    runs.load_run("sft", tmp_path)


def _difference(mean, low, high, tasks=60, same=0, left_out=0):
  return stats.Difference(
      mean, stats.Interval(low, high), tasks, tasks - same, 0, same, left_out)


@pytest.mark.parametrize("difference,sentence", [
    (_difference(0.003, -0.04, 0.05),
     "rl gained nothing measurable over sft: difference 0.3 points, 95 % interval −4.0 to 5.0."),
    (_difference(0.234, 0.15, 0.3325), "rl gained 23.4 points over sft (95 % interval 15.0 to 33.3)."),
    (_difference(-0.1, -0.15, -0.05), "rl lost 10.0 points against sft (95 % interval −15.0 to −5.0)."),
    (_difference(-0.01, -0.05, 0.02),
     "rl did not change measurably against sft: difference −1.0 points, 95 % interval −5.0 to 2.0."),
    (_difference(0.0, 0.0, 0.0, same=60),
     "rl and sft scored the same on every one of the 60 tasks that both have scores for."),
    (stats.Difference(0.5, None, 1, 1, 0, 0, 0),
     "rl and sft can't be compared: 1 task scored in both, and an interval needs at least two."),
])
def test_plain_sentences(difference, sentence):
  assert conclude("sft", "rl", difference) == sentence


def test_sentences_say_when_the_basis_is_thin():
  text = conclude("sft", "rl", _difference(0.5, 0.2, 0.8, tasks=8, left_out=1))
  assert "Only 8 tasks could be compared" in text
  assert "1 task with scores in one run only is left out." in text


def test_charts_keep_every_measured_column():
  rows = [
      {"step": i, "loss": 1 / i, "odd_metric": i * i, "note": "x", "trained_tokens": 10,
       **({"eval_loss": 2.0} if i == 3 else {}), "gradient_norm": math.nan if i == 2 else 1.0}
      for i in range(1, 6)
  ]
  result = curves.charts(rows)
  assert result["x"] == [
      {"label": "step", "values": [1, 2, 3, 4, 5]},
      {"label": "trained tokens", "values": [10, 20, 30, 40, 50]},
  ]
  loss, norm = result["main"]
  assert loss["title"] == "Loss" and loss["unit"] == "nats per token"
  assert [s["values"][2] for s in loss["series"]] == [1 / 3, 2.0]
  assert norm["series"][0]["values"] == [1.0, None, 1.0, 1.0, 1.0]
  assert [c["title"] for c in result["other"]] == ["odd_metric"]


def test_charts_of_reinforcement_learning():
  rows = [
      {"step": i, "reward_mean": i / 9, "sampled_tokens": 600 * i, "trajectories": 6,
       "loss": -i, "zero_variance_share": 0.5, "dropped_tokens": {"fork": 1}}
      for i in range(1, 5)
  ]
  result = curves.charts(rows)
  assert [c["title"] for c in result["main"]] == ["Reward", "Length", "Groups without a signal"]
  assert result["main"][1]["series"][0]["values"] == [100, 200, 300, 400]
  assert [c["title"] for c in result["other"]] == ["sampled_tokens", "loss"]


def test_long_curves_are_binned_and_say_so():
  result = curves.charts([{"step": i, "loss": float(i % 2)} for i in range(3000)])
  assert result["binned"] == 5
  assert len(result["x"][0]["values"]) == 600
  assert result["main"][0]["series"][0]["values"][0] == pytest.approx(0.4)


def test_token_texts_join_to_the_whole_text(tokenizer):
  text = "naïve “quotes” — ✓ 日本 😀 </script>"
  ids = tokenizer.encode(text) + [tokenizer.eos_id]
  texts = transcript.pieces(ids, tokenizer)
  assert len(texts) == len(ids)
  assert "".join(texts) == text + "<|im_end|>"
  assert "\N{REPLACEMENT CHARACTER}" not in "".join(texts)


def test_token_texts_of_broken_bytes(tokenizer):
  ids = tokenizer.encode("a😀b")
  for torn in (ids[:3], ids[2:], ids[1:2] * 12):
    texts = transcript.pieces(torn, tokenizer)
    assert len(texts) == len(torn)
    assert "".join(texts) == tokenizer.decode(torn)
  assert transcript.pieces(ids, None) == []


def test_token_data_is_bounded_and_the_page_says_so(runs_folder, monkeypatch):
  monkeypatch.setattr(build, "TOKEN_BYTES", 20_000)
  page = build.page(_load(runs_folder, "base", "sft"), title="t")
  (note,) = _data(page)["notes"]
  kept = int(re.search(r"kept for (\d+) of 160 trajectories", note).group(1))
  assert kept == page.count('"tokens":{"s0"') and 0 < kept < 20


def test_trajectories_are_bounded_evenly_and_the_page_says_so(runs_folder, monkeypatch):
  monkeypatch.setattr(build, "TEXT_BYTES", 60_000)
  data = _data(build.page(_load(runs_folder, "base", "sft"), title="t"))
  shown = [t["run"] for t in data["trajectories"]]
  assert f"{len(shown)} of 160 trajectories are in this page" in data["notes"][-1]
  assert abs(shown.count("base") - shown.count("sft")) <= 1


def test_a_fork_carries_its_cause():
  step = lambda i, parent, cause=None: contract.Step(
      f"s{i}", parent, [{"role": "user", "content": f"u{i}"}],
      {"role": "assistant", "content": f"a{i}"}, "stop", fork_cause=cause)
  trajectory = contract.Trajectory(
      "t", "task", "g", 0, 1, "claw",
      [step(0, None), step(1, "s0"), step(2, None, "history rewritten"), step(3, "s0")],
      contract.scored(1.0))
  turns = transcript.turns(trajectory, transcript.Shared())
  assert [t["text"] for t in turns] == ["u0", "a0", "u1", "a1", "u2", "a2", "u3", "a3"]
  assert [t.get("note", "") for t in turns[::2]] == [
      "", "", "New conversation: history rewritten", "Continues from call s0"]


def test_a_new_conversation_is_marked_where_no_model_was_called_too():
  told = [{"role": role, "content": role} for role in ("user", "assistant", "system", "user")]
  trajectory = contract.Trajectory(
      "t", "task", "g", 0, 1, "oracle", [], contract.scored(1.0), metadata={"transcript": told})
  turns = transcript.turns(trajectory, transcript.Shared())
  assert [t.get("note") for t in turns] == [None, None, "New conversation", None]


def test_calls_are_readable_and_broken_ones_are_shown():
  message = {"role": "assistant", "content": None, "tool_calls": [
      {"id": "1", "function": {"name": "exec", "arguments": '{"command": "a\\nb", "n": 3}'}},
      {"id": "2", "function": {"name": "exec", "arguments": '{"command": '}},
  ]}
  step = contract.Step("s", None, [], message, "tool_calls")
  trajectory = contract.Trajectory("t", "k", "g", 0, 1, "claw", [step], contract.unscored("x"))
  (turn,) = transcript.turns(trajectory, transcript.Shared())
  assert turn["calls"][0]["arguments"] == {"command": "a\nb", "n": "3"}
  assert turn["calls"][1]["raw"] == '{"command": '


def test_long_texts_are_cut_with_a_count():
  text = transcript.cut("x" * 50_000)
  assert len(text) < 20_100 and "30,000 characters left out" in text


def test_a_run_without_model_calls_has_a_page(runs_folder):
  data = _data(build.page(_load(runs_folder, "null"), title="t"))
  assert data["comparisons"] == [] and len(data["trajectories"]) == 80


def test_nothing_scored_has_a_page(tmp_path, tokenizer):
  suite = invented.make_suite(tmp_path / "suite", 1)
  lost = [
      invented.make_trajectory(t, "claw", 0, contract.unscored("lost"), random.Random(0), tokenizer)
      for t in suite
  ]
  folders = [invented.write_run(tmp_path / n, n, suite, lost) for n in ("base", "sft")]
  data = _data(build.page([runs.load_run(f.name, f) for f in folders], title="t"))
  assert data["runs"][0]["mean"] is None
  assert "can't be compared" in data["comparisons"][0]["sentence"]
