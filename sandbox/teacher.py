"""A scripted teacher: an OpenAI chat API that replays reference solutions.

It finds the conversation by what the user says before the first assistant
message: an instruction, or a later turn that is said in a new conversation. Then
it finds the turn by what the user says later, and the step by how many assistant
messages there are since, so it keeps no state and any harness may ask. A reference
call is put in the tools that the request offers: Claw and OpenClaw (read, write,
edit, exec), pi (bash for exec), nanobot (read_file, write_file, edit_file),
mini-swe-agent (bash alone, which also hands in the final message). Where the tool
of a service is not offered its program is called. One call a message; after the
last one of a turn comes the reference's final message.

What it does not know it refuses with 400, naming it: words of no task or of
several, a call that no offered tool can make.
"""

from __future__ import annotations

import json
import secrets
import shlex
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from absl import flags
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from clawgym_jax import cli, web
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_json
from clawgym_jax.contracts.task import (
    Reference,
    SolutionCall,
    Task,
    list_tasks,
    load_task,
)
from sandbox.gateway import messages
from sandbox.gateway.errors import CallError, bad_request
from sandbox.gateway.server import events, on_call_error
from sandbox.tools.services import command as service_command

MODEL = "teacher"
_SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"  # mini-swe-agent's last line

Call = tuple[str, dict[str, Any]]  # a tool's name and arguments
_Into = Callable[[dict[str, Any]], list[dict[str, Any]]]


@dataclass(frozen=True)
class Script:
  """One conversation of a task: what the user says, and the reference for it."""

  task_id: str = field(compare=False)
  turns: list[tuple[str, Reference]]


class Teacher:
  """The reference solutions of a folder of tasks, by what opens a conversation."""

  def __init__(self, tasks: Path) -> None:
    self.scripts: dict[str, list[Script]] = {}
    for directory in list_tasks(tasks):
      for script in _scripts(load_task(directory)):
        known = self.scripts.setdefault(script.turns[0][0], [])
        if script not in known:
          known.append(script)
    if not self.scripts:
      raise UserError(f"{tasks} holds no task: make some with data_gen.synthesize")

  def answer(self, request: messages.Request) -> messages.Message:
    """The next assistant message; a 400 `CallError` where there is none."""
    solution, done = _step(self._find(request), request)
    offered = {
        tool["function"]["name"]: tool["function"].get("parameters") or {}
        for tool in request.tools
    }
    calls = [c for call in solution.calls for c in translate(call, offered)]
    if done < len(calls):
      return _message(None, calls[done])
    if set(offered) == {"bash"}:
      submit = f"echo {_SUBMIT}; printf '%s' {shlex.quote(solution.final_message)}"
      return _message(None, ("bash", {"command": submit}))
    return _message(solution.final_message, None)

  def _find(self, request: messages.Request) -> Script:
    asked = []
    for message in request.messages:
      if message["role"] == "assistant":
        break
      if message["role"] == "user":
        asked.append(messages.text_of(message["content"]).strip())
    found = [text for text in asked if text in self.scripts]
    if not found:  # a harness may put words around them
      found = sorted(
          (known for known in self.scripts for text in asked if known in text),
          key=len,
          reverse=True,
      )
    if not found:
      raise _refused(f"no task has the instruction {(asked or [''])[-1][:300]!r}")
    scripts = self.scripts[found[0]]
    if len(scripts) > 1:
      names = ", ".join(script.task_id for script in scripts)
      raise _refused(f"several tasks have this instruction: {names}")
    return scripts[0]


def _scripts(task: Task) -> list[Script]:
  """The task's conversations, in order."""
  scripts: list[Script] = []
  for turn, reference in zip(task.user_turns, task.reference(), strict=True):
    if turn.fresh:
      scripts.append(Script(task.id, []))
    scripts[-1].turns.append((turn.text.strip(), reference))
  return scripts


def _step(script: Script, request: messages.Request) -> tuple[Reference, int]:
  """The reference of the turn that the conversation is at, and how many assistant
  messages there are in it."""
  turn = done = 0
  for message in request.messages:
    if message["role"] == "assistant":
      done += 1
    elif message["role"] == "user" and done and turn + 1 < len(script.turns):
      if script.turns[turn + 1][0] in messages.text_of(message["content"]):
        turn, done = turn + 1, 0
  return script.turns[turn][1], done


def translate(call: SolutionCall, offered: dict[str, Any]) -> list[Call]:
  """The reference call in the tools of `offered` (name to parameter schema)."""
  arguments = call.arguments
  if call.name in offered:
    properties = offered[call.name].get("properties", {})
    if call.name == "edit" and properties and "edits" not in properties:
      return [
          ("edit", {"path": arguments["path"], **edit}) for edit in arguments["edits"]
      ]
    return [(call.name, arguments)]
  for name, into in _TABLE.get(call.name, ()):
    if name in offered:
      return [(name, converted) for converted in into(arguments)]
  raise _refused(
      f"the request offers no tool for {call.name}; it offers"
      f" {', '.join(sorted(offered)) or 'none'}"
  )


def _command(arguments: dict[str, Any]) -> list[dict[str, Any]]:
  unknown = sorted(set(arguments) - {"command"})
  if unknown:
    raise _refused(f"exec with {', '.join(unknown)} can't be put in a bash call")
  return [arguments]


def _unchanged(arguments: dict[str, Any]) -> list[dict[str, Any]]:
  return [arguments]


def _edit_file(arguments: dict[str, Any]) -> list[dict[str, Any]]:
  return [
      {
          "path": arguments["path"],
          "old_text": edit["oldText"],
          "new_text": edit["newText"],
      }
      for edit in arguments["edits"]
  ]


def _read_by_shell(arguments: dict[str, Any]) -> list[dict[str, Any]]:
  unknown = sorted(set(arguments) - {"path"})
  if unknown:
    raise _refused(f"read with {', '.join(unknown)} can't be put in a bash call")
  return [{"command": f"cat {shlex.quote(arguments['path'])}"}]


def _write_by_shell(arguments: dict[str, Any]) -> list[dict[str, Any]]:
  path, content = shlex.quote(arguments["path"]), arguments["content"]
  folder = shlex.quote(str(Path(arguments["path"]).parent))
  if content.endswith("\n") and "\nEOF\n" not in f"\n{content}":
    write = f"cat > {path} <<'EOF'\n{content}EOF"
  else:  # a heredoc always ends its text with a newline
    write = f"printf '%s' {shlex.quote(content)} > {path}"
  return [{"command": f"mkdir -p {folder} && {write}"}]


def _edit_by_shell(arguments: dict[str, Any]) -> list[dict[str, Any]]:
  """Each old text must be there once, as in the edit tool."""
  lines = [
      f"path = {arguments['path']!r}",
      "text = open(path, newline='').read()",
      *(
          line
          for edit in arguments["edits"]
          for line in (
              f"assert text.count({edit['oldText']!r}) == 1",
              f"text = text.replace({edit['oldText']!r}, {edit['newText']!r})",
          )
      ),
      "open(path, 'w', newline='').write(text)",
  ]
  return [{"command": "python3 - <<'EOF'\n" + "\n".join(lines) + "\nEOF"}]


def _service(name: str) -> _Into:
  """The service's own program, by a shell."""

  def by_shell(arguments: dict[str, Any]) -> list[dict[str, Any]]:
    if arguments.get("buffer"):
      raise _refused(f"{name} with buffer can't be put in a shell call")
    return [{"command": shlex.join(service_command(name, arguments))}]

  return by_shell


# For each call of the reference, the tools that can make it, best first.
_TABLE: dict[str, tuple[tuple[str, _Into], ...]] = {
    "exec": (("bash", _command),),
    "read": (("read_file", _unchanged), ("bash", _read_by_shell)),
    "write": (("write_file", _unchanged), ("bash", _write_by_shell)),
    "edit": (("edit_file", _edit_file), ("bash", _edit_by_shell)),
    **{
        name: (("exec", _service(name)), ("bash", _service(name)))
        for name in ("message", "cron", "web_search", "web_fetch")
    },
}


def app(teacher: Teacher) -> Starlette:
  """GET /v1/models and POST /v1/chat/completions."""

  async def chat(http: HttpRequest) -> Response:
    try:
      body = json_text.parse(await http.body())
    except ValueError:
      raise bad_request("the body is not JSON") from None
    request = messages.parse(body)
    message = teacher.answer(request)
    completion = {
        "id": f"chatcmpl-{secrets.token_hex(8)}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
            }
        ],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }
    if not request.stream:
      return JSONResponse(completion)
    return StreamingResponse(
        events(completion, request.stream_usage), media_type="text/event-stream"
    )

  async def models(_: HttpRequest) -> Response:
    return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

  return Starlette(
      routes=[
          Route("/v1/chat/completions", chat, methods=["POST"]),
          Route("/v1/models", models),
      ],
      exception_handlers={CallError: on_call_error},
  )


def _message(content: str | None, call: Call | None) -> messages.Message:
  message: messages.Message = {"role": "assistant", "content": content}
  if call is not None:
    name, arguments = call
    message["tool_calls"] = [
        {
            "id": f"call{secrets.token_hex(8)}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": json.dumps(arguments, ensure_ascii=False),
            },
        }
    ]
  return message


def _refused(message: str) -> CallError:
  return CallError(400, "teacher_refused", message)


def main() -> None:
  options = flags.FLAGS
  teacher = Teacher(Path(options.tasks))
  url, stop = web.serve(app(teacher), port=options.port)
  print(f"teacher: {url}/v1 knows {len(teacher.scripts)} conversations", flush=True)
  if options.ready_file:
    write_json(Path(options.ready_file), {"url": url})
  try:
    threading.Event().wait()
  finally:
    stop()
    if options.ready_file:
      Path(options.ready_file).unlink(missing_ok=True)


if __name__ == "__main__":
  flags.DEFINE_string("tasks", None, "Folder of tasks.", required=True)
  flags.DEFINE_integer("port", 0, "Port to listen on; 0 takes a free one.", 0)
  flags.DEFINE_string("ready_file", None, 'Gets {"url": ...} once it listens.')
  cli.run(main)
