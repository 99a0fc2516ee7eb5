"""What was sampled, exactly: a tree of steps, and how the attempt ended.

A `Step` is one model call. Its prompt is stored as a delta against its
parent's prompt and response, so a conversation of n turns takes O(n) bytes.
Token ids and log-probs come from the engine that sampled them and always have
one length; a difference is a `RecordError`, never padded. A step that does
not extend its conversation by exact token prefix starts a new root and says
why in `fork_cause`.

An `Outcome` is one of three. `scored`: the checks judged it. `truncated`: the
policy ran into its own limit, and the reward stands. `unscored`: something
that the policy can't cause kept it from being judged; it has no reward, and
no baseline may use it. Where the checks judged, `code` is there: the reward.
`score` is the whole, and is there only when the whole was judged: a task with a
rubric that nobody judged has `code` and no `score`, never one weighted anew.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from clawgym_jax.contracts.errors import require

Message = dict[str, Any]  # an OpenAI chat message
NEW_CONVERSATION = "new_conversation"  # the `fork_cause` where nothing was rewritten

CODE_SHARE, RUBRIC_SHARE = 0.7, 0.3  # of the score of a task with a rubric
RUBRIC_UNJUDGED = "rubric_unjudged"


@dataclass(frozen=True)
class Step:
  """One model call.

  Attributes:
    step_id: unique within its trajectory.
    parent_id: the step whose prompt + response this prompt extends, or None.
    fork_cause: why this step is a root although it is not the first one.
    messages: the request's messages that the parent does not already hold.
    response: the assistant message as it was returned to the harness.
    finish_reason: stop, tool_calls or length.
    tools: the tool schemas offered; given at roots, None where inherited.
    prompt_ids: prompt token ids beyond the parent's prompt + response; None
      where the upstream gives text only (then so are the three below).
    response_ids: sampled token ids, end-of-turn included.
    logprobs: per sampled token, of the distribution it was drawn from.
    untempered_logprobs: per sampled token, of the model at temperature 1.
    policy_versions: per sampled token, the version of the weights.
    sampling: temperature, top_p, max_tokens, seed as used.
    observation_hash: hash of the prompt's last message.
    started, finished: unix seconds.
  """

  step_id: str
  parent_id: str | None
  messages: list[Message]
  response: Message
  finish_reason: str
  fork_cause: str | None = None
  tools: list[dict[str, Any]] | None = None
  prompt_ids: list[int] | None = None
  response_ids: list[int] | None = None
  logprobs: list[float] | None = None
  untempered_logprobs: list[float] | None = None
  policy_versions: list[int] | None = None
  sampling: dict[str, Any] = field(default_factory=dict)
  observation_hash: str = ""
  started: float = 0.0
  finished: float = 0.0

  def __post_init__(self) -> None:
    per_token = (self.logprobs, self.untempered_logprobs, self.policy_versions)
    if self.response_ids is None:
      require(
          self.prompt_ids is None and all(c is None for c in per_token),
          f"step {self.step_id}: log-probs or prompt ids without response ids",
      )
      return
    require(
        self.prompt_ids is not None,
        f"step {self.step_id}: response ids without prompt ids",
    )
    for name, column in zip(
        ("logprobs", "untempered_logprobs", "policy_versions"), per_token
    ):
      require(
          column is not None and len(column) == len(self.response_ids),
          f"step {self.step_id}: {name} has"
          f" {None if column is None else len(column)} entries for"
          f" {len(self.response_ids)} response ids",
      )
    require(
        all(math.isfinite(x) for x in self.logprobs + self.untempered_logprobs),
        f"step {self.step_id}: a log-prob is not finite",
    )


@dataclass(frozen=True)
class Outcome:
  """How an attempt ended; see the module's docstring.

  Attributes:
    status: scored, truncated or unscored.
    score: what counts in a benchmark, in [0, 1]: `code` of a task without a
      rubric, `hybrid` of `code` and `rubric` of one with; None until both are
      there.
    code: what the checks gave, in [0, 1]; None where unscored.
    rubric: what a judge gave by the task's criteria, in [0, 1], if any did.
    checks: the named values that `code` averages.
    criteria: the named values that `rubric` averages.
    cause: why it isn't plainly scored; `RUBRIC_UNJUDGED` where only that is missing.
      Text that UTF-8 holds: what it doesn't, as of a file's name, is an escape.
  """

  status: str
  score: float | None = None
  code: float | None = None
  rubric: float | None = None
  checks: dict[str, float] = field(default_factory=dict)
  criteria: dict[str, float] = field(default_factory=dict)
  cause: str | None = None

  def __post_init__(self) -> None:
    require(
        self.status in ("scored", "truncated", "unscored"),
        f"unknown outcome {self.status!r}",
    )
    if self.status == "unscored":
      values = (self.score, self.code, self.rubric)
      require(values == (None, None, None), "an unscored outcome has no score")
    else:
      require(_in_range(self.code), f"code {self.code!r} is not in [0, 1]")
      self._check_score()
    if self.status != "scored" or self.awaits_rubric:
      require(bool(self.cause), "an outcome that is not plainly scored names its cause")
    if self.cause is not None:
      cause = self.cause.encode(errors="backslashreplace").decode()
      object.__setattr__(self, "cause", cause)

  def _check_score(self) -> None:
    if self.rubric is None:
      require(
          self.score in (None, self.code),
          f"score {self.score!r} is not code {self.code!r}, and no rubric was judged",
      )
      return
    require(_in_range(self.rubric), f"rubric {self.rubric!r} is not in [0, 1]")
    whole = hybrid(self.code, self.rubric)
    require(
        self.score is not None and math.isclose(self.score, whole, abs_tol=1e-9),
        f"score {self.score!r} is not {whole}, which code {self.code!r} and rubric"
        f" {self.rubric!r} give",
    )

  @property
  def awaits_rubric(self) -> bool:
    """Whether the checks judged, and the task's criteria are still to be judged."""
    return self.status != "unscored" and self.score is None


def hybrid(code: float, rubric: float) -> float:
  """The score of a task that has both (arXiv 2604.26904), all in [0, 1]."""
  return CODE_SHARE * code + RUBRIC_SHARE * rubric


def awaiting_rubric(outcome: Outcome) -> Outcome:
  """The outcome by the checks alone of a task whose criteria nobody has judged."""
  if outcome.status == "unscored":
    return outcome
  cause = outcome.cause or RUBRIC_UNJUDGED
  return dataclasses.replace(outcome, score=None, cause=cause)


def _in_range(value: float | None) -> bool:
  return value is not None and math.isfinite(value) and 0.0 <= value <= 1.0


def scored(
    code: float, checks: dict[str, float] | None = None, cause: str | None = None
) -> Outcome:
  """A judged attempt without a rubric."""
  return Outcome("scored", code, code, checks=checks or {}, cause=cause)


def truncated(
    cause: str, code: float, checks: dict[str, float] | None = None
) -> Outcome:
  """An attempt that the policy's own limit ended; its reward stands."""
  return Outcome("truncated", code, code, checks=checks or {}, cause=cause)


def unscored(cause: str) -> Outcome:
  """An attempt that could not be judged, for no fault of the policy."""
  return Outcome("unscored", cause=cause)


@dataclass(frozen=True)
class Trajectory:
  """One attempt at one task by one harness, with every model call it made."""

  id: str
  task_id: str
  group_id: str
  sample_index: int
  attempt: int
  harness: str
  steps: list[Step]
  outcome: Outcome
  final_message: str = ""
  metadata: dict[str, Any] = field(default_factory=dict)

  def chain(self, leaf: Step) -> list[Step]:
    """The steps from the root to `leaf`, in order."""
    by_id = {step.step_id: step for step in self.steps}
    path = [leaf]
    while path[-1].parent_id is not None:
      path.append(by_id[path[-1].parent_id])
    return path[::-1]

  def leaves(self) -> list[Step]:
    """Steps that no other step extends, in order."""
    parents = {step.parent_id for step in self.steps}
    return [step for step in self.steps if step.step_id not in parents]

  def conversations(self) -> list[Step]:
    """The last leaf of each conversation, in order. A new one is opened; any other
    root goes on with the one before it, in other words."""
    last: dict[int, Step] = {}
    number: dict[str, int] = {}
    opened = 0
    for step in self.steps:
      if step.parent_id is not None:
        number[step.step_id] = number[step.parent_id]
      else:
        opened += step.fork_cause == NEW_CONVERSATION
        number[step.step_id] = opened
    for leaf in self.leaves():
      last[number[leaf.step_id]] = leaf
    return list(last.values())

  def conversation(self, leaf: Step) -> list[Message]:
    """All messages up to and including `leaf`'s response."""
    messages: list[Message] = []
    for step in self.chain(leaf):
      messages += [*step.messages, step.response]
    return messages


def to_record(value: Step | Outcome | Trajectory) -> dict[str, Any]:
  """A JSON-ready dictionary; `None` is left out where it is the default."""
  record = {
      f.name: getattr(value, f.name)
      for f in dataclasses.fields(value)
      if getattr(value, f.name) is not None or f.default is dataclasses.MISSING
  }
  if isinstance(value, Trajectory):
    record["steps"] = [to_record(step) for step in value.steps]
    record["outcome"] = to_record(value.outcome)
  return record


def trajectory_from_record(record: dict[str, Any]) -> Trajectory:
  """Reads what `to_record` wrote, checked again."""
  fields = dict(record)
  fields["steps"] = [Step(**step) for step in record["steps"]]
  fields["outcome"] = Outcome(**record["outcome"])
  return Trajectory(**fields)
