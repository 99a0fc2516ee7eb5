"""What a chat template writes for a conversation, and where in it assistants speak.

The text that `written` returns has every control token that messages spell broken
by a mark, so what looks like a control token in it was written by the template.
That is how turns are found: by the template's generation prompt, or, where that
is empty, by the ends of turn. A place that can't be known is an error.
"""

from __future__ import annotations

from typing import Any

from clawgym_jax.chat import control
from clawgym_jax.chat.template import Message, presented
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.contracts.errors import RecordError, require

Tools = list[dict[str, Any]] | None

_ASK = [{"role": "user", "content": "question"}]
_GO_ON = [
    {"role": "assistant", "content": "answer"},
    {"role": "user", "content": "qnextq"},
]


def written(
    tokenizer: Tokenizer,
    messages: list[Message],
    tools: Tools,
    asking: bool,
    variables: dict[str, Any],
    mark: str | None = None,
) -> tuple[str, str]:
  """The template's text, control tokens in messages broken by the mark beside it."""
  try:
    return _written(tokenizer, messages, tools, asking, variables, mark)
  except RecursionError:
    raise RecordError("a message or tool is nested too deeply") from None


def _written(
    tokenizer: Tokenizer,
    messages: list[Message],
    tools: Tools,
    asking: bool,
    variables: dict[str, Any],
    mark: str | None,
) -> tuple[str, str]:
  plain = [presented(message) for message in messages]
  apart, apart_tools, mark = control.broken(
      plain,
      tools,
      said=tokenizer.breaks_said,
      given=tokenizer.breaks_given,
      mark=mark,
  )

  def render(messages: list[Message], tools: Tools) -> str:
    return tokenizer.template.render(
        messages, tools, add_generation_prompt=asking, **{**tokenizer.named, **variables}
    )

  text = render(apart, apart_tools)
  if apart != plain or apart_tools != tools:
    require(
        text.replace(mark, "") == render(plain, tools),
        "the chat template reads inside a message that spells control tokens, so they"
        " can't be kept from counting as such",
    )
  return text, mark


def assistant_turns(
    tokenizer: Tokenizer,
    text: str,
    mark: str,
    messages: list[Message],
    said: list[int],
    variables: dict[str, Any],
) -> list[tuple[int, int]]:
  """Where each assistant's turn starts and ends (after its end of turn) in `text`."""
  if not said:
    return []
  header = _header(tokenizer, variables)
  ends = [tokenizer.token(i) for i in tokenizer.turn_ends]
  marks = [token for token in tokenizer.specials if token in header]
  opener = min(marks, key=header.find, default=None)
  if opener is not None:
    starts = [at + len(header) for at in _occurrences(text, header)]
    require(
        len(starts) == len(said),
        f"the generation prompt {header!r} stands {len(starts)} times in what the chat"
        f" template writes for {len(said)} assistant turns, so what they say can't be"
        " told from what they are asked",
    )
    turns = [(start, first_end(text, ends, start)) for start in starts]
  else:
    # Only the ends of assistants' turns are marked: each must be one of theirs,
    # and before it must stand what the template writes for that message alone.
    found = [at for token in ends for at in _occurrences(text, token)]
    require(
        len(found) == len(said),
        f"the chat template writes {len(found)} ends of turn for {len(said)} assistant"
        " turns and marks no starts, so what they say can't be told from the rest",
    )
    turns = []
    for at, index in zip(sorted(found), said):
      alone = _alone(tokenizer, messages[index], mark, ends, variables)
      end = first_end(text, ends, at)
      require(
          text[:end].endswith(alone),
          f"messages[{index}] is written differently in this conversation than alone,"
          " so where it starts can't be known",
      )
      turns.append((end - len(alone), end))
  limits = [start for start, _ in turns[1:]] + [len(text)]
  for index, (start, end), limit in zip(said, turns, limits):
    require(
        start <= end <= limit and (opener is None or opener not in text[start:end]),
        f"the chat template does not end the turn of messages[{index}]",
    )
  return turns


def _header(tokenizer: Tokenizer, variables: dict[str, Any]) -> str:
  """What the template writes to ask for an assistant turn."""
  before, _ = written(tokenizer, _ASK, None, False, variables)
  after, _ = written(tokenizer, _ASK, None, True, variables)
  require(
      after.startswith(before),
      "the chat template's generation prompt changes what stands before it",
  )
  ends = [tokenizer.token(i) for i in tokenizer.turn_ends]
  talk, _ = written(tokenizer, [*_ASK, *_GO_ON], None, False, variables)
  end = first_end(talk, ends, talk.find("answer"))
  require(
      0 <= end <= talk.find("qnextq"),
      "the chat template does not end an assistant's turn before the next message, so"
      " what assistants say can't be told from what follows",
  )
  return after[len(before) :]


def _alone(
    tokenizer: Tokenizer,
    message: Message,
    mark: str,
    ends: list[str],
    variables: dict[str, Any],
) -> str:
  """What the template writes for one assistant message, from the generation prompt."""
  before, _ = written(tokenizer, _ASK, None, True, variables)
  whole, _ = written(tokenizer, [*_ASK, message], None, False, variables, mark)
  require(
      whole.startswith(before),
      "the generation prompt is not how the chat template starts an assistant's turn",
  )
  return whole[len(before) : first_end(whole, ends, len(before))]


def continued(tokenizer: Tokenizer, header: str, said: str, mark: str) -> list[int]:
  """Ids of `said` after those of `header`, which stays as it is when sampling."""
  if not header:
    return tokenizer.encode_rendered(said, mark, start=False)[0]
  whole, _ = tokenizer.encode_rendered(header + said, mark, start=False)
  head, _ = tokenizer.encode_rendered(header, mark, start=False)
  if whole[: len(head)] == head:
    return whole[len(head) :]
  return tokenizer.encode_rendered(said, mark, start=False)[0]


def _occurrences(text: str, part: str) -> list[int]:
  found, at = [], text.find(part)
  while at >= 0:
    found.append(at)
    at = text.find(part, at + len(part))
  return found


def first_end(text: str, tokens: list[str], start: int) -> int:
  """Where the first of `tokens` at or after `start` ends, -1 if there is none."""
  found = [(at, -len(t)) for t in tokens if (at := text.find(t, start)) >= 0]
  return min(found)[0] - min(found)[1] if found else -1
