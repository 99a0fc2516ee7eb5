"""Chats as they come from a rollout, and a vocabulary that knows them."""

import functools
import json
from pathlib import Path

from array_record.python.array_record_module import ArrayRecordWriter

from clawgym_jax.chat import vocabulary
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.configs.base import Data
from clawgym_jax.contracts import trajectory as contract
from clawgym_jax.data import corpus

TOOLS = [{
    "type": "function",
    "function": {"name": "read", "parameters": {"properties": {"path": {}}}},
}]


def chat(turns: int = 2, name: str = "a") -> dict:
  """A conversation with `turns` tool calls and a last answer."""
  messages = [
      {"role": "system", "content": "You work on files."},
      {"role": "user", "content": f"Sum the numbers of {name}."},
  ]
  for turn in range(turns):
    messages += [
        {
            "role": "assistant",
            "content": f"step {turn}",
            "tool_calls": [{
                "id": "1",
                "type": "function",
                "function": {"name": "read", "arguments": '{"path": "a.txt"}'},
            }],
        },
        {"role": "tool", "tool_call_id": "1", "content": f"result {turn} 12 34"},
    ]
  messages.append({"role": "assistant", "content": "The sum is 46."})
  return {"messages": messages, "tools": TOOLS, "task_id": "t", "reward": 1.0}


@functools.cache
def tokenizer() -> Tokenizer:
  return vocabulary.train([json.dumps(chat(n % 4, f"file{n}")) for n in range(40)], 400)


def write(path: Path, count: int, *, turns: int | None = None) -> Path:
  """`count` chats that differ, of `turns` calls each or of none to three."""
  lines = (
      json.dumps(chat(n % 4 if turns is None else turns, f"file{n}")) + "\n"
      for n in range(count)
  )
  path.write_text("".join(lines))
  return path


def write_shard(path: Path, values: list[dict], size: int = 1) -> None:
  """An ArrayRecord file with `size` records a chunk."""
  writer = ArrayRecordWriter(str(path), f"group_size:{size},uncompressed")
  for value in values:
    writer.write(json.dumps(value).encode())
  writer.close()


def load(chats: object, cache: Path, **settings: object) -> corpus.Corpus:
  """The corpus of `chats` with a cache of its own."""
  given = {"chats": str(chats), "cache": str(cache), "row_length": 512}
  data = Data(**given | settings)
  return corpus.load(corpus.open_sources(data.chats), tokenizer(), data)


def trajectory(
    *, ids: bool, reward: float = 1.0, status: str = "scored", name: str = "t0"
) -> contract.Trajectory:
  """Three steps: a call, and two answers that both go on from it."""
  ids_of = tokenizer().encode
  end = [tokenizer().eos_id]

  def step(name: str, parent: str | None, asked: list, said: str) -> contract.Step:
    response = ids_of(said) + end
    tokens = {
        "prompt_ids": [i for m in asked for i in ids_of(m["role"] + m["content"])],
        "response_ids": response,
        "logprobs": [-0.5] * len(response),
        "untempered_logprobs": [-0.5] * len(response),
        "policy_versions": [0] * len(response),
    }
    return contract.Step(
        name,
        parent,
        asked,
        {"role": "assistant", "content": said},
        "stop",
        tools=None if parent else TOOLS,
        **(tokens if ids else {}),
    )

  steps = [
      step("s0", None, chat()["messages"][:2], "I look."),
      step("s1", "s0", [{"role": "user", "content": "And now?"}], "It is one."),
      step("s2", "s0", [{"role": "user", "content": "Or else?"}], "It is two."),
  ]
  outcome = {
      "scored": lambda: contract.scored(reward),
      "truncated": lambda: contract.truncated("turn limit", reward),
      "unscored": lambda: contract.unscored("lost"),
  }[status]()
  return contract.Trajectory(name, "task", "group", 0, 0, "claw", steps, outcome)


def children_of(pid: int) -> list[int]:
  """The processes that a process has started."""
  lines = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
  return [int(child) for line in lines for child in line.split()]


def alive(pid: int) -> bool:
  """Whether a process runs, and is not only waited for by nobody."""
  try:
    stat = Path(f"/proc/{pid}/stat").read_text()
  except OSError:
    return False
  return stat.rpartition(")")[2].split()[0] != "Z"
