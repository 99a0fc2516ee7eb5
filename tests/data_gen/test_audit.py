"""The audit, in real sandboxes: it admits what is sound and says what is not."""

from __future__ import annotations

import asyncio
import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from clawgym_jax.contracts.runs import only_writer
from data_gen import audit
from data_gen.audit import folder as audit_folder
from data_gen.audit import judging, trial
from data_gen.draft import REGISTRY
from data_gen.compact import make_task


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
  wrong.write_text(json.dumps({"calls": [], "final_message": "Done."}))
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


def test_one_file_of_a_task_ends_no_audit(tmp_path):
  _make(tmp_path, "sound", "pack_folder")
  deep = '{"calls": ' + "[" * 300_000
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
    [(trial, "open_sandbox"), (audit_folder, "load_task"), (judging, "Verifier")],
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
