"""P64: what fails stays in the denominator, and --strict fails because of it."""

import json

import pytest

from tests.eval import commands, invented
from tests.eval.commands import run

REFUSAL = (400, {"error": {"code": "no_such_adapter", "message": "no such adapter"}}, {})


@pytest.fixture
def engine():
  with commands.engine() as made:
    yield made


def test_planned_scored_and_unscored_are_told_apart(tmp_path, engine):
  suite = tmp_path / "suite"
  invented.make_suite(suite, 1)
  engine.script = ["done", "done", *[REFUSAL] * 100]
  flags = dict(endpoint=engine.url, concurrency=1)
  done, summary = run(tmp_path / "run", suite, **flags)
  assert done.returncode == 0, done.stderr
  counts = [summary[k] for k in ("planned", "scored", "truncated", "unscored")]
  assert counts == [5, 2, 0, 3]
  assert sum(summary["by_cause"]["unscored"].values()) == 3
  assert sum(f["planned"] for f in summary["families"].values()) == 5
  assert "5 planned = 2 scored + 0 truncated + 3 unscored" in done.stdout
  lost = [f for f in summary["families"].values() if f["unscored"]]
  assert len(lost) == 3 and all(f["mean"] is None for f in lost)

  strict, _ = run(tmp_path / "run", suite, strict=True, **flags)
  assert strict.returncode == 1
  assert "3 of 5 attempts are unscored" in strict.stderr
  assert json.loads((tmp_path / "run" / "summary.json").read_text())["unscored"] == 3
