"""Which reports are side effects: those that the programs can have made.

The agent can speak to the controller itself. What it says in a program's
words counts as the same side effect; anything else is none, so that no check
meets a report without the keys and kinds that are written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

Shape = Callable[[Any], bool]


def effects(reports: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
  """The reports that are side effects, in order."""
  return [
      report
      for report in reports
      if any(shape(report["data"]) for shape in _SHAPES.get(report["service"], ()))
  ]


def _text(value: Any) -> bool:
  return isinstance(value, str)


def _whole(value: Any) -> bool:
  return isinstance(value, int) and not isinstance(value, bool)


def _flag(value: Any) -> bool:
  return isinstance(value, bool)


def _object(value: Any) -> bool:
  return isinstance(value, dict)


def _time(value: Any) -> bool:
  try:
    datetime.fromisoformat(value[:-1] + "+00:00" if value[-1:] in "zZ" else value)
  except (ValueError, TypeError):
    return False
  return True


def _is(*values: str) -> Shape:
  return lambda value: isinstance(value, str) and value in values


def _list(item: Shape) -> Shape:
  return lambda value: isinstance(value, list) and all(map(item, value))


def _record(needed: dict[str, Shape], possible: dict[str, Shape] = {}) -> Shape:
  """An object with what is needed, and with what is possible in its shape."""

  def fits(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and needed.keys() <= value.keys()
        and all(
            shape(value[key])
            for key, shape in {**needed, **possible}.items()
            if key in value
        )
    )

  return fits


_TIMES = {"start": _time, "end": _time}
_DETAILS = {"location": _text, "notes": _text, "attendees": _list(_text)}
_EVENT = _record({"id": _text, "title": _text, **_TIMES}, _DETAILS)
_CHANGES = _record({}, {"title": _text, **_TIMES, **_DETAILS})
_JOB = _record({
    "id": _text, "name": _text, "enabled": _flag,
    "schedule": _record({"kind": _text}), "payload": _record({"kind": _text}),
})  # fmt: skip
_FILE = _record({"name": _text, "bytes": _whole, "sha256": _text})
_SHAPES: dict[str, tuple[Shape, ...]] = {
    "outbox": (
        _record(
            {
                "action": _is("send"), "id": _text, "channel": _text,
                "to": _list(_text), "subject": _text, "body": _text,
                "attachments": _list(_FILE),
            },
            {"reply_to": _text, "thread": _text, "silent": _flag},
        ),
    ),
    "calendar": (
        _record({"action": _is("add", "delete"), "id": _text, "event": _EVENT}),
        _record({
            "action": _is("update"), "id": _text, "changes": _CHANGES, "event": _EVENT,
        }),
    ),
    "cron": (
        _record({"action": _is("add", "remove"), "id": _text, "job": _JOB}),
        _record({"action": _is("update"), "id": _text, "patch": _object, "job": _JOB}),
        _record({"action": _is("run"), "id": _text, "mode": _is("due", "force")}),
        _record({
            "action": _is("wake"), "text": _text, "mode": _is("now", "next-heartbeat"),
        }),
    ),
}  # fmt: skip
