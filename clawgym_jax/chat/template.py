"""Chat templates: Jinja source that lays messages out as text.

A template comes with a model and may be anything, so it runs in `jinja_sandbox`:
one that does not end, makes far more than its input could need, or asks for
files ends with a `UserError` that names the template as the cause. One that
merely refuses some messages ends with a `RecordError`.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import jinja2

from clawgym_jax.contracts import json_text
from clawgym_jax.chat import jinja_sandbox, work
from clawgym_jax.contracts.errors import RecordError, UserError, require

Message = dict[str, Any]

_MOST_SOURCE = 50_000  # characters of a template; compiled in a few seconds
_STEPS = 200_000  # turns of loops and calls in one rendering, and more a message
_STEPS_A_MESSAGE = 500
_CHARACTERS = 20_000_000  # made in one rendering, beside a share of the input
_SHARE = 50
_ROLE = re.compile(r"[A-Za-z][A-Za-z_]*")


class ChatTemplate:
  """A template, compiled; `literals` is all text that its source can write.

  `tool_use` is a second source for conversations with tools, where a model
  ships two.

  Raises:
    UserError: the source is no template, or asks for files.
  """

  def __init__(self, source: str, tool_use: str | None = None):
    self.source = source
    self.tool_use = tool_use
    sources = [source] if tool_use is None else [source, tool_use]
    self._templates = [_compile(s) for s in sources]
    self.literals = "\0".join(map(jinja_sandbox.literals, sources))

  def render(
      self,
      messages: list[Message],
      tools: list[dict[str, Any]] | None = None,
      *,
      add_generation_prompt: bool = False,
      **variables: Any,
  ) -> str:
    """The text of a conversation.

    Arguments of tool calls are given to the template as an object where they
    are the JSON text of one, keys without a value are left out, and content
    in text parts is joined.

    Raises:
      RecordError: the template refuses these messages, or can't lay them out.
      UserError: the template does not end, or makes far more than it is given.
    """
    shown = [presented(message) for message in messages]
    template = self._templates[-1 if tools else 0]
    sizes = sum(map(work.size, (shown, tools, variables)))
    budget = work.Budget(
        steps=_STEPS + _STEPS_A_MESSAGE * len(shown) + sizes // 2,
        characters=_CHARACTERS + _SHARE * sizes,
    )
    pieces = []
    try:
      with work.bounded(budget):
        for piece in template.generate(
            messages=shown,
            tools=tools or None,
            documents=None,
            add_generation_prompt=add_generation_prompt,
            **variables,
        ):
          budget.made(len(piece))
          pieces.append(piece)
    except (work.Exceeded, RecursionError, MemoryError) as error:
      raise UserError(
          f"the chat template does not end or makes too much text ({error}):"
          " the model's template is broken; give another one"
      ) from None
    except jinja2.exceptions.SecurityError as error:
      raise UserError(f"the chat template does what it must not: {error}") from None
    except jinja2.exceptions.TemplateError as error:
      raise RecordError(f"the chat template refuses these messages: {error}") from None
    except (
        ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
        AssertionError, RuntimeError,
    ) as error:  # fmt: skip
      raise RecordError(
          f"the chat template can't lay out these messages: {error!r}"
      ) from None
    return "".join(pieces)


def compact() -> ChatTemplate:
  """This project's own short format, for models that it trains from scratch."""
  return ChatTemplate(
      resources.files("clawgym_jax.chat").joinpath("compact.jinja").read_text()
  )


def presented(message: Message) -> Message:
  """A message as templates see it."""
  require(isinstance(message, dict), f"a message is no object: {message!r:.100}")
  require(
      isinstance(message.get("role"), str) and _ROLE.fullmatch(message["role"]),
      f"a message has the role {message.get('role')!r}",
  )
  shown = {key: value for key, value in message.items() if value is not None}
  for key in ("reasoning", "thinking"):
    if key in shown:
      shown.setdefault("reasoning_content", shown[key])
  if isinstance(shown.get("content"), list):
    require(
        all(map(_is_text, shown["content"])),
        "only text content can be laid out as tokens",
    )
    shown["content"] = "".join(part["text"] for part in shown["content"])
  if "tool_calls" in shown:
    require(
        isinstance(shown["tool_calls"], list),
        f"tool_calls is no list: {shown['tool_calls']!r:.100}",
    )
    shown["tool_calls"] = [_shown_call(call) for call in shown["tool_calls"]]
  return shown


def _is_text(part: Any) -> bool:
  return (
      isinstance(part, dict)
      and part.get("type") == "text"
      and isinstance(part.get("text"), str)
  )


def _shown_call(call: dict[str, Any]) -> dict[str, Any]:
  require(
      isinstance(call, dict) and isinstance(call.get("function"), dict),
      'a tool call is no {"type": "function", "function": {"name": …, "arguments": …}}'
      f": {call!r:.100}",
  )
  function = dict(call["function"])
  arguments = function.get("arguments")
  if isinstance(arguments, str):
    try:
      parsed = json_text.parse(arguments)
    except ValueError:
      parsed = None
    if isinstance(parsed, dict):
      function["arguments"] = parsed
  return {**call, "function": function}


def _compile(source: str) -> jinja2.Template:
  if len(source) > _MOST_SOURCE:
    raise UserError(f"the chat template has {len(source)} characters: no template")
  try:
    return jinja_sandbox.environment.from_string(source)
  except jinja2.exceptions.SecurityError as error:
    raise UserError(f"the chat template does what it must not: {error}") from None
  except (
      jinja2.exceptions.TemplateError, MemoryError, RecursionError, SyntaxError, ValueError
  ) as error:  # fmt: skip
    raise UserError(f"the chat template can't be read: {error}") from None
