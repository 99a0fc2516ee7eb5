"""`--audit`: as many tasks are admitted as were asked for, and the same each time."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.task import list_tasks
from data_gen.admitted import fill


def _synthesize(folder, *flags):
  return subprocess.run(
      [
          sys.executable, "-m", "data_gen.synthesize", f"--out={folder}", "--json",
          "--generator=compact", "--seed=4", *flags,
      ],
      capture_output=True, text=True, timeout=120, env=os.environ,
  )  # fmt: skip


def test_for_each_rejected_task_one_more_is_made():
  bad, made = {1, 4, 5}, []

  def make(count):
    made.append(count)
    return {"tasks": count}

  def audit():
    return {"admitted": len(set(range(made[-1])) - bad)}

  assert fill(4, make, audit) == {"tasks": 7, "audit": {"admitted": 4}}
  assert made == [4, 5, 6, 7]


def test_a_source_that_is_mostly_rejected_ends_in_an_error():
  with pytest.raises(UserError, match="only 0 of 4 tasks are admitted"):
    fill(2, lambda count: {}, lambda: {"admitted": 0})


def test_those_on_the_other_side_are_replaced_and_stay_rejected(tmp_path):
  """The first two are the bench's own, so the next two take their places."""
  assert _synthesize(tmp_path / "bench", "--num_tasks=2").returncode == 0
  flags = ("--audit", "--num_tasks=3", f"--against={tmp_path / 'bench'}")
  first = _synthesize(tmp_path / "tasks", *flags)
  assert first.returncode == 0, first.stderr
  found = json.loads(first.stdout.splitlines()[-1])
  assert found["tasks"] == 5 and found["audit"]["admitted"] == 3
  bench = [d.name for d in list_tasks(tmp_path / "bench")]
  admitted = [d.name for d in list_tasks(tmp_path / "tasks")]
  assert len(admitted) == 3 and not set(bench) & set(admitted)
  verdicts = json.loads((tmp_path / "tasks/audit.json").read_text())["tasks"]
  assert all("duplicate" in verdicts[name]["causes"][0] for name in bench)

  again = json.loads(_synthesize(tmp_path / "tasks", *flags).stdout.splitlines()[-1])
  assert again["made"] == 0 and again["audit"]["admitted"] == 3
  assert [d.name for d in list_tasks(tmp_path / "tasks")] == admitted


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--against=x",), "--against is for --audit"),
        (("--concurrency=2",), "--concurrency is for --generator=llm or --audit"),
        (("--audit", "--model=x"), "--model is for --generator=llm;"),
    ],
)
def test_flags_that_mean_nothing_here_are_refused(tmp_path, flags, says):
  run = _synthesize(tmp_path / "tasks", "--num_tasks=1", *flags)
  assert run.returncode != 0 and says in run.stderr
  assert not (tmp_path / "tasks").exists()
