"""ClawGym's files of one task a line: the set (a), and skill2task (b).

Both hold text only. In (a) the reward package is among the input files, below
reward/; in (b) it has a list of its own. `rules` of (a) is `rule` in what its
own converter reads: both are read, and a line goes back as it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.files import write_atomic
from data_gen.convert.contents import Contents
from data_gen.convert.foreign import Foreign, abroad, imported
from data_gen.convert.losses import LeftOut, Losses
from data_gen.convert.unseen import count_unseen
from sandbox.backends.base import Files

SET, SKILL = "clawgym_jsonl", "skill2task_jsonl"
_HOOK = "python3 reward/test.py /root/.openclaw/workspace"
_UNSEEN = ("clock", "limits", "solution", "hazard")

Line = dict[str, Any]


def write(form: str, target: Path, tasks: Iterable[Contents], losses: Losses) -> int:
  make = _set_line if form == SET else _skill_line
  count = 0

  def lines() -> Iterator[str]:
    nonlocal count
    for contents in tasks:
      try:
        task = abroad(contents, "test.py", _HOOK)
        yield json_text.dump(make(task)) + "\n"
      except LeftOut as cause:
        losses.leave_out(contents.name, str(cause))
        continue
      count_unseen(contents, _UNSEEN, losses)
      count += 1

  write_atomic(target, lines())
  return count


def read(form: str, source: Path, losses: Losses, split: str) -> Iterator[Contents]:
  task_of = _of_set if form == SET else _of_skill
  with open(source, "rb") as file:
    for number, raw in enumerate(file, 1):
      if not raw.strip():
        continue
      try:
        yield imported(task_of(_parsed(raw), f"task_{number:05d}"), split, losses)
      except LeftOut as cause:
        losses.leave_out(f"line {number}", str(cause))


def _parsed(raw: bytes) -> Line:
  try:
    line = json_text.parse(raw)
  except ValueError:
    raise LeftOut("its line is no JSON") from None
  if not isinstance(line, dict) or not isinstance(line.get("prompt"), str):
    raise LeftOut("its line has no prompt")
  return line


def _set_line(task: Foreign) -> Line:
  if task.form == SET:
    return _as_it_came(task, "input_files")
  front = f"---\nid: {task.id}\ncategory: {task.category}\n---\n"
  reward = {f"reward/{path}": data for path, data in task.reward.items()}
  return {
      "prompt": task.prompt,
      "hook_code": task.command,
      "hook_lang": "bash",
      "rules": task.rules or None,
      "category": task.category,
      "macro_category": task.macro_category,
      "action": list(task.actions),
      "input_files": _entries({**task.inputs, **reward}),
      "origin_template": front,
  }


def _of_set(line: Line, otherwise: str) -> Foreign:
  files = _files(line, "input_files")
  inputs = {p: data for p, data in files.items() if not p.startswith("reward/")}
  reward = {p[7:]: data for p, data in files.items() if p.startswith("reward/")}
  front = [part.strip() for part in str(line.get("origin_template")).splitlines()]
  ids = [part[3:].strip() for part in front if part.startswith("id:")]
  return _foreign(SET, line, inputs, reward, (ids or [""])[0] or otherwise)


def _skill_line(task: Foreign) -> Line:
  if task.form == SKILL:
    return _as_it_came(task, "input_files", "reward_files")
  reward = {f"reward/{path}": data for path, data in task.reward.items()}
  return {
      "task_id": task.id,
      "prompt": task.prompt,
      "validation_mode": "hybrid" if task.rules else "code",
      "reward_aggregation": "mean",
      "rubrics": task.rules or [],
      "hook_code": task.command,
      "hook_lang": "bash",
      "input_files": _entries(task.inputs),
      "reward_files": _entries(reward),
  }


def _of_skill(line: Line, otherwise: str) -> Foreign:
  files = _files(line, "reward_files")
  reward = {path.removeprefix("reward/"): data for path, data in files.items()}
  inputs = _files(line, "input_files")
  return _foreign(SKILL, line, inputs, reward, str(line.get("task_id") or otherwise))


def _foreign(
    form: str, line: Line, inputs: Files, reward: Files, task_id: str
) -> Foreign:
  """`fields` keeps the line in its order, less what the task holds elsewhere."""
  fields = {k: "" if k in ("prompt", "hook_code") else v for k, v in line.items()}
  for name in ("input_files", "reward_files"):
    if name in line:
      fields[name] = [
          {k: "" if k == "content" else v for k, v in entry.items()}
          for entry in line[name] or []
      ]
  actions = line.get("action") or ()
  return Foreign(
      task_id,
      line["prompt"],
      inputs,
      reward,
      str(line.get("hook_code") or ""),
      category=str(line.get("category") or ""),
      macro_category=str(line.get("macro_category") or ""),
      actions=tuple(map(str, actions if isinstance(actions, list) else [actions])),
      rules=line.get("rules") or line.get("rule") or line.get("rubrics") or None,
      fields=fields,
      form=form,
  )


def _as_it_came(task: Foreign, *lists: str) -> Line:
  line = {**task.fields, "prompt": task.prompt, "hook_code": task.command}
  held = {f"reward/{path}": data for path, data in task.reward.items()}
  bare = task.reward if task.form == SKILL else {}
  contents = {**bare, **task.inputs, **held}
  for name in lists:
    source = contents if name == "input_files" else {**bare, **held}
    line[name] = [
        {**entry, "content": _text(source[_path(entry)])}
        for entry in task.fields.get(name, ())
    ]
  return line


def _entries(files: Files) -> list[dict[str, str]]:
  return [
      {
          "file_path": path,
          "file_format": PurePosixPath(path).suffix.removeprefix("."),
          "content": _text(data),
      }
      for path, data in files.items()
  ]


def _files(line: Line, name: str) -> Files:
  entries = line.get(name) or []
  if not isinstance(entries, list):
    raise LeftOut(f"its {name} is no list")
  files = {}
  for entry in entries:
    if not isinstance(entry, dict) or not isinstance(entry.get("file_path"), str):
      raise LeftOut(f"an entry of its {name} has no file_path")
    if not isinstance(entry.get("content"), str):
      raise LeftOut(f"an entry of its {name} has no content that is text")
    files[_path(entry)] = entry["content"].encode(errors="surrogatepass")
  return files


def _path(entry: dict[str, str]) -> str:
  return str(PurePosixPath(entry["file_path"]))


def _text(data: bytes) -> str:
  try:
    return data.decode(errors="strict")
  except UnicodeDecodeError:
    raise LeftOut("it has a file that is no text") from None


write_set, write_skill = partial(write, SET), partial(write, SKILL)
read_set, read_skill = partial(read, SET), partial(read, SKILL)
