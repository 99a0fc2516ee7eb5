"""What one record gives to train on: a chat or a trajectory as sequences of ids.

A record is JSON. A chat holds `messages` and may hold `tools`: what its assistant
says is trained. A trajectory (`contracts.trajectory`) keeps the ids that were
sampled; one whose upstream gave text alone is laid out like a chat. Either way
every answer is trained exactly once, or the record is refused with a cause: it is
bad (`Bad`), or what it tells of is not worth learning (`NotChosen`).
"""

from __future__ import annotations

from typing import Any

from clawgym_jax.chat.conversation import render
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.contracts.trajectory import Step, Trajectory, trajectory_from_record
from clawgym_jax.data.sequence import Sequence, supervised
from clawgym_jax.data.trajectories import paths, sequences_of

# The causes of `Bad`.
UNREADABLE = "unreadable"
WRONG_TYPE = "no chat and no trajectory"
NO_LAYOUT = "can't be laid out"
NOTHING_TRAINED = "nothing to train on"
TOO_LONG = "longer than a row"

# What a strange value makes of code that reads or renders it.
_STRANGE = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError)


class Bad(Exception):
  """A record that can't be trained on: `cause` is of a few, `detail` says more."""

  def __init__(self, cause: str, detail: str):
    super().__init__(f"{cause}: {detail}")
    self.cause = cause
    self.detail = detail


class NotChosen(Exception):
  """A whole record that is left out for how its attempt ended; says why."""


def sequences(
    data: bytes, tokenizer: Tokenizer, *, min_reward: float = 0.0
) -> list[Sequence]:
  """The sequences of one record, at least one.

  Args:
    data: UTF-8 JSON.
    min_reward: trajectories whose checks gave less are not chosen.

  Raises:
    Bad, NotChosen: there are none.
    UserError: the tokenizer has no chat template.
  """
  record = parse(data)
  if isinstance(record, Trajectory):
    _choose(record, min_reward)
    made = _of_trajectory(record, tokenizer)
  else:
    made = [_of_messages(record["messages"], record.get("tools"), tokenizer)]
  made = [sequence for sequence in made if sequence.trained_tokens]
  if not made:
    raise Bad(NOTHING_TRAINED, "no assistant says anything in it")
  return made


def parse(data: bytes) -> dict[str, Any] | Trajectory:
  """A chat, its messages checked, or a trajectory; else `Bad`."""
  try:
    value = json_text.parse(data)
  except ValueError as error:
    raise Bad(UNREADABLE, f"not JSON ({error})") from None
  if isinstance(value, dict) and "steps" in value:
    try:
      return trajectory_from_record(value)
    except _STRANGE as error:
      detail = f"a trajectory that breaks its contract ({error})"
      raise Bad(WRONG_TYPE, detail) from None
  _check_chat(value)
  return value


def text(data: bytes) -> str:
  """What a record says, as JSON, to train a vocabulary on; `Bad` as `parse`."""
  record = parse(data)
  if isinstance(record, Trajectory):
    said = [record.conversation(leaf) for leaf in record.leaves()]
    return "\n".join(map(json_text.dump, said))
  return json_text.dump(record)


def _check_chat(value: Any) -> None:
  messages = value.get("messages") if isinstance(value, dict) else None
  if not isinstance(messages, list) or not messages:
    raise Bad(
        WRONG_TYPE,
        'a chat is {"messages": [{"role": …, "content": …}, …]}, and a trajectory has'
        " steps",
    )
  for number, message in enumerate(messages):
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
      raise Bad(WRONG_TYPE, f"message {number} has no role")
    if not isinstance(message.get("content"), str | list | None):
      raise Bad(WRONG_TYPE, f"the content of message {number} is no text")
  tools = value.get("tools")
  if tools is not None and not (
      isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)
  ):
    raise Bad(WRONG_TYPE, "tools is no list of schemas")


def _choose(trajectory: Trajectory, min_reward: float) -> None:
  outcome = trajectory.outcome
  if outcome.status != "scored":
    raise NotChosen(outcome.status)
  if outcome.code < min_reward:
    raise NotChosen("below min_reward")


def _of_trajectory(trajectory: Trajectory, tokenizer: Tokenizer) -> list[Sequence]:
  have = {step.response_ids is not None for step in trajectory.steps}
  if len(have) > 1:
    raise Bad(WRONG_TYPE, "some of its steps have token ids and some text alone")
  if have == {False}:
    return [_of_texts(*path, tokenizer) for path in paths(trajectory)]
  try:
    made = sequences_of(trajectory)
  except _STRANGE as error:
    raise Bad(WRONG_TYPE, str(error)) from None
  for sequence in made:
    low, high = int(sequence.tokens.min()), int(sequence.tokens.max())
    if low < 0 or high >= tokenizer.vocab_size:
      raise Bad(
          WRONG_TYPE,
          f"it was sampled with another vocabulary: ids from {low} to {high}, and the"
          f" model has {tokenizer.vocab_size}",
      )
  return made


def _of_texts(chain: list[Step], learnt: set[str], tokenizer: Tokenizer) -> Sequence:
  """One path of steps without ids; answers of steps not in `learnt` are context."""
  messages: list[dict[str, Any]] = []
  answers = set()
  for step in chain:
    messages += step.messages
    if step.step_id in learnt:
      answers.add(len(messages))
    messages.append(step.response)
  return _of_messages(messages, chain[0].tools, tokenizer, answers)


def _of_messages(
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    tokenizer: Tokenizer,
    answers: set[int] | None = None,
) -> Sequence:
  """A conversation up to its last answer; `answers` are the trained ones, None: all."""
  try:
    spans = render(tokenizer, messages, tools)
  except _STRANGE as error:
    detail = str(error) if isinstance(error, RecordError) else repr(error)
    raise Bad(NO_LAYOUT, detail) from None
  tokens: list[int] = []
  trained: list[bool] = []
  whole = 0
  for span in spans:
    learn = span.trained and (answers is None or span.message_index in answers)
    tokens += span.ids
    trained += [learn] * len(span.ids)
    if learn:
      whole = len(tokens)
  if not whole:
    raise Bad(NOTHING_TRAINED, "no assistant says anything in it")
  return supervised(tokens[:whole], trained[:whole])
