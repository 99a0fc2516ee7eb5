"""Work beside the records: files moved, settings changed, messages sent.

A chore is a function from a setting to a `Part`, or None where it finds
nothing to do. Its paths come from words that the setting gives only once, so
chores and records never meet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from data_gen.compose.part import Part
from data_gen.compose.setting import Setting
from data_gen.draft import edit_call, exec_call, read_call


@dataclass(frozen=True)
class Chore:
  """A registered chore; `atomic` names the taxonomy's operation."""

  name: str
  atomic: str
  make: Callable[[Setting], Part | None]


CHORES: dict[str, Chore] = {}


def chore(atomic: str) -> Callable:
  """Registers the decorated function under its name."""

  def register(make: Callable[[Setting], Part | None]) -> Callable:
    CHORES[make.__name__] = Chore(make.__name__, atomic, make)
    return make

  return register


@chore("configuration")
def ini_value(setting: Setting) -> Part:
  service, key = setting.word("service"), setting.word("key")
  others = setting.words("key", 3)
  path = f"config/{service}.ini"
  new = str(setting.number(10, 900))
  values = {k: str(setting.integer(1, 900)) for k in others}
  values[key] = old = str(setting.integer(10, 900))
  names = sorted(values)
  lines = [f"[{service}]", *(f"{name} = {values[name]}" for name in names)]
  done = [f"{key} = {new}" if line == f"{key} = {old}" else line for line in lines]
  return Part(
      said=f"Set {key} to {new} in {path} and leave its other settings alone.",
      calls=[
          read_call(path),
          exec_call(f"sed -i 's/^{key} = .*/{key} = {new}/' {path}"),
          exec_call(f"cat {path}"),
      ],
      workspace={path: ("\n".join(lines) + "\n").encode()},
      deliverables={"setting": {"kind": "lines", "path": path, "lines": done}},
      done=f"{key} is {new} in {path}",
      changed=frozenset({path}),
  )


@chore("file organisation")
def sort_files(setting: Setting) -> Part:
  """Files of one kind go to a folder of their own."""
  folder, target = f"inbox/{setting.word('topic')}", f"sorted/{setting.word('topic')}"
  suffix = setting.word("ext")
  other = setting.word("ext")
  stems = setting.words("item", 6)
  files = {
      f"{folder}/{stem}.{suffix if number < 3 else other}": (
          f"{stem} {setting.integer(100, 900)}\n".encode()
      )
      for number, stem in enumerate(stems)
  }
  moved = [p for p in files if p.endswith("." + suffix)]
  return Part(
      said=f"Move every .{suffix} file from {folder} to {target}; the others stay.",
      calls=[
          exec_call(f"ls {folder}"),
          exec_call(f"mkdir -p {target} && mv {folder}/*.{suffix} {target}/"),
          exec_call(f"ls {folder} {target}"),
      ],
      workspace=files,
      deliverables={
          "moved": {
              "kind": "moved",
              "files": {
                  f"{target}/{p.rpartition('/')[2]}": {"from": p, "text": files[p].decode()}
                  for p in moved
              },
          }
      },
      done=f"the .{suffix} files are in {target}",
      changed=frozenset(moved),
  )
