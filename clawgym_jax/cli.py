"""What every command of the project shares: errors, progress, the last line.

A command is `main()` passed to `run`. A `UserError` is printed alone and ends
with status 1; Ctrl-C ends with status 130 and SIGTERM with 143, after the
command's own `finally` blocks ran, and the same command resumes. With --json
the last line of standard output is one JSON object.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import sys
import types
from collections.abc import Callable
from typing import Any

import tqdm
from absl import app, flags, logging

from clawgym_jax import tethered
from clawgym_jax.contracts.errors import RecordError, UserError

_JSON = flags.DEFINE_bool(
    "json",
    False,
    "Print one JSON summary line last.",
    module_name=sys.argv[0],  # so that --help of every command shows it
)


_MENDABLE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "allow larger files (ulimit -f)",
    errno.ENOENT: "give a path that exists",
    errno.EEXIST: "give the path of a folder",
    errno.EISDIR: "give the path of a file",
    errno.ENOTDIR: "give a path whose parents are folders",
    errno.EACCES: "allow access, or give another path,",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.ELOOP: "give a path without a circle of links",
    errno.EROFS: "give a path that can be written",
}


def run(main: Callable[[], dict[str, Any] | None]) -> None:
  """Parses flags, runs `main` and prints its summary; never returns."""

  interrupts = _Interrupts()

  def body(argv: list[str]) -> None:
    interrupts.listen()
    if not flags.FLAGS["verbosity"].present:
      logging.set_verbosity(logging.ERROR)  # Orbax tells of every file and array
    if len(argv) > 1:
      _fail(f"unexpected argument {argv[1]!r}: every option is a --flag=value")
    try:
      summary = main() or {}
    except (UserError, RecordError) as error:
      _fail(str(error))
    except OSError as error:
      if error.errno not in _MENDABLE:
        raise
      _fail(f"{error}: {_MENDABLE[error.errno]} and run the same command again")
    except KeyboardInterrupt:
      if not tethered.is_child():  # else its parent says so
        print("\nstopped; the same command continues", file=sys.stderr)
      sys.stdout.flush()
      os._exit(interrupts.status)  # pools of workers must not delay the answer
    if _JSON.value:
      print(json.dumps(summary, allow_nan=False), flush=True)

  try:
    app.run(body)
  except SystemExit as end:
    asked = {"--help", "-help", "-h", "--helpfull", "-helpfull", "--helpshort"}
    sys.exit(0 if end.code == 1 and asked & set(sys.argv) else end.code)


class _Interrupts:
  """Answers SIGINT and SIGTERM with KeyboardInterrupt, wherever they arrive.

  `status` is what a shell expects of a program that the signal ended.
  """

  def __init__(self) -> None:
    self.status = 128 + signal.SIGINT

  def listen(self) -> None:
    # A shell starts background programs with SIGINT ignored; they stop on it too.
    # Where nothing can swallow it Python's own handler stays: asyncio puts its
    # own, which ends tasks in order, in the place of that one alone.
    handler = self._answer if gc.callbacks else signal.default_int_handler
    signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGTERM, self._terminate)

  def _terminate(self, number: int, frame: types.FrameType | None) -> None:
    self.status = 128 + number
    signal.raise_signal(signal.SIGINT)

  def _answer(self, number: int, frame: types.FrameType | None) -> None:
    swallowing = {getattr(call, "__code__", None) for call in gc.callbacks}
    while frame is not None:
      if frame.f_code in swallowing:
        # Python drops what is raised in there (jax has such a callback): again
        # in a moment.
        signal.signal(signal.SIGALRM, self._answer)
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        return
      frame = frame.f_back
    raise KeyboardInterrupt


def progress(total: int, what: str, *, done: int = 0, unit: str = "it") -> tqdm.tqdm:
  """A progress bar on standard error with the time left; close it when done.

  Where standard error is not a terminal it writes a line every 15 seconds.
  """
  interactive = sys.stderr.isatty()
  return tqdm.tqdm(
      total=total,
      initial=done,
      desc=what,
      unit=unit,
      dynamic_ncols=interactive,
      ascii=not interactive,
      mininterval=0.2 if interactive else 15.0,
      file=sys.stderr,
  )


def _fail(message: str) -> None:
  print(f"error: {message}", file=sys.stderr)
  sys.exit(1)
