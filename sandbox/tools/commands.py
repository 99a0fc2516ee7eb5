"""exec: a shell command, waited for or left running as a session.

Without the tool `process` beside it every command is waited for. With it, a
command that outlives `yieldMs` goes on as a session `exec-1`, `exec-2`, …:
where OpenClaw prints a pid and a made-up name, which differ between runs, this
says the number alone. Sessions belong to their sandbox and end with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import shlex
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from sandbox.backends import ExecResult, Sandbox, SandboxError, SandboxLost
from sandbox.tools.call import Call, seconds_of
from sandbox.tools.results import BadCall, shorten

YIELD_MS = 10_000
LOG_CHARS = 200_000

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = re.compile(r"PATH|LD_.*|DYLD_.*", re.IGNORECASE)
_sessions: weakref.WeakKeyDictionary[Sandbox, dict[str, Session]] = (
    weakref.WeakKeyDictionary()
)


@dataclass
class Session:
  """A background command.

  Attributes:
    number: the sandbox's number for it.
    log: what it wrote, less the first `dropped` lines of a long one.
    unread: what no poll has shown yet.
    ending: how it ended, in words; None while it runs.
  """

  name: str
  number: int
  command: str
  pty: bool = False
  log: str = ""
  dropped: int = 0
  unread: str = ""
  ending: str | None = None
  timer: asyncio.Task[None] | None = None

  def add(self, text: str) -> None:
    self.unread = shorten(self.unread + text, LOG_CHARS)
    self.log += text
    if len(self.log) > LOG_CHARS:
      start = len(self.log) - LOG_CHARS
      newline = self.log.find("\n", start)
      cut = start if newline < 0 else newline + 1
      self.dropped += self.log.count("\n", 0, cut)
      self.log = self.log[cut:]

  def end(self, ending: str) -> None:
    self.ending = self.ending or ending
    if self.timer is not None:
      self.timer.cancel()


def sessions(sandbox: Sandbox) -> dict[str, Session]:
  """The sessions of `sandbox` by name, oldest first."""
  return _sessions.setdefault(sandbox, {})


async def execute(call: Call, args: dict[str, Any]) -> str:
  """The output, or which session goes on."""
  command, timeout = _script(args), _timeout(args.get("timeout"))
  seconds = call.seconds if timeout is None else min(call.seconds, timeout)
  if "process" in call.offered:
    return await _session(call, args, command, timeout)
  if args.get("pty"):
    return await _terminal(call, command, seconds)
  result = await call.sandbox.exec(command, seconds)
  return _report(result, seconds)


async def refresh(sandbox: Sandbox, session: Session, wait: float = 0.0) -> None:
  """Takes over what the command wrote and whether it ended."""
  if session.ending is not None:
    return
  try:
    progress = await sandbox.poll(session.number, wait)
  except SandboxError as error:
    if error.code != errno.ESRCH:
      raise
    session.end("has ended, and many others since: how, and what it wrote, is gone")
    return
  session.add(progress.output)
  if progress.exit_code is not None:
    session.end(f"exited with code {progress.exit_code}")


async def _session(
    call: Call, args: dict[str, Any], command: str, timeout: float | None
) -> str:
  """Starts a command, waits `yieldMs` for it, then leaves it running."""
  sandbox, known = call.sandbox, sessions(call.sandbox)
  pty = bool(args.get("pty"))
  number = await sandbox.spawn(command, pty=pty)
  session = Session(f"exec-{number}", number, args["command"], pty)
  asked = args.get("yieldMs")
  wait = min(seconds_of(YIELD_MS if asked is None else asked), call.seconds)
  if timeout is not None:
    wait = min(wait, timeout)
  if args.get("background"):
    wait = 0.0
  if wait > 0:
    async with _ended_if_given_up(sandbox, number):
      await refresh(sandbox, session, wait)
  if session.ending is None and timeout is not None and wait >= timeout:
    await sandbox.kill(number)
    await refresh(sandbox, session, 1.0)
    return f"{_shown(session.log)}\n\n(Command timed out after {timeout:g} seconds)"
  if session.ending is not None:
    text = _shown(session.log)
    ended_well = session.ending == "exited with code 0"
    return text if ended_well else f"{text}\n\n(Command {session.ending})"
  known[session.name] = session
  if timeout is not None:
    session.timer = asyncio.create_task(
        _expire(weakref.ref(sandbox), session, timeout - wait, timeout)
    )
  return (
      f"The command is still running as session {session.name}. Use process to"
      " poll it, read its log, write to it or kill it."
  )


@contextlib.asynccontextmanager
async def _ended_if_given_up(sandbox: Sandbox, number: int) -> AsyncIterator[None]:
  """A call that is cancelled leaves no command behind of which nobody knows."""
  try:
    yield
  except asyncio.CancelledError:
    with contextlib.suppress(SandboxError, SandboxLost):
      await sandbox.kill(number)
    raise


async def _expire(
    box: weakref.ref[Sandbox], session: Session, left: float, timeout: float
) -> None:
  """Kills a session when its time is over."""
  await asyncio.sleep(left)
  sandbox = box()
  if sandbox is None or session.ending is not None:
    return
  with contextlib.suppress(SandboxError, SandboxLost):
    await sandbox.kill(session.number)
    session.add((await sandbox.poll(session.number, 1.0)).output)
  session.timer = None  # it must not cancel itself
  session.end(f"timed out after {timeout:g} seconds")


async def _terminal(call: Call, command: str, seconds: float) -> str:
  """Runs a command on a terminal to its end."""
  number = await call.sandbox.spawn(command, pty=True)
  async with _ended_if_given_up(call.sandbox, number):
    progress = await call.sandbox.poll(number, seconds)
  output, code = progress.output, progress.exit_code
  if code is None:
    await call.sandbox.kill(number)
    last = await call.sandbox.poll(number, 1.0)
    output, code = output + last.output, 137
    return _report(ExecResult(output, code, timed_out=True), seconds)
  return _report(ExecResult(output, code), seconds)


def _report(result: ExecResult, seconds: float) -> str:
  text = _shown(result.output)
  if result.timed_out:
    return f"{text}\n\n(Command timed out after {seconds:g} seconds)"
  if result.out_of_memory:
    return f"{text}\n\n(Command killed: out of memory)"
  if result.exit_code != 0:
    return f"{text}\n\n(Command exited with code {result.exit_code})"
  return text


def _shown(output: str) -> str:
  return shorten(output).rstrip("\r\n" if "\r\n" in output else "\n") or "(no output)"


def _script(args: dict[str, Any]) -> str:
  """The command after its folder and its variables, where it names some."""
  lines = []
  for name, value in (args.get("env") or {}).items():
    if not _VARIABLE.fullmatch(name):
      raise BadCall(f"env.{shorten(name, 80)} is no name of a variable")
    if _RESERVED.fullmatch(name):
      raise BadCall(f"env may not set {name}")
    lines.append(f"export {name}={shlex.quote(value)}")
  if args.get("workdir"):
    lines.insert(0, f"cd -- {shlex.quote(args['workdir'])} || exit")
  return "\n".join([*lines, args["command"]])


def _timeout(asked: Any) -> float | None:
  """Seconds that a call asks for; what is no such number bounds nothing."""
  if isinstance(asked, bool) or not isinstance(asked, (int, float)) or not asked > 0:
    return None
  return float(min(asked, 1e6))
