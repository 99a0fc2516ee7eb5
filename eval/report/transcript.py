"""A trajectory as the turns that the viewer shows, small enough to embed.

Turns follow the order of the model calls. A call that does not continue the
one before it carries a note that says what it continues and why it forked.
Long texts are cut with a note of how much is missing; token data is optional.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.contracts.trajectory import (
    NEW_CONVERSATION,
    Message,
    Step,
    Trajectory,
)

_NEW = "New conversation"
MAX_CHARACTERS = 20_000  # of one text


class Shared:
  """Texts that many trajectories hold, stored once: system turns and tools."""

  def __init__(self) -> None:
    self.values: list[str] = []
    self._index: dict[str, int] = {}

  def add(self, text: str) -> int:
    if text not in self._index:
      self._index[text] = len(self.values)
      self.values.append(text)
    return self._index[text]


def turns(trajectory: Trajectory, shared: Shared) -> list[dict[str, Any]]:
  """The turns as JSON: role, text, calls, and for sampled ones their figures."""
  if not trajectory.steps:  # a harness without a model keeps its own transcript
    return _told(trajectory.metadata.get("transcript", ()))
  result: list[dict[str, Any]] = []
  before: Step | None = None
  for step in trajectory.steps:
    note = _note(step, before)
    for message in step.messages:
      turn = _turn(message)
      if turn["role"] == "system":
        turn["shared"] = shared.add(turn.pop("text"))
      if note:
        turn["note"], note = note, ""
      result.append(turn)
    if step.tools and result:
      first = len(result) - len(step.messages)
      result[min(first, len(result) - 1)]["tools"] = shared.add(
          json.dumps(step.tools, ensure_ascii=False)
      )
    turn = _turn(step.response)
    turn |= {
        "step": step.step_id,
        "finish": step.finish_reason,
        "seconds": round(max(0.0, step.finished - step.started), 3),
    }
    if note:
      turn["note"] = note
    if step.response_ids is not None:
      turn["prompt_tokens"] = len(step.prompt_ids)
      turn["response_tokens"] = len(step.response_ids)
    result.append(turn)
    before = step
  return result


def _told(messages: Sequence[Message]) -> list[dict[str, Any]]:
  """Turns of a transcript; a system message opens a conversation there."""
  result = [_turn(message) for message in messages]
  for turn in result[1:]:
    if turn["role"] == "system":
      turn["note"] = _NEW
  return result


def tokens(trajectory: Trajectory, tokenizer: Tokenizer | None) -> dict[str, Any]:
  """Per step with ids: [texts, ids, log-probs, tempered ones, versions].

  Log-probs are of the model at temperature 1; the tempered ones, which were
  drawn from, are left out (None) where they are the same.
  """
  result = {}
  for step in trajectory.steps:
    if step.response_ids:
      plain = [round(x, 3) for x in step.untempered_logprobs]
      drawn = [round(x, 3) for x in step.logprobs]
      versions = sorted(set(step.policy_versions))
      result[step.step_id] = {
          "texts": pieces(step.response_ids, tokenizer),
          "ids": step.response_ids,
          "logprobs": plain,
          "drawn": None if drawn == plain else drawn,
          "versions": versions if len(versions) == 1 else step.policy_versions,
      }
  return result


def pieces(ids: list[int], tokenizer: Tokenizer | None) -> list[str]:
  """The text of each token; their concatenation is the text of them all.

  A character split over several tokens stands at the last of them. Without a
  tokenizer there is no text, and the viewer shows the ids.
  """
  if tokenizer is None:
    return []
  result, start = [], 0
  for i in range(len(ids)):
    text = tokenizer.decode(ids[start : i + 1])
    if text.endswith("\N{REPLACEMENT CHARACTER}") and i + 1 - start < 8:
      result.append("")
    else:
      result.append(text)
      start = i + 1
  if start < len(ids):
    result[-1] = tokenizer.decode(ids[start:])
  if "".join(result) == tokenizer.decode(ids):
    return result
  # a decoder that looks at neighbours: take what each prefix adds
  prefixes = [tokenizer.decode(ids[:i]) for i in range(len(ids) + 1)]
  return [new[len(old) :] for old, new in zip(prefixes, prefixes[1:])]


def instruction(trajectory: Trajectory) -> str:
  """The first user message's text, or an empty one."""
  messages = [m for step in trajectory.steps[:1] for m in step.messages]
  for message in messages or trajectory.metadata.get("transcript", ()):
    if message.get("role") == "user":
      return _text(message.get("content"))
  return ""


def _turn(message: Message) -> dict[str, Any]:
  turn: dict[str, Any] = {
      "role": str(message.get("role", "unknown")),
      "text": cut(_text(message.get("content"))),
  }
  if message.get("reasoning_content"):
    turn["reasoning"] = cut(_text(message["reasoning_content"]))
  if message.get("tool_call_id"):
    turn["answers"] = str(message["tool_call_id"])
  if message.get("name"):
    turn["name"] = str(message["name"])
  calls = [_call(c) for c in message.get("tool_calls") or []]
  if calls:
    turn["calls"] = calls
  return turn


def _call(call: dict[str, Any]) -> dict[str, Any]:
  function = call.get("function") or {}
  raw = function.get("arguments", "")
  result = {"id": str(call.get("id", "")), "name": str(function.get("name", ""))}
  try:
    arguments = json_text.parse(raw) if isinstance(raw, str) else raw
  except ValueError:
    arguments = None
  if not isinstance(arguments, dict):
    return result | {"raw": cut(raw if isinstance(raw, str) else json.dumps(raw))}
  return result | {
      "arguments": {
          str(k): cut(v if isinstance(v, str) else json.dumps(v, ensure_ascii=False, indent=1))
          for k, v in arguments.items()
      }
  }


def _text(content: Any) -> str:
  if content is None:
    return ""
  if isinstance(content, str):
    return content
  if isinstance(content, list):
    return "\n".join(
        str(part["text"])
        if isinstance(part, dict) and "text" in part
        else f"[{part.get('type', 'part') if isinstance(part, dict) else 'part'}]"
        for part in content
    )
  return json.dumps(content, ensure_ascii=False)


def cut(text: str) -> str:
  """`text`, or its beginning and end with a note of what is missing."""
  if len(text) <= MAX_CHARACTERS:
    return text
  half = MAX_CHARACTERS // 2
  missing = len(text) - 2 * half
  return f"{text[:half]}\n[… {missing:,} characters left out …]\n{text[-half:]}"


def _note(step: Step, before: Step | None) -> str:
  if before is None or step.parent_id == before.step_id:
    return ""
  if step.parent_id is None and step.fork_cause == NEW_CONVERSATION:
    return _NEW
  if step.parent_id is None:
    return f"{_NEW}: {step.fork_cause or 'no cause recorded'}"
  return f"Continues from call {step.parent_id}" + (
      f": {step.fork_cause}" if step.fork_cause else ""
  )
