"""Messages as token ids, laid out so that a conversation only ever grows.

The chat template decides what is written; here it is turned into ids. What a
model sampled is kept as it was sampled: a `Conversation` holds prompts and
responses and encodes new messages only. Their ids come from the difference of
two renderings of a short stand-in for the conversation, so a turn costs what
its own messages cost. Where the template would then write differently what was
already said (thinking left out, tools moved, old turns dropped: `appending`), the
turn is refused with the reason: the ids so far would not be those of any
conversation.

`render` gives the ids of a written conversation, for supervised training. What
is trained starts where the template's generation prompt ends and ends with the
end of the turn, and is encoded as it would have been sampled; where that place
can't be known there is an error, never a guess.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from clawgym_jax.chat import appending, layout
from clawgym_jax.chat.appending import (
    ASKED,
    NO_ID,
    SAID,
    SYSTEM,
    THINK,
    THINK_END,
    THOUGHT,
    TOOL,
    NotAppendOnly,
)
from clawgym_jax.chat.layout import Message, Tools
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.contracts.errors import require

_THINKING = re.compile(rf"{THINK}(.*?){THINK_END}", re.DOTALL)


@dataclass(frozen=True)
class Span:
  """Consecutive ids; `trained` if a model is to say them.

  `message_index` is of the assistant's message that they are or lead up to, for
  what follows the last one the number of messages.
  """

  ids: list[int]
  trained: bool
  message_index: int


def render(
    tokenizer: Tokenizer, messages: list[Message], tools: Tools, **variables: Any
) -> list[Span]:
  """The whole conversation. What assistants say and its end of turn are trained.

  `variables` are for the template (`enable_thinking`).

  Raises:
    RecordError: the template refuses the messages, or where an assistant's turn
      starts or ends can't be told from what it writes.
  """
  text, mark = layout.written(tokenizer, messages, tools, False, variables)
  said = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
  turns = layout.assistant_turns(tokenizer, text, mark, messages, said, variables)
  spans, at = [], 0
  for index, (start, end) in zip(said, turns):
    head, tail = tokenizer.encode_rendered(text[at:start], mark, start=at == 0)
    spans.append(Span(head, False, index))
    header = text[at + tail : start]
    body = layout.continued(tokenizer, header, text[start:end], mark)
    spans.append(Span(body, True, index))
    at = end
  rest, _ = tokenizer.encode_rendered(text[at:], mark, start=at == 0)
  spans.append(Span(rest, False, len(messages)))
  return [span for span in spans if span.ids]


def prompt_ids(
    tokenizer: Tokenizer, messages: list[Message], tools: Tools, **variables: Any
) -> list[int]:
  """Ids that ask for the next assistant turn. `RecordError` if the template refuses."""
  text, mark = layout.written(tokenizer, messages, tools, True, variables)
  return tokenizer.encode_rendered(text, mark, start=True)[0]


@dataclass(frozen=True)
class _Shape:
  """What of a conversation can change how its next messages are written."""

  system: bool
  questions: int
  tools: bool
  calls: bool
  length: int  # in messages, about
  thoughts: frozenset[str]  # those that any turn still shows
  thought: str | None  # that of the last response; "" an empty one, None none

  def answered(self, thought: str | None) -> _Shape:
    """The shape once a response with this thought was added."""
    had = self.thoughts | ({thought} if thought else set())
    return dataclasses.replace(self, thought=thought, thoughts=had)

  def asked(self, messages: list[Message]) -> _Shape:
    """The shape once these messages were added."""
    roles = [message["role"] for message in messages]
    return dataclasses.replace(
        self,
        questions=self.questions + roles.count("user"),
        calls=self.calls or "tool" in roles,
        length=self.length + 1 + len(roles),
        thoughts=self.thoughts | _written_thoughts(messages),
    )

  def kind(self) -> appending.Kind:
    return appending.Kind(
        system=self.system,
        tools=self.tools,
        calls=self.calls,
        questions=self.questions > 1,
        thoughts=THOUGHT in self.thoughts,
    )


class Conversation:
  """A conversation with a model, as the exact ids that it saw and sampled.

  `ids` alternates prompts and responses; after `start` or `extend` it asks
  for a response, after `append_response` or `resume` it waits for messages.
  """

  def __init__(
      self,
      tokenizer: Tokenizer,
      ids: list[int],
      shape: _Shape,
      variables: dict[str, Any],
      *,
      awaiting: bool,
  ):
    self._tokenizer = tokenizer
    self.ids = ids
    self._shape = shape
    self._variables = variables
    self._awaiting = awaiting

  @classmethod
  def start(
      cls, tokenizer: Tokenizer, messages: list[Message], tools: Tools, **variables: Any
  ) -> Conversation:
    """Asks for a response to `messages`; `variables` are for the template."""
    ids = prompt_ids(tokenizer, messages, tools, **variables)
    shape = _shape(messages, tools, [])
    return cls(tokenizer, ids, shape, variables, awaiting=True)

  @classmethod
  def resume(
      cls,
      tokenizer: Tokenizer,
      turns: list[tuple[list[int], list[int], str | None]],
      messages: list[Message],
      tools: Tools,
      **variables: Any,
  ) -> Conversation:
    """A conversation from its prompts, responses and their `thought_of`, in order.

    `messages` is what they say, the last response included.
    """
    ids = [i for prompt, response, _ in turns for i in (*prompt, *response)]
    thoughts = [thought for _, _, thought in turns]
    shape = _shape(messages, tools, thoughts)
    return cls(tokenizer, ids, shape, variables, awaiting=False)

  def append_response(self, response_ids: list[int]) -> None:
    """Adds what the model sampled, as sampled."""
    require(self._awaiting, "a response without a prompt before it")
    self.ids = self.ids + list(response_ids)
    self._shape = self._shape.answered(thought_of(self._tokenizer, response_ids))
    self._awaiting = False

  def extend(self, messages: list[Message]) -> list[int]:
    """Adds messages after a response; returns their ids, generation prompt included.

    What the template writes between the turns is part of them. A response that
    was cut before its end of turn is closed first, by ids of the prompt, which
    nothing trains.

    Raises:
      NotAppendOnly: the template would write the turns before the messages in
        another way once they follow.
      RecordError: the template refuses the messages.
    """
    require(not self._awaiting, "messages before the response to the last ones")
    tokenizer = self._tokenizer
    shape, variables = self._shape, self._variables
    # A template may drop the thinking of any turn, not of the last one alone.
    for thought in sorted(shape.thoughts - {shape.thought}):
      _difference(tokenizer, shape, thought, messages, variables)
    text, mark, end = _difference(tokenizer, shape, shape.thought, messages, variables)
    asked = shape.asked(messages)
    appending.check(tokenizer, asked.kind(), asked.length, variables)
    closed = bool(self.ids) and self.ids[-1] in tokenizer.turn_ends
    delta = [] if closed else [end]
    delta += tokenizer.encode_rendered(text, mark, start=False)[0]
    self.ids = self.ids + delta
    self._shape = asked
    self._awaiting = True
    return delta


def _difference(
    tokenizer: Tokenizer,
    shape: _Shape,
    thought: str | None,
    messages: list[Message],
    variables: dict[str, Any],
) -> tuple[str, str, int]:
  """What the template writes for new messages after an assistant's turn.

  Returns that text, its mark, and the id that ends the turn before it. A short
  conversation stands in for the real one: it has a system message, a user
  message, tools, thinking and calls where the real one has them.
  """
  before: list[Message] = []
  if shape.system:
    before.append({"role": "system", "content": SYSTEM})
  if shape.questions:
    before.append({"role": "user", "content": ASKED})
  tools = [TOOL] if shape.tools else None
  asked = layout.written(tokenizer, before, tools, True, variables)[0] if before else ""
  if thought is None and asked.rstrip().endswith(THINK):
    thought = THOUGHT  # opened by the prompt and cut before it ended
  answer = _answer(messages, thought)
  talk = [*before, answer, *messages]
  text, mark = layout.written(tokenizer, talk, tools, True, variables)
  if not text.startswith(asked):
    raise NotAppendOnly(appending.changed(asked, text))
  ends = [tokenizer.token(i) for i in tokenizer.turn_ends]
  end = layout.first_end(text, ends, len(asked))
  require(end >= 0, "the chat template does not end the assistant's turn")
  said = text[len(asked) : end]
  roles = sorted({message["role"] for message in messages})
  after = f"once messages of {' and '.join(roles) or 'nobody'} follow it"
  if thought is not None and (thought not in said or THINK_END not in said):
    raise NotAppendOnly(
        f"the chat template leaves the assistant's thinking out {after}, so the prompt"
        " would not continue what was sampled"
    )
  if "tool_calls" not in answer and SAID not in said:
    raise NotAppendOnly(
        f"the chat template writes the assistant's message differently {after}"
    )
  token = next(t for t in ends if said.endswith(t))
  return text[end:], mark, tokenizer.token_id(token)


def _answer(messages: list[Message], thought: str | None) -> Message:
  """An assistant's message that the new ones can follow."""
  replies = []
  for message in messages:
    if message["role"] != "tool":
      break
    replies.append(message)
  thinking = appending.thinking(thought)
  if not replies:
    return {"role": "assistant", "content": thinking + SAID}
  calls = [
      {
          "id": reply.get("tool_call_id") or NO_ID,
          "type": "function",
          "function": {"name": reply.get("name") or "qtoolq", "arguments": {}},
      }
      for reply in replies
  ]
  return {"role": "assistant", "content": thinking, "tool_calls": calls}


def _shape(
    messages: list[Message], tools: Tools, thoughts: list[str | None]
) -> _Shape:
  roles = [message["role"] for message in messages]
  shape = _Shape(
      system=bool(roles) and roles[0] in ("system", "developer"),
      questions=roles.count("user"),
      tools=bool(tools),
      calls="tool" in roles,
      length=len(roles),
      thoughts=_written_thoughts(messages),
      thought=None,
  )
  for thought in thoughts:
    shape = shape.answered(thought)
  return shape


def _written_thoughts(messages: list[Message]) -> frozenset[str]:
  """The thoughts in messages after the last question: they may yet be dropped."""
  for message in reversed(messages):
    if message["role"] == "user":
      break
    content = message.get("content")
    inside = isinstance(content, str) and THINK_END in content
    if message["role"] == "assistant" and (message.get("reasoning_content") or inside):
      return frozenset({THOUGHT})
  return frozenset()


def thought_of(tokenizer: Tokenizer, response_ids: list[int]) -> str | None:
  """What stands for the thought of a response: "" for an empty one, None for none.

  Only this is read from the text of a response, once for each.
  """
  text = tokenizer.decode(response_ids)
  if THINK_END not in text:
    return THOUGHT if THINK in text else None
  thoughts = _THINKING.findall(THINK + text if THINK not in text else text)
  return "" if not "".join(thoughts).strip() else THOUGHT
