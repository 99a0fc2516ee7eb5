"""What the audit reads of a task and a set: provenance, leaks, likeness, figures."""

from __future__ import annotations

import json
from pathlib import Path

from clawgym_jax.contracts.task import Reference, SolutionCall, Task, save_task
from data_gen.audit import near, reading, report
from data_gen.audit.provenance import invented, templates, words
from sandbox.backends.base import gather


def _task(folder: Path, **given) -> Task:
  """A foreign task that wants out.csv."""
  record = dict(
      id="t", instruction="Copy the rows of in.csv with 7 to out.csv.", family="f",
      split="train", category="c", operations=("x",),
  )  # fmt: skip
  files = dict(
      workspace={"in.csv": b"id,name\n7,ann\n8,bob\n"},
      checks={"check.py": b"def grade(w, f, t):\n  return {'a': 0.0}\n"},
      turns=_solved("grep 7 in.csv > out.csv"),
  )
  for name, value in given.items():
    (files if name in files else record)[name] = value
  return save_task(folder, Task(**record), **files)


def _solved(command: str) -> list[Reference]:
  return [Reference([SolutionCall("exec", {"command": command})], "Done.")]


def _transcript(*steps: tuple[str, str]) -> list[dict]:
  said = [{"role": "user", "content": "Report what file a-17.csv says of 2026."}]
  for command, result in steps:
    arguments = json.dumps({"command": command})
    said.append({"role": "assistant", "content": "", "tool_calls": [
        {"function": {"name": "exec", "arguments": arguments}}
    ]})  # fmt: skip
    said.append({"role": "tool", "content": result})
  return said


def test_a_word_of_a_call_comes_from_somewhere(tmp_path):
  """Of our own calls every word is judged, of others' those that are literals."""
  for name, made_by in (("f", {}), ("o", {"generator": "procedural-9"})):
    task = _task(tmp_path / name, provenance=made_by)
    seen = _transcript(("cat a-17.csv", "ann,1234"), ("echo 1234 > a-17.csv", ""))
    assert invented(task, seen) == []
    unseen = _transcript(("echo 1234 > a-17.csv", ""), ("cat a-17.csv", "ann,1234"))
    assert invented(task, unseen) == ["1234"]
    hidden = _transcript(("echo zanzibar > a-17.csv", ""))
    assert invented(task, hidden) == ["zanzibar"]
  assert words("Total_7: ÄB-c") == ["total", "7", "äb", "c"]
  assert {"json", "rows", "print"} <= templates() and "zanzibar" not in templates()


def test_the_vocabulary_holds_no_words_that_name_things():
  """Or a solution could know what stands in the files."""
  from data_gen.pools import POOLS

  people = {w.lower() for w in POOLS["first"][0]}
  assert len(people & templates()) < len(people) / 20


def test_leaks_are_found(tmp_path):
  long = "grep 7 in.csv > out.csv && echo all the rows that were asked for are there"
  given = {"in.csv": b"7\n", "notes.txt": f"hint: {long}\n".encode()}
  task = _task(tmp_path / "t", turns=_solved(long), workspace=given)
  (cause,) = reading.faults(task, gather(task.workspace), {})
  assert cause == "leak: notes.txt holds a line of the solution"
  source = b"def grade(w, f, t):\n  return {'a': 0.0}\n"
  spoken = {"in.csv": b"7\n", "a.md": b"see checks/check.py", "copy.py": source}
  task = _task(tmp_path / "u", workspace=spoken)
  causes = reading.faults(task, gather(task.workspace), {})
  assert "leak: a.md speaks of checks/check.py" in causes
  assert any("copy.py is one of the checks' files" in c for c in causes)
  sound = _task(tmp_path / "s")
  assert reading.faults(sound, gather(sound.workspace), {}) == []


def test_an_answer_that_lies_about_is_found(tmp_path):
  """What is made, or expected, in a file that the solution does not look at; in its
  inputs, and in what the user says, it may well stand."""
  rows = b"".join(b"%d,ann of the seventh street\n" % n for n in range(3))
  text = "Ann has come to the seventh street, as she said she would in the summer."
  expected = json.dumps({"deliverables": {"a": {"path": "out.csv", "value": text}}})
  given = {"in.csv": b"id,name\n" + rows}

  def found(name: str, made: bytes, more: dict[str, bytes], **fields) -> list[str]:
    checks = {"check.py": b"", "expected.json": expected.encode()}
    task = _task(tmp_path / name, workspace={**given, **more}, checks=checks, **fields)
    initial = gather(task.workspace)
    causes = reading.faults(task, initial, {**initial, "out.csv": made})
    return [cause for cause in causes if cause.startswith("leak: ")]

  answer = text.encode()
  says = f"Copy the rows of in.csv with 7 to out.csv, then add: {text}"
  assert found("sound", rows, {"old.csv": b"8,bob\n"}) == []
  assert found("an input", rows, {"old.csv": rows}) == []
  assert found("dictated", answer, {"old.txt": answer}, instruction=says) == []
  stored = {"work/store.git/objects/00/1": rows[::-1]}
  merges = _solved("git -C work/store.git show x:a.csv > out.csv")
  assert found("a repository", rows[::-1], stored, turns=merges) == []
  assert found("another's history", rows[::-1], stored) != []
  (cause,) = found("made", rows[::-1], {"old.csv": b"x\n" + rows[::-1]})
  assert cause.startswith("leak: old.csv, which the solution does not need, holds all")
  (cause,) = found("expected", rows, {"data.json": json.dumps([text]).encode()})
  assert cause.endswith("does not need, holds what checks/expected.json expects")


def test_what_is_expected_must_be_known(tmp_path):
  def expecting(name: str, **spec) -> list[str]:
    wanted = json.dumps({"deliverables": {"a": spec}}).encode()
    checks = {"check.py": b"", "expected.json": wanted}
    task = _task(tmp_path / name, checks=checks)
    initial = gather(task.workspace)
    return reading.faults(task, initial, {**initial, "out.csv": b"Grand total\n"})

  assert expecting("known", path="out.csv", rows=[["ann", "7"]]) == []
  assert expecting("made", path="out.csv", columns=["grand", "total"]) == []
  (cause,) = expecting("path", path="secret.csv", rows=[])
  assert cause == "unsaid: the checks want secret.csv, and nothing says 'secret'"
  (cause,) = expecting("word", path="out.csv", rows=[["zanzibar"]])
  assert cause == "unsaid: the checks expect 'zanzibar', which nothing gives"


def test_alike_requests_are_found_within_a_category():
  text = (
      "Please take the readings of the north station, leave out those below twelve,"
      " and put the mean of each month in report.csv with two columns"
  )
  texts = {
      "a": ("one", text),
      "b": ("one", text.replace("north", "south")),
      "c": ("two", text),
      "d": ("one", "Move every photo of the picnic to albums and rename it by date"),
      "e": ("one", text),
  }
  found = near.nearest(texts)
  assert found["a"] == (0.0, "") and found["c"] == (0.0, "")
  assert 0.6 < found["b"][0] < 0.95 and found["b"][1] == "a"
  assert found["d"][0] < 0.2 and found["e"] == (1.0, "a")
  assert near.nearest({"x": ("two", text)}, {"bench/c": texts["c"]})["x"] == (
      1.0, "bench/c",
  )  # fmt: skip


def test_what_is_like_one_that_does_not_stay_may_stay():
  words = [f"word{n}" for n in range(40)]
  other = ["x", *words[1:]], ["x", *words[1:20], "y", *words[21:]]
  texts = {n: ("one", " ".join(w)) for n, w in zip("abc", (words, *other))}
  assert near.nearest(texts, most=0.85)["c"][1] == "a"
  assert near.nearest(texts, most=1.0)["c"][1] == "b"


def test_the_attack_table_and_the_kill_rate():
  sound = {
      "verdict": "admitted", "attacks": {}, "idle": ["copy_input"], "mutants": 12,
      "survivors": [], "reseeded": True, "causes": [], "nearest": [0.25, "b"],
      "criteria": 3, "meant": [0.5, "b"], "turns": 2, "hazard": "secret",
  }  # fmt: skip
  lax = {
      **sound, "verdict": "rejected", "attacks": {"flood": 0.5}, "idle": [],
      "survivors": ["out.csv: a digit of the last"], "causes": ["flood scores 0.5"],
      "nearest": [0.5, "a"],
  }  # fmt: skip
  broken = {"verdict": "rejected", "causes": ["broken: RecordError: x"]}
  found = report.figures({"a": sound, "b": lax, "c": broken})
  assert found["counts"] == {"admitted": 1, "rejected": 2}
  assert found["causes"] == {"flood scores": 1, "broken": 1}
  assert found["attacks"]["flood"] == {
      "tasks": 2, "mean": 0.25, "highest": 0.5, "above_0": 1, "from_0.3": 1,
      "from_0.5": 1,
  }  # fmt: skip
  assert found["attacks"]["copy_input"]["tasks"] == 1
  edits = found["mutation"]
  assert (edits["admitted"]["kill_rate"], edits["rejected"]["killed"]) == (1.0, 11)
  assert edits["rejected"]["survivors"] == {"a digit of the last": 1}
  assert found["similarity"] == {"median": 0.5, "p99": 0.5, "highest": 0.5}
  assert found["meaning"] == {"median": 0.5, "p99": 0.5, "highest": 0.5}
  shown = report.printed(found)
  assert "flood" in shown and "0.25000" in shown
  assert "admitted: 12 of 12 wrong edits" in shown
  assert "rejected: 11 of 12 wrong edits" in shown
