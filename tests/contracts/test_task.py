"""A task in hand is whole; what is wrong with another one is named."""

import json

import pytest

from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.contracts.task import (
    SolutionCall,
    Task,
    content_hash,
    list_tasks,
    load_task,
    save_task,
)

CHECK = b"def grade(workspace, final_message, transcript):\n  return {'ok': 1.0}\n"


def saved(directory, **changes):
  task = Task(
      id="t1",
      instruction="Count the lines of a.txt.",
      family="count",
      split="train",
      category="office",
      operations=("text",),
      **changes,
  )
  return save_task(
      directory,
      task,
      workspace={"a.txt": b"1\n", "sub/b.txt": b""},
      checks={"check.py": CHECK},
      calls=[SolutionCall("exec", {"command": "wc -l a.txt"})],
      final_message="Done.",
  )


def test_round_trip(tmp_path):
  task = saved(tmp_path / "t1", persona={"name": "Ada"})
  again = load_task(tmp_path / "t1")
  assert again == task and again.persona == {"name": "Ada"}
  assert again.solution() == [SolutionCall("exec", {"command": "wc -l a.txt"})]
  assert again.final_message() == "Done."
  assert (again.workspace / "sub" / "b.txt").read_bytes() == b""
  assert list_tasks(tmp_path) == [tmp_path / "t1"]


def test_the_hash_covers_every_file_and_the_record(tmp_path):
  hashes = {saved(tmp_path / "a").provenance["content_hash"]}
  hashes.add(saved(tmp_path / "b").provenance["content_hash"])
  assert len(hashes) == 1
  hashes.add(saved(tmp_path / "c", difficulty=2).provenance["content_hash"])
  assert len(hashes) == 2
  (tmp_path / "a" / "checks" / "check.py").write_bytes(CHECK + b"#")
  record = json.loads((tmp_path / "a" / "task.json").read_text())
  assert content_hash(tmp_path / "a", record) not in hashes


@pytest.mark.parametrize(
    "change, message",
    [
        ({"split": "test"}, "split 'test'"),
        ({"instruction": " "}, "instruction is empty"),
        ({"operations": []}, "no operations"),
        ({"limits": {"turns": 0}}, "limits.turns"),
        ({"limits": {"tuns": 3}}, "tuns"),
        ({"colour": 1}, "unknown fields: colour"),
        ({"check_weights": {"a": "much"}}, "check_weights must be of type dict"),
        ({"check_weights": [1]}, "check_weights"),
        ({"skills": "csv"}, "skills must be of type tuple"),
        ({"difficulty": True}, "difficulty must be of type int, not true"),
        ({"instruction": 3}, "instruction must be of type str, not 3"),
        ({"limits": {"turns": "3"}}, "limits.turns must be of type int"),
        ({"limits": 3}, "limits must be"),
        ({"family": None, "id": None}, None),
    ],
)
def test_a_broken_record_is_named(tmp_path, change, message):
  saved(tmp_path)
  record = json.loads((tmp_path / "task.json").read_text())
  if message is None:  # a required field is absent
    for name in change:
      del record[name]
    message = "family"
  else:
    record.update(change)
  (tmp_path / "task.json").write_text(json.dumps(record))
  with pytest.raises(RecordError, match=message):
    load_task(tmp_path)


def test_missing_parts_are_named(tmp_path):
  with pytest.raises(RecordError, match="no task.json"):
    load_task(tmp_path)
  saved(tmp_path)
  (tmp_path / "checks" / "check.py").unlink()
  with pytest.raises(RecordError, match="no checks/check.py"):
    load_task(tmp_path)
  (tmp_path / "task.json").write_text("{")
  with pytest.raises(RecordError, match="not JSON"):
    load_task(tmp_path)


def test_files_stay_inside_the_task(tmp_path):
  for name in ("../x", "/etc/x", ""):
    with pytest.raises(RecordError, match="leaves the task"):
      save_task(
          tmp_path,
          Task("t", "i", "f", "train", "c", ("o",)),
          workspace={name: b""},
          checks={},
          calls=[],
          final_message="",
      )
