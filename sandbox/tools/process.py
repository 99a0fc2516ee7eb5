"""process: looking after the sessions that exec left running.

Each action is one function; there are those that OpenClaw has. It has no signal
but `kill`: the others go through a terminal, as C-c, C-z and C-\\ by `send-keys`.
No answer tells a time or a pid, so that equal programs give equal answers.
"""

from __future__ import annotations

import io
import re
from collections.abc import Awaitable, Callable
from typing import Any

from sandbox.tools.call import Call, integer, seconds_of
from sandbox.tools.commands import Session, refresh, sessions
from sandbox.tools.files import encode
from sandbox.tools.results import BadCall

LOG_LINES = 200
_KILL_SECONDS = 2.0  # until a killed command is seen to have ended

_KEYS = {
    "enter": b"\r", "return": b"\r", "tab": b"\t", "escape": b"\x1b", "esc": b"\x1b",
    "space": b" ", "bspace": b"\x7f", "backspace": b"\x7f", "delete": b"\x1b[3~",
    "dc": b"\x1b[3~", "ic": b"\x1b[2~", "insert": b"\x1b[2~", "btab": b"\x1b[Z",
    "up": b"\x1b[A", "down": b"\x1b[B", "right": b"\x1b[C", "left": b"\x1b[D",
    "home": b"\x1b[H", "end": b"\x1b[F", "pageup": b"\x1b[5~", "pgup": b"\x1b[5~",
    "pagedown": b"\x1b[6~", "pgdn": b"\x1b[6~", "f1": b"\x1bOP", "f2": b"\x1bOQ",
    "f3": b"\x1bOR", "f4": b"\x1bOS", "f5": b"\x1b[15~", "f6": b"\x1b[17~",
    "f7": b"\x1b[18~", "f8": b"\x1b[19~", "f9": b"\x1b[20~", "f10": b"\x1b[21~",
    "f11": b"\x1b[23~", "f12": b"\x1b[24~",
}  # fmt: skip
_CONTROL = re.compile(r"(?:C-|\^)([a-z@\[\\\]_])", re.IGNORECASE)

_Action = Callable[[Call, Session, dict[str, Any]], Awaitable[str]]


async def process(call: Call, args: dict[str, Any]) -> str:
  """Does one action, on one session or on the list of them."""
  known = sessions(call.sandbox)
  action = args["action"]
  if action == "list":
    for session in known.values():
      await refresh(call.sandbox, session)
    lines = [f"{s.name}: {_state(s)}: {_one_line(s.command)}" for s in known.values()]
    return "\n".join(lines) or "(no sessions)"
  name = args.get("sessionId")
  if not name:
    raise BadCall(f"process {action} needs sessionId (string)")
  if name not in known:
    raise BadCall(f"no session {name!r}; there are {', '.join(known) or 'none'}")
  return await _ACTIONS[action](call, known[name], args)


async def _poll(call: Call, session: Session, args: dict[str, Any]) -> str:
  wait = min(seconds_of(args.get("timeout") or 0), call.seconds)
  await refresh(call.sandbox, session, wait)
  text, session.unread = session.unread, ""
  return f"{text.rstrip() or '(no new output)'}\n\n(Command {_state(session)})"


async def _log(call: Call, session: Session, args: dict[str, Any]) -> str:
  """Lines by `offset` (lines to skip) and `limit`, else the last 200."""
  await refresh(call.sandbox, session)
  lines = [line.rstrip("\r\n") for line in io.StringIO(session.log, newline="\n")]
  total = session.dropped + len(lines)
  if args.get("offset") is None:
    limit = integer(args, "limit", LOG_LINES)
    first = max(0, total - limit)
  else:
    first, limit = integer(args, "offset", 0), integer(args, "limit", LOG_LINES)
  start = max(first - session.dropped, 0)
  shown = lines[start : max(first + limit - session.dropped, 0)]
  if not shown:
    return "(no output yet)" if total == 0 else f"(no such lines: there are {total})"
  if len(shown) == total:
    return "\n".join(shown)
  first = session.dropped + start
  return "\n".join([*shown, f"[lines {first + 1} to {first + len(shown)} of {total}]"])


async def _write(call: Call, session: Session, args: dict[str, Any]) -> str:
  eof = bool(args.get("eof"))
  if args.get("data") is None and not eof:
    raise BadCall("process write needs data (string)")
  return await _send(call, session, encode(args.get("data") or ""), eof=eof)


async def _send_keys(call: Call, session: Session, args: dict[str, Any]) -> str:
  data = b"".join(_key(key) for key in args.get("keys") or ())
  for digits in args.get("hex") or ():
    try:
      data += bytes.fromhex(digits.removeprefix("0x"))
    except ValueError:
      raise BadCall(f"hex {digits[:40]!r} is no hexadecimal number") from None
  data += encode(args.get("literal") or "")
  if not data:
    raise BadCall("process send-keys needs keys, hex or literal")
  return await _send(call, session, data)


async def _submit(call: Call, session: Session, args: dict[str, Any]) -> str:
  end = b"\r" if session.pty else b"\n"
  return await _send(call, session, encode(args.get("data") or "") + end)


async def _paste(call: Call, session: Session, args: dict[str, Any]) -> str:
  text = args.get("text")
  if not text:
    raise BadCall("process paste needs text (string)")
  data = encode(text)
  bracketed = args.get("bracketed")
  if session.pty if bracketed is None else bracketed:
    data = b"\x1b[200~" + data + b"\x1b[201~"
  return await _send(call, session, data)


async def _kill(call: Call, session: Session, args: dict[str, Any]) -> str:
  await refresh(call.sandbox, session)
  if session.ending is not None:
    return f"{session.name} has ended already: {session.ending}"
  await _end(call, session)
  return f"Killed {session.name}"


async def _clear(call: Call, session: Session, args: dict[str, Any]) -> str:
  await refresh(call.sandbox, session)
  if session.ending is None:
    raise BadCall(f"{session.name} is running; kill or remove it")
  del sessions(call.sandbox)[session.name]
  return f"Cleared {session.name}"


async def _remove(call: Call, session: Session, args: dict[str, Any]) -> str:
  await refresh(call.sandbox, session)
  if session.ending is None:
    await _end(call, session)
  del sessions(call.sandbox)[session.name]
  return f"Removed {session.name}"


async def _send(call: Call, session: Session, data: bytes, *, eof: bool = False) -> str:
  await refresh(call.sandbox, session)
  if session.ending is not None:
    raise BadCall(f"{session.name} has ended: {session.ending}")
  await call.sandbox.send(session.number, data, eof=eof)
  ended = " and the end of its input" * eof
  return f"Sent {len(data)} bytes{ended} to {session.name}"


async def _end(call: Call, session: Session) -> None:
  await call.sandbox.kill(session.number)
  session.add((await call.sandbox.poll(session.number, _KILL_SECONDS)).output)
  session.end("was killed")


def _state(session: Session) -> str:
  return session.ending or "is running"


def _one_line(command: str) -> str:
  line = " ".join(command.split())
  return line if len(line) <= 100 else f"{line[:99]}…"


def _key(key: str) -> bytes:
  """The bytes of a key: one character, a name, C-x or M-x."""
  if len(key) == 1:
    return encode(key)
  if key.lower() in _KEYS:
    return _KEYS[key.lower()]
  control = _CONTROL.fullmatch(key)
  if control:
    return bytes([ord(control[1].upper()) & 0x1F])
  if key[:2].lower() == "m-" and 2 < len(key) < 20:
    return b"\x1b" + _key(key[2:])
  raise BadCall(f"no key {key[:40]!r}; names are Enter, Tab, Up, F1, C-c, M-x and such")


_ACTIONS: dict[str, _Action] = {
    "poll": _poll,
    "log": _log,
    "write": _write,
    "send-keys": _send_keys,
    "submit": _submit,
    "paste": _paste,
    "kill": _kill,
    "clear": _clear,
    "remove": _remove,
}
