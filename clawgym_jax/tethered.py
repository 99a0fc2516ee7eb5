"""Runs a module as a program that its parent's death interrupts.

  python -m clawgym_jax.tethered PARENT_PID MODULE [FLAGS]

On Linux the kernel sends it SIGINT when the parent ends, kill -9 included, so
it saves what it has and goes. Until the module's own `main` runs there is
nothing to save, and it goes at once. It also stops on SIGINT where a shell
started everything with that signal ignored. `command` is what a parent starts.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1
_MARK = "CLAWGYM_TETHERED_TO"


def command(module: str, **flags: object) -> list[str]:
  """The command line that runs `module` as a child tethered to this process."""
  options = [f"--{name}={value}" for name, value in flags.items()]
  return [
      sys.executable, "-m", "clawgym_jax.tethered", str(os.getpid()), module, *options
  ]  # fmt: skip


def tie(parent: int, number: int) -> None:
  """The kernel sends this process the signal `number` when process `parent` ends.

  Where it has ended already this process goes at once. On other systems than
  Linux that is all.
  """
  if sys.platform == "linux":
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
  if os.getppid() != parent:
    sys.exit("the parent is gone")


def is_child() -> bool:
  """Whether a parent that waits for this process says how it ended."""
  return os.environ.get(_MARK) == str(os.getppid())


def main() -> None:
  parent, module = int(sys.argv.pop(1)), sys.argv.pop(1)
  # An exception could be lost while modules are loaded, and jax's load for seconds.
  for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os._exit(128 + number))
  os.environ[_MARK] = str(parent)
  tie(parent, signal.SIGINT)
  runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
  main()
