"""What a chat request says: checked, and compared by meaning.

Harnesses send back what a model said in other words: ids renamed, arguments
parsed and written again, content as a string, a list or null, keys reordered.
Two messages are equal here if they have one role, one text and the same calls
with the same argument values; ids, names and thoughts don't count, the
position of a message does.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from clawgym_jax.contracts import json_text
from sandbox.gateway.errors import bad_request

Message = dict[str, Any]

_ROLES = ("system", "user", "assistant", "tool")
_KEPT = (
    "role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content"
)  # fmt: skip


@dataclass(frozen=True)
class Request:
  """A checked chat request.

  `digests` has one entry a message; `tools_digest` is of the tool schemas.
  `asked` holds the sampling parameters that the agent sent.
  """

  messages: list[Message]
  tools: list[dict[str, Any]]
  asked: dict[str, Any]
  stream: bool
  stream_usage: bool
  digests: list[str]
  tools_digest: str


def parse(body: Any) -> Request:
  """Checks the JSON body of a chat completion; a 400 `CallError` says what's wrong."""
  if not isinstance(body, dict):
    raise bad_request("the body must be a JSON object")
  raw = body.get("messages")
  if not isinstance(raw, list) or not raw:
    raise bad_request("messages must be a list of at least one message")
  if body.get("n") not in (None, 1):
    raise bad_request("n must be 1: a session takes one turn at a time")
  if body.get("stop"):
    raise bad_request("stop sequences are not supported")
  if (body.get("response_format") or {"type": "text"}).get("type") != "text":
    raise bad_request("response_format must be text")
  messages = [_checked(index, message) for index, message in enumerate(raw)]
  tools = body.get("tools") or []
  if not isinstance(tools, list) or not all(map(_is_function, tools)):
    raise bad_request("tools must be a list of functions, each with a name")
  return Request(
      messages=messages,
      tools=tools,
      asked=_asked(body),
      stream=bool(body.get("stream")),
      stream_usage=bool((body.get("stream_options") or {}).get("include_usage")),
      digests=[digest(message) for message in messages],
      tools_digest=tools_digest(tools),
  )


def digest(message: Message) -> str:
  """Equal for messages that mean the same."""
  content = text_of(message.get("content"))
  if message["role"] == "assistant":
    content = content.strip()
  calls = [
      (call["function"]["name"], _value(call["function"].get("arguments")))
      for call in message.get("tool_calls") or []
  ]
  return _hash([message["role"], content, calls])


def tools_digest(tools: list[dict[str, Any]] | None) -> str:
  """Equal for the same tool schemas in the same order."""
  return _hash(tools or [])


def combine(key: str, digest: str) -> str:
  """The key of a conversation that has `digest` after the one of `key`."""
  return _hash([key, digest])


def text_of(content: Any) -> str:
  """The text of a message's content; a part that is not text counts as its JSON."""
  if content is None or isinstance(content, str):
    return content or ""
  return "".join(
      part["text"] if part.get("type") == "text" else json.dumps(part, sort_keys=True)
      for part in content
  )


def _checked(index: int, message: Any) -> Message:
  where = f"messages[{index}]"
  if not isinstance(message, dict):
    raise bad_request(f"{where} must be an object")
  clean = {k: message[k] for k in _KEPT if message.get(k) is not None}
  if clean.get("role") == "developer":
    clean["role"] = "system"
  if clean.get("role") not in _ROLES:
    raise bad_request(f"{where}.role must be one of {', '.join(_ROLES)}")
  content = clean.setdefault("content", None)
  if not (content is None or isinstance(content, str)):
    if not isinstance(content, list) or not all(map(_is_part, content)):
      raise bad_request(f"{where}.content must be a string, a list of parts or null")
    if all(part["type"] == "text" for part in content):
      clean["content"] = text_of(content)
  calls = clean.get("tool_calls", [])
  if not isinstance(calls, list) or not all(map(_is_function, calls)):
    raise bad_request(f"{where}.tool_calls must be a list of function calls")
  if not calls:
    clean.pop("tool_calls", None)
  return clean


def _asked(body: dict[str, Any]) -> dict[str, Any]:
  asked = {
      name: body[name]
      for name in ("temperature", "top_p", "seed")
      if body.get(name) is not None
  }
  for name in ("max_tokens", "max_completion_tokens"):
    if body.get(name) is not None:
      asked["max_tokens"] = body[name]
  for name, value in asked.items():
    if not isinstance(value, (int, float)) or isinstance(value, bool):
      raise bad_request(f"{name} must be a number")
  return asked


def _is_function(value: Any) -> bool:
  function = value.get("function") if isinstance(value, dict) else None
  return isinstance(function, dict) and isinstance(function.get("name"), str)


def _is_part(part: Any) -> bool:
  if not isinstance(part, dict) or not isinstance(part.get("type"), str):
    return False
  return part["type"] != "text" or isinstance(part.get("text"), str)


def _value(arguments: Any) -> Any:
  """Arguments as values; those that are no JSON as the text they are."""
  if isinstance(arguments, str):
    try:
      arguments = json_text.parse(arguments or "{}")
    except ValueError:
      return arguments.strip()
  return _plain({} if arguments is None else arguments)


def _plain(value: Any) -> Any:
  """1.0 and 1 are one number in JavaScript, so harnesses change one to the other."""
  if isinstance(value, float) and value.is_integer():
    return int(value)
  if isinstance(value, dict):
    return {key: _plain(item) for key, item in value.items()}
  if isinstance(value, list):
    return [_plain(item) for item in value]
  return value


def _hash(value: Any) -> str:
  text = json.dumps(value, sort_keys=True, ensure_ascii=True)
  return hashlib.sha256(text.encode()).hexdigest()[:32]
