"""Executes a tool call in a sandbox; what goes wrong is text for the model.

`execute` never raises for anything a model can write: an unknown tool, bad
arguments, a missing file and a failing command all come back as text. Only
`SandboxLost` passes through, since no model can bring it about.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sandbox.backends import Sandbox, SandboxError
from sandbox.tools.call import Call, arguments
from sandbox.tools.results import BadCall, failure, shorten
from sandbox.tools.table import DEFAULT, TOOLS

EXEC_SECONDS = 30.0


async def execute(
    sandbox: Sandbox,
    name: str,
    given: dict[str, Any] | str,
    *,
    seconds: float = EXEC_SECONDS,
    offered: Iterable[str] = DEFAULT,
) -> str:
  """The result of one call, at most `RESULT_CHARS` characters and a note.

  `given` is the parsed arguments or their JSON text; `seconds` bounds a
  command, whatever timeout the call itself asks for; a tool that isn't
  `offered` is unknown.
  """
  offered = tuple(offered)
  if name not in offered:
    return shorten(f"Error: no tool {name!r}; there are {', '.join(offered)}")
  tool = TOOLS[name]
  try:
    schema = tool.schema["function"]["parameters"]
    args = arguments(name, given, schema, tool.judged)
    call = Call(sandbox, seconds, frozenset(offered))
    return shorten(await tool.run(call, args))
  except RecursionError:
    return failure(name, "the arguments are nested too deeply")
  except BadCall as error:
    return shorten(failure(name, str(error)))
  except SandboxError as error:
    return shorten(failure(name, f"{name} failed: {error}"))
