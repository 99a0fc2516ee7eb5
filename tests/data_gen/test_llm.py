"""Tasks that a model writes: the whole way against a local endpoint, good and bad."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.task import list_tasks, load_task
from data_gen import audit
from data_gen.llm import pipeline, run
from data_gen.llm.seeds import seed_of
from tests.data_gen import fake_llm
from tests.data_gen.fake_llm import KEY, Fake, carried_out, serving, settings

PROGRAM = (
    "```python\n"
    "def grade(workspace, final_message, transcript, services):\n{}\n```"
)


def _contents(folder: Path) -> dict[str, bytes]:
  return {
      str(p.relative_to(folder)): p.read_bytes()
      for p in sorted(folder.rglob("*"))
      if p.is_file() and ".llm" not in p.parts and p.name != ".lock"
  }


def _command(out: Path, url: str, count: int, *more: str) -> list[str]:
  return [
      sys.executable, "-m", "data_gen.synthesize", "--generator=llm", f"--out={out}",
      f"--endpoint={url}", "--model=fake-1", f"--num_tasks={count}", "--json", *more,
  ]  # fmt: skip


# The whole way


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """Two good ideas, the first with a rubric, through the real audit."""
  out = tmp_path_factory.mktemp("llm") / "tasks"
  fake = Fake()
  with serving(fake) as url:
    given = settings(url, concurrency=2, api_key=KEY)
    summary = run.synthesize(out, 2, 0, "train", given)
  return out, fake, given, summary


def test_good_ideas_become_audited_tasks(whole):
  out, fake, given, summary = whole
  assert (summary["admitted"], summary["rejected"], summary["lost"]) == (2, 0, 0)
  tasks = [load_task(path) for path in list_tasks(out)]
  assert [task.id for task in tasks] == [f"train-0-{n:05d}-llm" for n in range(2)]
  for task in tasks:
    (reference,) = task.reference()
    assert [call.name for call in reference.calls] == ["read", "exec"]
    assert reference.final_message.startswith("The paid orders are in out/paid")
    made = task.provenance
    assert made["generator"] == "llm-1" and made["model"] == "fake-1"
    assert made["endpoint"] == "127.0.0.1" and len(made["prompts"]) == 12
  assert [(t.root / "rubric.json").exists() for t in tasks] == [True, False]
  said = json.loads((out / "llm.json").read_text())
  assert said["counts"] == {"admitted": 2}
  for stage, entered in (("idea", 2), ("solve", 2), ("rubric", 1), ("audit", 2)):
    row = summary["stages"][stage]
    assert row["entered"] == row["passed"] == entered, stage
    assert row["discarded"] == row["failed"] == {}
  replies = sum(row["replies"] for row in summary["stages"].values())
  assert replies == len(fake.asked) == 2 * (3 + 3) + 1
  spent = summary["stages"]["task"]
  assert spent["paid"]["prompt_tokens"] == spent["prompt_tokens"] > 1000
  assert not (out / ".llm" / "work").exists() or not any((out / ".llm/work").iterdir())


def test_the_key_is_sent_and_kept_nowhere(whole):
  out, fake, given, summary = whole
  assert {headers["authorization"] for _, _, headers in fake.asked} == {f"Bearer {KEY}"}
  for path in out.rglob("*"):
    assert path.is_dir() or KEY.encode() not in path.read_bytes(), path
  assert KEY not in repr(given) and KEY not in json.dumps(summary)


def test_what_is_kept_makes_the_same_bytes_with_the_endpoint_down(whole, tmp_path):
  out, _, given, _ = whole
  again = tmp_path / "again"
  (again / ".llm").mkdir(parents=True)
  shutil.copytree(out / ".llm" / "kept", again / ".llm" / "kept")
  summary = run.synthesize(again, 2, 0, "train", given)
  assert summary["admitted"] == 2
  assert all(row["paid"] == {} for row in summary["stages"].values())
  assert _contents(again) == _contents(out)


def test_a_decided_idea_is_not_tried_again_and_a_spoiled_task_is(whole, tmp_path):
  out, _, given, _ = whole
  copy = tmp_path / "copy"
  shutil.copytree(out, copy)
  check = copy / "train-0-00001-llm" / "checks" / "check.py"
  check.write_bytes(check.read_bytes() + b"#")
  summary = run.synthesize(copy, 2, 0, "train", given)
  assert (summary["admitted"], summary["already_decided"]) == (2, 1)
  assert _contents(copy) == _contents(out)


def test_another_model_or_seed_is_another_run(whole):
  out, _, given, _ = whole
  with pytest.raises(UserError, match="model .was .fake-1., is .other"):
    other = settings(given.endpoint, model="other")
    run.synthesize(out, 2, 0, "train", other)
  with pytest.raises(UserError, match="seed"):
    run.synthesize(out, 2, 1, "train", given)


def test_killed_in_the_middle_it_goes_on_and_asks_nothing_twice(fake, tmp_path):
  out = tmp_path / "tasks"
  fake.script["checks"] = [None, 6.0]  # the second idea's program takes long
  with serving(fake) as url:
    command = _command(out, url, 2, "--concurrency=1", "--api_key_env=THE_KEY")
    environment = {**os.environ, "THE_KEY": KEY}
    running = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
      end = time.monotonic() + 60
      while fake.count("checks") < 2 and time.monotonic() < end:
        assert running.poll() is None, running.stdout.read()
        time.sleep(0.02)
    finally:
      running.send_signal(signal.SIGKILL)
      running.communicate()
    assert [path.name for path in list_tasks(out)] == ["train-0-00000-llm"]
    before = len(fake.asked)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
  assert done.returncode == 0, done.stderr
  summary = json.loads(done.stdout.splitlines()[-1])
  assert (summary["planned"], summary["admitted"]) == (2, 2)
  said = [json.dumps(body, sort_keys=True) for _, body, _ in fake.asked]
  assert len(set(said)) == len(said) - 1  # the one that was not answered
  assert len(said) - before == 1 + 3  # its program and its solution
  assert "2 of 2 ideas are tasks" in done.stdout
  assert KEY not in done.stdout + done.stderr


# The model's failures


def test_a_bad_reply_is_handed_back_and_a_third_ends_the_idea(fake, tmp_path, sound):
  cut = {"message": {"role": "assistant", "content": "{"}, "finish_reason": "length"}
  fake.script["idea"] = ["Sure, here is one.", cut]
  fake.script["task"] = [fake_llm.idea(1234, {})] * 3
  summary = carried_out(fake, tmp_path)
  assert summary["rejected"] == 1 and list_tasks(tmp_path) == []
  stages = summary["stages"]
  assert stages["idea"]["discarded"] == {"no_json": 1, "truncated": 1}
  assert (stages["idea"]["passed"], stages["task"]["passed"]) == (1, 0)
  assert stages["task"]["discarded"] == {"wrong_form": 3}
  ((cause,),) = summary["unsound"].values()
  assert cause.startswith("task: no usable reply, the last one wrong_form: files must")
  third = fake.asked[2][1]["messages"]
  assert [m["role"] for m in third[2:]] == ["assistant", "user"] * 2
  assert "no JSON object" in third[3]["content"] and "cut" in third[5]["content"]


def test_a_task_that_reaches_out_of_its_folder_writes_nothing_there(
    fake, tmp_path, sound
):
  raw = json.loads(fake_llm.task(1234, {}).strip("`").removeprefix("json"))
  raw["files"][0]["path"] = "../../../../escaped.txt"
  fake.always["task"] = json.dumps(raw)
  summary = carried_out(fake, tmp_path / "a" / "tasks")
  assert summary["stages"]["task"]["discarded"] == {"path_outside": 3}
  assert not list(tmp_path.rglob("escaped.txt"))


def test_what_the_contract_refuses_goes_back_with_its_words(fake, tmp_path, sound):
  def lacking(case, body):
    raw = json.loads(fake_llm.task(case, {}).strip("`").removeprefix("json"))
    return json.dumps({**raw, "requires": ["web"]})

  fake.script["task"] = [lacking]
  summary = carried_out(fake, tmp_path)
  assert summary["admitted"] == 1
  assert summary["stages"]["task"]["discarded"] == {"wrong_form": 1}
  told = next(b for s, b, _ in reversed(fake.asked) if s == "task")["messages"][-1]
  assert "requires web, but has no services/web.jsonl" in told["content"]
  assert str(tmp_path) not in told["content"]


def test_checks_that_give_what_was_not_earned_are_mended(fake, tmp_path, sound):
  fake.script["checks"] = [PROGRAM.format("  return {'a': 1.0}")]
  summary = carried_out(fake, tmp_path)
  assert summary["admitted"] == 1 and fake.count("repair") == 1
  asked = next(body for stage, body, _ in fake.asked if stage == "repair")
  assert "- null scores 1" in asked["messages"][1]["content"]
  assert summary["stages"]["checks"]["discarded"] == {"null": 1}
  said = json.loads((tmp_path / "llm.json").read_text())["ideas"]
  assert said["train-0-00000-llm"]["rounds"] == 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("  return {{'a': float(b'host' in open({secret!r}, 'rb').read())}}",
         "null: check_error: FileNotFoundError"),
        ("  import os\n  [os.fork() for _ in range(99)]\n  return {{'a': 0.0}}",
         "null: check_error: "),
        ("  return {{'a': float('nan')}}", "null: check_error: a = nan"),
        ("  import os\n  os._exit(0)", "null: check_error: the checks ended without"),
    ],
)  # fmt: skip
def test_hostile_checks_reach_nothing_and_are_rejected(
    fake, tmp_path, sound, monkeypatch, body, says
):
  monkeypatch.setattr(pipeline, "ROUNDS", 1)
  secret = tmp_path / "secret"
  secret.write_text("host")
  hostile = PROGRAM.format(body.format(secret=str(secret)))
  fake.always |= {"checks": hostile, "repair": hostile + "\n```json\n{}\n```"}
  summary = carried_out(fake, tmp_path / "tasks")
  ((cause,),) = summary["unsound"].values()
  assert cause.startswith(says) and summary["rejected"] == 1
  assert list_tasks(tmp_path / "tasks") == []


def test_invented_numbers_go_back_to_the_solver(fake, tmp_path):
  """It knows the right result by heart: right, but nobody could learn from it."""

  def by_heart(case, body):
    content = json.dumps(fake_llm.expected(case))
    return fake_llm.call("write", path=f"out/paid{case}.json", content=content)

  fake.script["solve"] = [by_heart, "Done."]
  summary = carried_out(fake, tmp_path)
  assert summary["admitted"] == 1, summary["unsound"]
  assert summary["stages"]["audit"]["discarded"] == {"provenance": 1}
  assert fake.count("repair") == 0
  told = [b["messages"][0]["content"] for s, b, _ in fake.asked if s == "solve"]
  assert "An earlier attempt failed: provenance: " in told[2] and told[0] != told[2]


@pytest.mark.slow
def test_unsound_tasks_are_named_with_what_the_audit_found(fake, tmp_path, monkeypatch):
  """Checks that look at half of the result; the audit's wrong edits show it."""
  monkeypatch.setattr(pipeline, "ROUNDS", 0)

  def half(case, body):
    return fake_llm.checks(case, body).replace(
        "right = got == EXPECTED",
        'right = isinstance(got, dict) and got.get("count") == EXPECTED["count"]',
    )

  fake.always["checks"] = half
  summary = carried_out(fake, tmp_path)
  assert summary["causes"] == {"a spoiled result still scores": 1}
  ((cause, *_),) = summary["unsound"].values()
  assert cause == "a spoiled result still scores 1" and list_tasks(tmp_path) == []


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("I can not do that.", "it made no call"),
        (fake_llm.call("exec", command="true"), "turn_limit"),
        ({"message": {"role": "assistant", "content": "I"}, "finish_reason": "length"},
         "a reply was cut"),
    ],
)  # fmt: skip
def test_a_solver_without_an_end_is_a_cause(
    fake, tmp_path, sound, monkeypatch, answer, says
):
  monkeypatch.setattr(pipeline, "ROUNDS", 0)
  fake.always["solve"] = answer
  summary = carried_out(fake, tmp_path)
  ((cause,),) = summary["unsound"].values()
  assert cause.startswith(f"solver: {says}") and summary["rejected"] == 1


def test_without_a_rubric_code_judges_alone(fake, tmp_path, sound):
  fake.always["rubric"] = "None comes to mind."
  summary = carried_out(fake, tmp_path)
  assert summary["admitted"] == 1
  assert summary["stages"]["rubric"]["passed"] == 0
  assert not list(tmp_path.rglob("rubric.json"))


def test_refused_criteria_go_back_to_their_writer(fake, tmp_path, monkeypatch):
  judged = []

  async def judge(task, backend):
    judged.append(task.id)
    assert (task.root / "rubric.json").exists()
    first = len(judged) == 1
    return audit.Findings(["rubric: readable asks again"] if first else [])

  monkeypatch.setattr(audit, "judge", judge)
  fake.script["rubric"] = [
      lambda case, body: fake_llm.rubric(case, body).replace("laid out", "made")
  ]
  summary = carried_out(fake, tmp_path)
  assert summary["admitted"] == 1, summary["unsound"]
  assert (fake.count("rubric"), fake.count("repair")) == (2, 0)
  asked = [b["messages"][1]["content"] for s, b, _ in fake.asked if s == "rubric"]
  assert "Earlier criteria were refused: rubric: readable asks again" in asked[1]


def test_of_nearly_the_same_requests_the_first_stays(fake, tmp_path, sound):
  fake.always["idea"] = fake_llm.idea(1234, {})
  seeds = [seed_of(0, "train", index) for index in (0, 9)]  # of one scenario

  def go() -> dict:
    with serving(fake) as url:
      return asyncio.run(run._Run(tmp_path, settings(url)).fill(seeds))

  summary = go()
  assert [path.name for path in list_tasks(tmp_path)] == ["train-0-00000-llm"]
  assert summary["causes"] == {"duplicate": 1}
  assert go()["already_decided"] == 2


def test_damaged_files_of_its_own_are_had_again(fake, tmp_path, sound):
  first = carried_out(fake, tmp_path)
  (tmp_path / "llm.json").write_text("{")
  for path in (tmp_path / ".llm" / "kept").rglob("*.json"):
    path.write_text(path.read_text()[:-5])
  fake.asked.clear()
  assert carried_out(fake, tmp_path)["admitted"] == first["admitted"] == 1
  assert len(fake.asked) == 7


# What is asked for, and by whom


def test_ideas_start_apart():
  train = [seed_of(3, "train", n) for n in range(180)]
  held = [seed_of(3, "heldout", n) for n in range(180)]
  assert seed_of(3, "train", 17) == train[17] != seed_of(4, "train", 17)
  assert not {s.family for s in train} & {s.family for s in held}
  assert not {s.persona.name for s in train} & {s.persona.name for s in held}
  assert not {s.now for s in train} & {s.now for s in held}
  assert len({s.family for s in train}) > 170
  assert sum(s.hybrid for s in train) == 45
  assert set(Counter(s.scenario for s in train).values()) == {20}
