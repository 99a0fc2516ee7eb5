"""The message tree of one session: which step a request extends.

A request extends the step whose whole conversation, response included, is the
longest known prefix of the request's messages, under the same tools. Only
then may its prompt be laid out as that step's exact token ids plus the new
messages. Every other request is a root of its own, with the cause.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from clawgym_jax.contracts.trajectory import NEW_CONVERSATION, Step
from sandbox.gateway import messages as chat
from sandbox.gateway.messages import Message, Request

# OpenClaw appends this message to every request and never keeps it.
_MOVING_TAIL = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"


@dataclass(frozen=True, eq=False)
class Node:
  """A recorded step in its place, equal to itself only.

  `digests` are of the step's own messages and response; `prompt_key` and
  `path_key` stand for everything up to the prompt and to the response; `usage`
  is in tokens, empty where nobody counted them.
  """

  step: Step
  parent: Node | None
  tools_digest: str
  digests: list[str]
  prompt_key: str
  path_key: str
  usage: dict[str, int]

  def path(self) -> list[Node]:
    """The nodes from the root to this one."""
    nodes = [self]
    while nodes[-1].parent is not None:
      nodes.append(nodes[-1].parent)
    return nodes[::-1]


@dataclass(frozen=True)
class Place:
  """Where a request belongs: what it extends, with which new messages, or why not."""

  parent: Node | None
  messages: list[Message]
  fork_cause: str | None


class Tree:
  """All recorded steps of a session."""

  def __init__(self, steps: list[Step] = ()) -> None:
    self.nodes: dict[str, Node] = {}
    self._by_path: dict[tuple[str, str], Node] = {}
    self._by_prompt: dict[tuple[str, str], Node] = {}
    for step in steps:
      self.add(step)

  def add(self, step: Step, usage: dict[str, int] | None = None) -> Node:
    """Records a step; its parent must be there."""
    parent = self.nodes[step.parent_id] if step.parent_id is not None else None
    digests = [chat.digest(message) for message in [*step.messages, step.response]]
    prompt_key = _chain(parent.path_key if parent else "", digests[:-1])[-1]
    node = Node(
        step=step,
        parent=parent,
        tools_digest=parent.tools_digest if parent else chat.tools_digest(step.tools),
        digests=digests,
        prompt_key=prompt_key,
        path_key=_chain(prompt_key, digests[-1:])[-1],
        usage=usage or {},
    )
    self.nodes[step.step_id] = node
    self._by_path[node.tools_digest, node.path_key] = node
    self._by_prompt[node.tools_digest, node.prompt_key] = node
    return node

  def answered(self, request: Request) -> Node | None:
    """The latest step that answered this very request."""
    key = _chain("", request.digests)[-1]
    return self._by_prompt.get((request.tools_digest, key))

  def place(self, request: Request) -> Place:
    """Where the request belongs; changes nothing."""
    keys = _chain("", request.digests)
    for length in range(len(keys) - 1, 0, -1):
      parent = self._by_path.get((request.tools_digest, keys[length]))
      if parent is not None:
        return Place(parent, request.messages[length:], None)
    return Place(None, request.messages, self._fork_cause(request, keys))

  def _fork_cause(self, request: Request, keys: list[str]) -> str | None:
    if not self.nodes:
      return None
    if (request.tools_digest, keys[-1]) in self._by_prompt:
      return "resampled"
    paths = {path for _, path in self._by_path}
    if any(key in paths for key in keys[1:-1]):
      return "tools_changed"
    parents = {node.parent.step.step_id for node in self.nodes.values() if node.parent}
    leaves = [node for name, node in self.nodes.items() if name not in parents]
    plain = _without_tail(request.messages)
    for leaf in leaves:
      if _common(plain, known := _without_tail(_conversation(leaf))) == len(known):
        return "moving_tail"
    found = [_divergence(request, _digests(leaf)) for leaf in leaves]
    return max(found, key=lambda pair: pair[0])[1]


def _divergence(request: Request, known: list[str]) -> tuple[int, str]:
  """How many messages a known conversation has in common, and what came then."""
  systems = [m["role"] for m in request.messages].count("system")
  common = _common(known, request.digests)
  if common < systems:
    same_rest = known[systems : systems + 1] == request.digests[systems : systems + 1]
    return common, "system_changed" if same_rest else NEW_CONVERSATION
  answered = any(m["role"] in ("assistant", "tool") for m in request.messages)
  if common == systems and not answered:
    return common, NEW_CONVERSATION
  shrunk = len(request.digests) < len(known) - 1  # than the last prompt
  return common, "compaction" if shrunk else "history_rewritten"


def _chain(start: str, digests: list[str]) -> list[str]:
  """Keys after 0, 1, 2 ... messages."""
  keys = [start]
  for digest in digests:
    keys.append(chat.combine(keys[-1], digest))
  return keys


def _digests(node: Node) -> list[str]:
  return [digest for n in node.path() for digest in n.digests]


def _conversation(node: Node) -> list[Message]:
  return [m for n in node.path() for m in [*n.step.messages, n.step.response]]


def _without_tail(messages: list[Message]) -> list[str]:
  return [
      chat.digest(message)
      for message in messages
      if not (
          message["role"] == "user"
          and chat.text_of(message.get("content")).startswith(_MOVING_TAIL)
      )
  ]


def _common(left: list[str], right: list[str]) -> int:
  pairs = zip(left, right)
  return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
