"""A task as ClawGym's formats have it, made of one of ours and the other way.

One of ours travels with clawgym_jax.json beside its checks: what the format
has no place for. Coming back, it is the same task, to the byte, if its content
hash says so. Any other is imported: its reward package stays as it came, in
checks/reward/, and `sandbox.verify.verify` judges it by `verify_clawgym`, with
the workspace as the agent was given it as `untouched`.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import RecordError, require
from clawgym_jax.contracts.files import inside
from clawgym_jax.contracts.rubric import rubric_record
from data_gen.convert import reward_program
from data_gen.convert.contents import Contents, seal
from data_gen.convert.losses import LeftOut, Losses
from data_gen.convert.rules import criteria
from sandbox.backends.base import Files
from sandbox.verify.imported import CHECK, PACKAGE

REST = "clawgym_jax.json"
GENERATOR = "imported"


@dataclass(frozen=True)
class Foreign:
  """A task of a ClawGym format.

  Attributes:
    reward: the reward package, by paths below reward/.
    command: what runs it; `reward/` in it is the package's place.
    rules: criteria for a judge, as they came.
    fields: what else the format says of the task, kept as it came.
    form: the format it came in, "" for one of ours.
  """

  id: str
  prompt: str
  inputs: Files
  reward: Files
  command: str
  category: str = ""
  macro_category: str = ""
  actions: tuple[str, ...] = ()
  rules: list[Any] | None = None
  fields: dict[str, Any] = field(default_factory=dict)
  form: str = ""


def abroad(contents: Contents, program: str, command: str) -> Foreign:
  """One of ours, or an imported one as it came; `LeftOut` if it can't be there.

  `program` is the file name of what grades one of ours, `command` runs it.
  """
  record = contents.record
  require_plain(record)
  given = record.get("provenance", {})
  told = {
      "id": record["id"],
      "prompt": record["instruction"],
      "inputs": contents.below("workspace"),
      "category": record["category"],
      "macro_category": record.get("macro_category", ""),
      "actions": tuple(record["operations"]),
  }
  if given.get("generator") == GENERATOR and "checks/reward.json" in contents.files:
    package = json_text.parse(contents.files["checks/reward.json"])
    return Foreign(
        **told,
        reward=contents.below("checks/reward"),
        command=package["command"],
        rules=package["rules"],
        fields=package["fields"],
        form=package["form"],
    )
  rubric = contents.files.get("rubric.json")
  return Foreign(
      **told,
      reward={program: program_file(), **grading(contents)},
      command=command,
      rules=json_text.parse(rubric) if rubric else None,
  )


def require_plain(record: dict[str, Any]) -> None:
  """`LeftOut` for a task that needs what no other harness has."""
  if record.get("followups"):
    raise LeftOut("the user speaks several times in it, and there only once")
  if record.get("requires"):
    raise LeftOut(f"it requires {', '.join(record['requires'])}")


def program_file() -> bytes:
  return Path(reward_program.__file__).read_bytes()


def grading(contents: Contents) -> Files:
  """The checks of one of ours, and the rest of it that `home` needs."""
  shown = ("workspace/", "checks/")
  rest = {
      path: _said(data)
      for path, data in contents.files.items()
      if not path.startswith(shown) and path != "task.json"
  }
  own = {"name": contents.name, "task": contents.record, "rest": rest}
  checks = {f"checks/{p}": data for p, data in contents.below("checks").items()}
  return {**checks, REST: (json_text.dump(own, indent=1) + "\n").encode()}


def came_home(inputs: Files, reward: Files, losses: Losses) -> Contents | None:
  """One of ours, as it left; None if it is none or was changed on the way."""
  if REST not in reward:
    return None
  try:
    own = json_text.parse(reward[REST])
    name, record = own["name"], own["task"]
    files = {f"workspace/{p}": data for p, data in inputs.items()}
    files |= {p: data for p, data in _under("checks", reward).items()}
    files |= {path: _meant(said) for path, said in own["rest"].items()}
    sealed = seal(name, record, files)
  except (ValueError, KeyError, TypeError, AttributeError):
    sealed = None
  if sealed and sealed.record["provenance"] == record["provenance"]:
    return sealed
  losses.parts["the way back to one of ours: it was changed there"] += 1
  return None


def imported(task: Foreign, split: str, losses: Losses) -> Contents:
  """Ours again, or a task with the foreign reward package; `LeftOut` if neither."""
  ours = came_home(task.inputs, task.reward, losses)
  if ours:
    return ours
  for path in (*task.inputs, *task.reward):
    if not inside(path):
      raise LeftOut(f"a file of it leaves its folder: {path!r}")
  if not task.reward or not task.prompt.strip():
    raise LeftOut("it has no prompt or no reward package")
  package = {
      "command": task.command,
      "payload": {
          "task_id": task.id,
          "user_query": task.prompt,
          "metadata": task.fields.get("metadata", {}),
      },
      "rules": task.rules,
      "fields": task.fields,
      "form": task.form,
  }
  files = {f"workspace/{p}": data for p, data in task.inputs.items()}
  files |= {f"checks/reward/{p}": data for p, data in task.reward.items()}
  files["checks/check.py"] = CHECK
  files[PACKAGE] = (json_text.dump(package, indent=1) + "\n").encode()
  rubric = criteria(task.rules, losses)
  if rubric:
    files["rubric.json"] = (
        json_text.dump(rubric_record(rubric), indent=1) + "\n"
    ).encode()
  record = {
      "id": task.id,
      "instruction": task.prompt,
      "family": f"imported-{task.form}",
      "split": split,
      "category": task.category,
      "macro_category": task.macro_category,
      "operations": list(task.actions) or ["unknown"],
      "limits": {"turns": 50, "seconds": 900.0},
      "provenance": {"generator": GENERATOR, "format": task.form},
  }
  try:
    return seal(file_name(task.id), record, files)
  except (RecordError, OSError) as error:
    raise LeftOut(f"it is no sound task: {_cause(error)}") from None


def file_name(task_id: str) -> str:
  """A directory's name for any id."""
  name = re.sub(r"[^\w.-]+", "_", task_id).strip("._")
  require(bool(name), f"{task_id!r} gives no name for a directory")
  return name[:120]


def _cause(error: Exception) -> str:
  """Without the scratch path, so that like causes count as one."""
  return re.sub(r"/\S*/task\b/?", "", str(error))[:120]


def _under(folder: str, files: Files) -> Files:
  return {p: data for p, data in files.items() if p.startswith(f"{folder}/")}


def _said(data: bytes) -> str | dict[str, str]:
  try:
    return data.decode()
  except UnicodeDecodeError:
    return {"base64": base64.b64encode(data).decode()}


def _meant(said: str | dict[str, str]) -> bytes:
  if isinstance(said, str):
    return said.encode()
  return base64.b64decode(said["base64"])
