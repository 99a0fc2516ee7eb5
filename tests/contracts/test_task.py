"""A task in hand is whole; what is wrong with another one is named."""

import json

import pytest

from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.contracts.task import (
    Reference,
    SolutionCall,
    Task,
    UserTurn,
    content_hash,
    intact,
    list_tasks,
    load_task,
    save_task,
)

CHECK = b"def grade(workspace, final_message, transcript):\n  return {'ok': 1.0}\n"


CALL = SolutionCall("exec", {"command": "wc -l a.txt"})


def saved(directory, fallen=(), **changes):
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
      turns=[Reference([CALL], "Done.")] * (1 + len(changes.get("followups", ()))),
      fallen=fallen,
  )


def test_round_trip(tmp_path):
  task = saved(tmp_path / "t1", persona={"name": "Ada"})
  again = load_task(tmp_path / "t1")
  assert again == task and again.persona == {"name": "Ada"}
  assert again.reference() == (Reference([CALL], "Done."),)
  assert again.fallen() == []
  assert (again.workspace / "sub" / "b.txt").read_bytes() == b""
  assert list_tasks(tmp_path) == [tmp_path / "t1"]


def test_a_workspace_that_no_sandbox_holds_is_refused(tmp_path):
  folder = saved(tmp_path / "t1").workspace
  for number in range(8188):
    (folder / str(number)).touch()
  load_task(tmp_path / "t1")
  (folder / "more").mkdir()
  with pytest.raises(RecordError, match="8192 files and folders; a sandbox holds 8191"):
    load_task(tmp_path / "t1")
  (folder / "more").rmdir()
  (folder / "0").write_bytes(bytes((64 << 20) - 4096))
  load_task(tmp_path / "t1")
  (folder / "1").write_bytes(b"1")
  with pytest.raises(RecordError, match="takes 67112960 bytes"):
    load_task(tmp_path / "t1")


def test_the_hash_covers_every_file_and_the_record(tmp_path):
  hashes = {saved(tmp_path / "a").provenance["content_hash"]}
  hashes.add(saved(tmp_path / "b").provenance["content_hash"])
  assert len(hashes) == 1
  hashes.add(saved(tmp_path / "c", difficulty=2).provenance["content_hash"])
  assert len(hashes) == 2
  task = load_task(tmp_path / "a")
  assert intact(task)
  (tmp_path / "a" / "checks" / "check.py").write_bytes(CHECK + b"#")
  assert not intact(task)
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
        ({"hazard": "fire"}, "hazard 'fire' is not in"),
        ({"hazard": "secret"}, "needs the calls that fall for it"),
        ({"followups": ["Go on."]}, "followups must be of type tuple"),
        ({"followups": [{"text": 3}]}, r"followups\[0\].text must be of type str"),
        ({"followups": [{"text": "a", "fresh": 1}]}, "fresh must be of type bool"),
        ({"followups": [{"fresh": True}]}, "text"),
        ({"followups": [{"text": "a", "late": True}]}, "late"),
        ({"followups": [{"text": " "}]}, "a turn of followups is empty"),
        ({"followups": [{"text": str(i)} for i in range(5)]}, "5 followups are more"),
        ({"followups": [{"text": "a"}, {"text": "a "}]}, "two turns .* are the same"),
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


def test_the_user_may_speak_again(tmp_path):
  later = (UserTurn("And those of b.txt."), UserTurn("Once more.", fresh=True))
  task = saved(tmp_path / "t", followups=later)
  assert load_task(tmp_path / "t") == task and task.followups == later
  assert [turn.fresh for turn in task.user_turns] == [True, False, True]
  assert [r.final_message for r in task.reference()] == ["Done."] * 3
  path = tmp_path / "t" / "solution" / "calls.json"
  solution = json.loads(path.read_text())
  path.write_text(json.dumps({**solution, "turns": solution["turns"][:2]}))
  with pytest.raises(RecordError, match="2 turns are solved of 3"):
    task.reference()


def test_a_hazard_has_calls_that_fall_for_it(tmp_path):
  task = saved(tmp_path / "t", hazard="secret", fallen=[CALL])
  assert task.fallen() == [CALL] and load_task(tmp_path / "t").hazard == "secret"
  for hazard, fallen, message in (
      ("secret", [], "needs the calls"), ("none", [CALL], "there is none"),
  ):  # fmt: skip
    with pytest.raises(RecordError, match=message):
      saved(tmp_path / "u", hazard=hazard, fallen=fallen)
    assert not (tmp_path / "u").exists()


@pytest.mark.parametrize(
    "solution",
    [
        [],
        {"turns": [{"calls": [], "final_message": ""}]},
        {"turns": [{"calls": []}], "fallen": []},
        {"turns": {}, "fallen": []},
        {"turns": [{"calls": [{"name": "exec"}], "final_message": ""}], "fallen": []},
        {"turns": [{"calls": [], "final_message": ""}], "fallen": ["exec"]},
        {"calls": [], "final_message": ""},
    ],
)
def test_a_broken_solution_is_named(tmp_path, solution):
  task = saved(tmp_path / "t")
  (task.root / "solution" / "calls.json").write_text(json.dumps(solution))
  with pytest.raises(RecordError, match="needs turns, a list of"):
    task.reference()


def test_files_stay_inside_the_task(tmp_path):
  for name in ("../x", "/etc/x", ""):
    with pytest.raises(RecordError, match="leaves the task"):
      save_task(
          tmp_path,
          Task("t", "i", "f", "train", "c", ("o",)),
          workspace={name: b""},
          checks={},
          turns=[Reference([], "")],
      )
