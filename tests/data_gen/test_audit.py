"""The audit, in real sandboxes: it admits what is sound and says what is not."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clawgym_jax.contracts.runs import only_writer
from clawgym_jax.contracts.task import Reference, SolutionCall, Task, save_task
from data_gen import audit
from data_gen.audit import folder as audit_folder
from data_gen.audit import court, trial
from data_gen.compose import checks
from data_gen.compose.compose import build
from data_gen.compose.graph import Graph
from data_gen.compose.part import Part, expected
from data_gen.compose.setting import Setting
from data_gen.draft import REGISTRY
from sandbox.harnesses import ADVERSARIES
from data_gen.compact import make_task
from tests.contracts.rubrics import criterion


def _audit(folder: Path, *flags: str) -> subprocess.CompletedProcess:
  return subprocess.run(
      [sys.executable, "-m", "data_gen.audit", f"--tasks={folder}", "--json", *flags],
      capture_output=True,
      text=True,
      timeout=180,
      check=False,
  )


def _make(folder: Path, name: str, family: str = "log_count") -> Path:
  make_task(folder / name, REGISTRY[family], 1, "train", 0)
  return folder / name


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
  """A folder with sound and unsound tasks, after one audit."""
  folder = tmp_path_factory.mktemp("tasks")
  for family in ("pack_folder", "database_update", "script_path", "move_by_type"):
    _make(folder, f"sound-{family}", family)
  (_make(folder, "crashes") / "checks" / "check.py").write_text("raise OSError(1)\n")
  (_make(folder, "no-check") / "checks" / "check.py").unlink()
  (_make(folder, "no-json") / "task.json").write_text("{")
  generous = "def grade(workspace, final_message, transcript):\n  return {'a': 1.0}\n"
  (_make(folder, "generous") / "checks" / "check.py").write_text(generous)
  nan = generous.replace("1.0", "float('nan')")
  (_make(folder, "nan") / "checks" / "check.py").write_text(nan)
  wrong = _make(folder, "unsolved") / "solution" / "calls.json"
  unsolved = {"turns": [{"calls": [], "final_message": "Done."}], "fallen": []}
  wrong.write_text(json.dumps(unsolved))
  lax = _make(folder, "lax") / "checks" / "check.py"
  lax.write_text(
      "def grade(workspace, final_message, transcript):\n"
      "  done = any(m['role'] == 'tool' for m in transcript)\n"
      "  return {'a': float(done)}\n"
  )
  return folder, _audit(folder)


def test_sound_tasks_are_admitted_and_unsound_ones_name_their_cause(audited):
  folder, run = audited
  assert run.returncode == 1, run.stderr
  assert "Traceback" not in run.stderr
  tasks = json.loads((folder / "audit.json").read_text())["tasks"]
  admitted = {name for name, v in tasks.items() if v["verdict"] == "admitted"}
  assert admitted == {p.name for p in folder.glob("sound-*")} and len(admitted) == 4
  causes = {n: "; ".join(v["causes"]) for n, v in tasks.items() if n not in admitted}
  assert "OSError" in causes["crashes"]
  assert "no checks/check.py" in causes["no-check"]
  assert "not JSON" in causes["no-json"]
  assert "null scores 1" in causes["generous"]
  assert "spoiled" in causes["generous"] and "empty_files" in causes["generous"]
  assert "nan is not in [0, 1]" in causes["nan"]
  assert "oracle scores 0" in causes["unsolved"]
  assert causes["lax"] == "a spoiled result still scores 1"
  assert {p.name for p in (folder / "rejected").iterdir()} == set(causes)


def test_a_second_run_keeps_verdicts_and_judges_only_what_changed(audited):
  folder, _ = audited
  before = json.loads((folder / "audit.json").read_text())
  run = _audit(folder)  # what the first run rejected is no error of this one
  assert run.returncode == 0, run.stderr
  assert json.loads((folder / "audit.json").read_text()) == before
  summary = json.loads(run.stdout.splitlines()[-1])
  assert (summary["admitted"], summary["undecided"]) == (4, 0)
  assert (summary["rejected"], summary["already_rejected"]) == (0, 7)
  assert "7 already rejected" in run.stdout
  victim = folder / "sound-move_by_type"
  (victim / "checks" / "expected.json").write_text("{}")
  assert _audit(folder).returncode == 1
  assert not victim.exists() and (folder / "rejected" / victim.name).is_dir()


def test_killed_before_a_rejected_task_was_moved(audited, tmp_path):
  folder = shutil.copytree(audited[0], tmp_path / "set")
  kept = json.loads((folder / "audit.json").read_text())["tasks"]
  left = next(n for n, v in kept.items() if v["verdict"] == "rejected" and v["hash"])
  gone = next(n for n, v in kept.items() if v["verdict"] == "admitted")
  (folder / "rejected" / left).rename(folder / left)
  shutil.rmtree(folder / gone)
  run = _audit(folder)
  assert run.returncode == 1, run.stderr
  assert not (folder / left).exists() and (folder / "rejected" / left).is_dir()
  now = json.loads((folder / "audit.json").read_text())["tasks"]
  assert now[left] == kept[left] and now.keys() == kept.keys() - {gone}


def test_one_file_of_a_task_ends_no_audit(tmp_path):
  _make(tmp_path, "sound", "pack_folder")
  deep = '{"turns": ' + "[" * 300_000
  (_make(tmp_path, "deep-calls") / "solution" / "calls.json").write_text(deep)
  (_make(tmp_path, "deep-task") / "task.json").write_text("[" * 300_000)
  path = _make(tmp_path, "half") / "task.json"
  record = json.loads(path.read_text())
  path.write_text(json.dumps({**record, "instruction": "\ud800 write a.txt"}))
  path = _make(tmp_path, "for-ever") / "task.json"
  path.write_text(json.dumps({**record, "limits": {"turns": 8, "seconds": 1e308}}))
  with open(_make(tmp_path, "huge") / "workspace" / "sparse", "wb") as file:
    file.truncate(1 << 40)
  run = _audit(tmp_path)
  assert run.returncode == 1 and "Traceback" not in run.stderr
  tasks = json.loads((tmp_path / "audit.json").read_text())["tasks"]
  assert tasks.pop("sound")["verdict"] == "admitted"
  assert all(v["causes"][0].startswith("broken: ") for v in tasks.values())
  causes = {name: v["causes"][0] for name, v in tasks.items()}
  assert "nested too deeply" in causes["deep-calls"]
  assert "nested too deeply" in causes["deep-task"]
  assert "surrogate" in causes["half"]
  assert "limits.seconds" in causes["for-ever"]
  assert "bytes; a sandbox holds" in causes["huge"]


def test_two_audits_at_once_are_refused(tmp_path):
  _make(tmp_path, "sound")
  with only_writer(tmp_path, "audit"):
    refused = _audit(tmp_path)
  assert refused.returncode == 1
  assert "another audit is writing" in refused.stderr


@pytest.mark.parametrize(
    "module, place",
    [(trial, "open_sandbox"), (audit_folder, "load_task"), (court, "Verifier")],
)
@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC, errno.EAGAIN])
def test_a_host_without_means_decides_nothing(
    tmp_path, monkeypatch, module, place, code
):
  sound = _make(tmp_path, "sound")

  def fail(*_args, **_kwargs):
    raise OSError(code, "the host is short of it")

  monkeypatch.setattr(module, place, fail)
  summary = asyncio.run(audit.audit(tmp_path, 1))
  assert (summary["rejected"], summary["undecided"]) == (0, 1)
  assert sound.is_dir() and not (tmp_path / "rejected").exists()


def test_a_fault_of_our_own_ends_the_audit(tmp_path, monkeypatch):
  sound = _make(tmp_path, "sound")

  async def fail(*_, **__):
    raise TypeError("ours")

  monkeypatch.setattr(audit_folder, "judge", fail)
  with pytest.raises(TypeError, match="ours"):
    asyncio.run(audit.audit(tmp_path, 1))
  assert sound.is_dir() and not (tmp_path / "rejected").exists()


def test_it_runs_in_the_backend_that_is_asked_for(tmp_path, monkeypatch):
  monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody")
  _make(tmp_path / "tasks", "sound")
  refused = _audit(tmp_path / "tasks", "--backend=docker")
  assert refused.returncode == 1
  assert f"no docker daemon answers at unix://{tmp_path}/nobody" in refused.stderr


def test_an_empty_folder_and_an_absent_one_are_errors(tmp_path):
  assert "holds no tasks" in _audit(tmp_path).stderr
  assert "is not a folder" in _audit(tmp_path / "absent").stderr


GRAPH = Graph("csv", ("total_by",), "json", ("ini_value",))


def _composed(directory: Path, **given) -> Task:
  """A task of `GRAPH`; `given` replaces parts of it."""
  key, part = _sound()
  files = {
      "workspace": part.workspace, "turns": [Reference(part.calls, part.done)],
      "checks": _checks(part),
  } | given  # fmt: skip
  return save_task(
      directory,
      Task(
          id=directory.name, instruction=part.said, family=GRAPH.name, split="train",
          category="c", operations=("x",),
          provenance={"generator": "procedural-test", "key": key},
      ),
      **files,
  )  # fmt: skip


def _checks(part: Part) -> dict[str, bytes]:
  return {
      "check.py": checks.source(),
      "expected.json": json.dumps(expected(part)).encode(),
  }


def _sound() -> tuple[str, Part]:
  keys = (f"audited {number}" for number in range(50))
  parts = ((key, build(GRAPH, Setting(key, "train"))) for key in keys)
  return next((key, part) for key, part in parts if part)


def _rebuild(task: Task, reseed: int):
  part = build(GRAPH, Setting(task.provenance["key"], "train", reseed))
  return part.workspace, _checks(part), part.services


def _tried(task: Task, **settings) -> trial.Findings:
  return asyncio.run(trial.judge(task, rebuild=_rebuild, **settings))


def test_a_composed_task_is_sound_over_other_records_too(tmp_path):
  found = _tried(_composed(tmp_path / "t"), thorough=True)
  assert found.causes == [] and found.reseeded
  assert found.mutants == 12 and found.survivors == []
  assert found.attacks == dict.fromkeys(("null", *ADVERSARIES), 0.0)


def test_a_rubric_that_asks_what_is_judged_already_is_found_out(tmp_path):
  """And so is one of an input; its score plays no part, code is what is judged."""
  _, part = _sound()
  (given, *_), path = sorted(part.workspace), part.deliverables["result"]["path"]
  rubric = [
      criterion("fine", file_path=path),
      criterion("input", file_path=given),
      criterion("again", criterion="Are the inputs left unchanged?"),
  ]
  found = _tried(_composed(tmp_path / "t", rubric=rubric))
  assert found.causes == [
      f"rubric: input looks at {given}, which no solution hands over",
      "rubric: again asks again what the check inputs_unchanged judges",
  ]
  assert found.attacks["null"] == 0.0 and found.survivors == []


def test_a_solution_that_knows_the_records_is_found_out(tmp_path):
  """It writes the right result by heart, which over other records is wrong."""
  _, part = _sound()
  spec = part.deliverables["result"]
  right = [dict(zip(spec["columns"], row, strict=True)) for row in spec["rows"]]
  learned = SolutionCall("write", {"path": spec["path"], "content": json.dumps(right)})
  chore = [call for call in part.calls if "config/" in json.dumps(call.arguments)]
  solution = [Reference([learned, *chore], part.done)]
  task = _composed(tmp_path / "t", turns=solution)
  causes = _tried(task).causes
  assert any(c.startswith("provenance: ") for c in causes), causes
  assert any(c.startswith("over other records oracle scores 0") for c in causes)


def test_what_depends_on_the_day_or_on_a_whim_is_found_out(tmp_path):
  _, part = _sound()
  source = checks.source().decode().replace("def grade(", "def judged(")
  wrapped = source + (
      "\n\ndef grade(workspace, final_message, transcript, services=[]):\n"
      "  import os\n"
      "  values = judged(workspace, final_message, transcript, services)\n"
      "  return values if os.environ['CLAWGYM_NOW'] < '2030' else {'a': 0.0}\n"
  )
  files = {**_checks(part), "check.py": wrapped.encode()}
  causes = asyncio.run(trial.judge(_composed(tmp_path / "t", checks=files))).causes
  assert causes == ["with another locale and date oracle scores 0, fails ['a']"]


def test_checks_that_see_half_of_the_work_are_lax(tmp_path):
  _, part = _sound()
  source = checks.source().decode().replace("def grade(", "def judged(")
  half = source + (
      "\n\ndef grade(workspace, final_message, transcript, services=[]):\n"
      "  values = judged(workspace, final_message, transcript, services)\n"
      "  return {'any': max(v for k, v in values.items() if k.endswith('right'))}\n"
  )
  files = {**_checks(part), "check.py": half.encode()}
  found = _tried(_composed(tmp_path / "t", checks=files))
  assert len(found.causes) == 1 and found.causes[0].startswith("lax: only 0 of 12")
  assert len(found.survivors) == 12


def test_a_result_too_small_for_wrong_edits_is_named(tmp_path, monkeypatch):
  monkeypatch.setattr(trial, "LEAST", 13)
  assert _tried(_composed(tmp_path / "t")).causes == [
      "too small: 12 wrong edits can be made of the result, 13 are needed"
  ]


def test_of_two_equal_requests_one_stays(tmp_path):
  _, part = _sound()
  for number, place in enumerate(("tasks/a", "tasks/b", "bench/c")):
    looks = [SolutionCall("exec", {"command": "ls"})] * number  # other work
    solution = [Reference([*looks, *part.calls], part.done)]
    _composed(tmp_path / place, turns=solution)
  folder = tmp_path / "tasks"
  (folder / "b").rename(tmp_path / "b")
  first = asyncio.run(audit.audit(folder, 1))
  assert (first["admitted"], first["rejected"]) == (1, 0)
  (tmp_path / "b").rename(folder / "b")
  second = asyncio.run(audit.audit(folder, 1, against=tmp_path / "bench"))
  assert (second["admitted"], second["rejected"]) == (0, 2)
  (cause,) = second["causes"]["a"]
  assert cause.startswith("duplicate: 1.00 ") and cause.endswith("bench/c")


def test_of_the_same_work_in_other_words_one_stays(tmp_path):
  for name, place in (("a", "tasks/a"), ("b", "tasks/b"), ("c", "bench/c")):
    path = _make(tmp_path / place.partition("/")[0], name) / "task.json"
    record = json.loads(path.read_text())
    other = " ".join(f"{name}{number}" for number in range(200))
    record["instruction"] += f" By the way: {other}"
    path.write_text(json.dumps(record))
  folder = tmp_path / "tasks"
  found = asyncio.run(audit.audit(folder, 1))
  assert found["causes"] == {
      "b": ["duplicate: its solution and checks are those of a"]
  }
  found = asyncio.run(audit.audit(folder, 1, against=tmp_path / "bench"))
  assert found["causes"]["a"][0].endswith("are those of " + str(tmp_path / "bench/c"))
  assert found["figures"]["causes"] == {"duplicate": 2}


def _foreign(directory: Path, command: str, right: str, **fields) -> Task:
  """Somebody else's task: out.txt is to hold in.txt, and `right` says when it does."""
  return save_task(
      directory,
      Task(
          id="t", instruction="Copy in.txt to out.txt and mail bo@x.example: copied.",
          family="f", split="train", category="c", operations=("x",),
          requires=("outbox",), **fields,
      ),
      workspace={"in.txt": b"one 1\ntwo 2\nthree 3\n"},
      checks={"check.py": (
          "import pathlib\n\n\n"
          "def grade(workspace, final_message, transcript, services):\n"
          "  path = pathlib.Path(workspace) / 'out.txt'\n"
          "  said = path.read_text(errors='replace') if path.is_file() else ''\n"
          f"  return {{'right': float({right})}}\n"
      ).encode()},
      turns=[Reference([SolutionCall("exec", {"command": command})], "Done.")],
  )  # fmt: skip


SENDS = "outbox send --to=bo@x.example --body=copied"


def test_who_leaves_the_files_but_not_the_side_effects_has_not_done_the_work(tmp_path):
  """A copy of the input is the right file; that nothing was sent is seen."""
  whole = "said == 'one 1\\ntwo 2\\nthree 3\\n'"
  lax = _foreign(tmp_path / "lax", f"cp in.txt out.txt && {SENDS}", whole)
  causes = asyncio.run(trial.judge(lax)).causes
  assert "copy_input scores 1" in causes, causes
  fair = f"{whole} and [s['data']['body'] for s in services] == ['copied']"
  fair = _foreign(tmp_path / "fair", f"cp in.txt out.txt && {SENDS}", fair)
  found = asyncio.run(trial.judge(fair))
  assert found.causes == [] and found.mutants >= 10


@pytest.mark.parametrize(
    "what", ["date -d $CLAWGYM_NOW +%F", "echo $LC_ALL", "date +%Z"]
)
def test_a_solution_of_others_runs_elsewhere_too(what, tmp_path):
  """What depends on the day, the locale or the zone is right here alone."""
  command = f"cp in.txt out.txt && {what} >> out.txt && {SENDS}"
  here = "said.split()[-1:] in (['2026-01-05'], ['3'], ['UTC'], ['C.UTF-8'])"
  here += " and 'one' in said and bool(services)"
  causes = asyncio.run(trial.judge(_foreign(tmp_path / "t", command, here))).causes
  assert [c for c in causes if c.startswith("elsewhere oracle scores 0")], causes


def test_tasks_without_solutions_are_attacked(tmp_path):
  task = _composed(tmp_path / "open")
  (task.root / "checks" / "check.py").write_text(
      "from pathlib import Path\n\n\ndef grade(workspace, final_message, transcript):\n"
      "  return {'there': float(len(list(Path(workspace).rglob('*.json'))) > 0)}\n"
  )
  shutil.rmtree(task.root / "solution")
  run = _audit(tmp_path, "--attacks_only")
  assert run.returncode == 0, run.stderr
  rows = json.loads((tmp_path / "attacks.json").read_text())["attacks"]
  assert rows["null"]["mean"] == 0.0 and rows["empty_files"]["mean"] == 1.0
  assert "empty_files" in run.stdout and (tmp_path / "open").is_dir()


def test_attacks_go_on_where_they_were_stopped(tmp_path, monkeypatch):
  """Only what is new or has changed is attacked again; what failed, too."""
  for name in "abc":
    _make(tmp_path, name)
  scores = dict.fromkeys(("null", *ADVERSARIES), 0.0)
  attacked, lost = [], {"c"}

  async def attacks(task, backend):
    attacked.append(task.root.name)
    if task.root.name in lost:
      raise trial.Undecided("lost")
    return {**scores, "flood": 0.5}

  monkeypatch.setattr(audit_folder, "attacks", attacks)
  found = asyncio.run(audit_folder.attack_table(tmp_path, 1))
  assert found["failed"] == {"c": "lost"} and attacked == ["a", "b", "c"]
  lost.clear()
  (tmp_path / "b" / "workspace" / "more.txt").write_text("x")
  found = asyncio.run(audit_folder.attack_table(tmp_path, 1))
  assert attacked[3:] == ["b", "c"] and not found["failed"]
  row = found["attacks"]["flood"]
  assert (row["tasks"], row["mean"], row["from_0.5"]) == (3, 0.5, 3)
