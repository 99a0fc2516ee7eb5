"""Converts a model between formats, tensor by tensor.

  python -m clawgym_jax.convert --from=SOURCE --to=DIR [--format=huggingface]
      [--dtype=bfloat16] [--adapter=DIR] [--tokenizer=DIR]

SOURCE is a Hugging Face folder, a folder that --format=orbax wrote, a .gguf
file, `package:NAME` (a Python distribution that ships one), the folder of a
training run's saved states, or `tiny`: a small random model whose vocabulary is
trained on --corpus. DIR appears whole or not at all. Memory is that of the
largest tensor, not of the model. Accelerators are left alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
from absl import flags, logging
from flax import nnx

from clawgym_jax import cli
from clawgym_jax.chat import vocabulary
from clawgym_jax.checkpoints import folder, hf, names, peft
from clawgym_jax.checkpoints import source as checkpoint
from clawgym_jax.checkpoints.tensors import cast
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.data import corpus
from clawgym_jax.models import create
from clawgym_jax.parallel.host import keep_memory

_FROM = flags.DEFINE_string("from", None, "What to convert.", required=True)
_TO = flags.DEFINE_string("to", None, "Folder to write.", required=True)
_FORMAT = flags.DEFINE_enum(
    "format",
    "huggingface",
    ["huggingface", "orbax", "peft"],
    "What to write: a model in safetensors files, a model as an Orbax checkpoint,"
    " or the adapter that a run with LoRA trained.",
)
_DTYPE = flags.DEFINE_enum(
    "dtype",
    None,
    ["float32", "bfloat16", "float16"],
    "Weights on disk; the source's by default, and float32 from GGUF.",
)
_SHARD_GB = flags.DEFINE_float(
    "shard_gb", 5.0, "Most gigabytes of weights in one file.", lower_bound=1e-6
)
_ADAPTER = flags.DEFINE_string(
    "adapter", None, "Folder of a LoRA adapter (peft) to merge into the model."
)
_TOKENIZER = flags.DEFINE_string(
    "tokenizer", None, "Model folder that gives the tokenizer of a training state."
)
_CORPUS = flags.DEFINE_string(
    "corpus", None, "Chats (JSON lines) that the vocabulary of `tiny` is trained on."
)
_TINY_VOCABULARY = 1024


def read(source: str, *, tokenizer: str | None, dtype: str | None) -> hf.Checkpoint:
  """The model at `source`, of whichever format it is.

  Args:
    source: what --from takes.
    tokenizer: what --tokenizer takes.
    dtype: of what GGUF's weights become.
  """
  if source == "tiny":
    return _tiny()
  if Path(source).is_dir() and not (Path(source) / "config.json").exists():
    from clawgym_jax.checkpoints import orbax, state  # imports Orbax

    states = orbax.Checkpoints(source)
    if states.steps():
      return state.read(states, _start(tokenizer))
  found = checkpoint.read(
      source,
      flag="--from",
      also=("a folder of saved training states (checkpoints/ of a run)", "tiny"),
      dtype=dtype or "float32",
  )
  if tokenizer is not None:
    raise UserError(
        f"--tokenizer is for a training state, and --from={source} is a model: its own"
        " tokenizer goes along"
    )
  return found


def _start(tokenizer: str | None) -> Path:
  if tokenizer is None:
    raise UserError(
        "a training state has no tokenizer: give --tokenizer=DIR, the model"
        " folder that the run started from"
    )
  return Path(tokenizer)


def _tiny() -> hf.Checkpoint:
  if _CORPUS.value is None:
    raise UserError("--from=tiny needs --corpus=FILE, chats to train a vocabulary on")
  texts = corpus.open_sources(_CORPUS.value).texts()
  tokenizer = vocabulary.train(texts, _TINY_VOCABULARY)
  model = create.tiny_qwen3(tokenizer.vocab_size)
  tensors = names.tensors(nnx.state(model, nnx.Param))
  return hf.of(model.config, tensors, tokenizer)


def _check_target(target: Path, sources: list[str | None]) -> None:
  """Refuses a target before any work, where it is a source or no model."""
  folder.refuse_other(target)
  place = target.resolve()
  for source in sources:
    if source and place in (Path(source).resolve(), *Path(source).resolve().parents):
      raise UserError(
          f"--to={target} is what is read, or holds it: give another folder"
      )


def main() -> dict[str, Any]:
  logging.set_verbosity(logging.FATAL)  # Orbax logs every step, and our errors too
  jax.config.update("jax_platforms", "cpu")  # a run may hold the others
  keep_memory()  # else every tensor pays for its pages anew, most of a conversion
  target = Path(_TO.value)
  _check_target(target, [_FROM.value, _ADAPTER.value, _TOKENIZER.value])
  if _CORPUS.value and _FROM.value != "tiny":
    raise UserError("--corpus is for --from=tiny: leave it out")
  if _FORMAT.value == "peft":
    return _write_adapter(target)
  model = read(_FROM.value, tokenizer=_TOKENIZER.value, dtype=_DTYPE.value)
  if _ADAPTER.value:
    model = peft.merged(model, peft.read(_ADAPTER.value))
  _tell_replaced(target)
  total = sum(tensor.size for tensor in model.tensors.values())
  size = sum(cast(n, t, _DTYPE.value).nbytes for n, t in model.tensors.items())
  with cli.progress(size, "weights", unit="B") as bar:
    hf.write(
        target,
        model,
        orbax=_FORMAT.value == "orbax",
        dtype=_DTYPE.value,
        shard_bytes=int(_SHARD_GB.value * 1e9),
        done=bar.update,
    )
  _tell(target, len(model.tensors), size)
  return {
      "to": str(target),
      "family": model.config["model_type"],
      "layers": model.config["num_hidden_layers"],
      "parameters": total,
      "dtype": hf.read_json(target / "config.json").get("dtype"),
  }


def _write_adapter(target: Path) -> dict[str, Any]:
  from clawgym_jax.checkpoints import orbax, state  # imports Orbax

  for flag in (_ADAPTER, _DTYPE):
    if flag.value:
      raise UserError(f"--format=peft takes no --{flag.name}")
  states = orbax.Checkpoints(_FROM.value)
  if not states.steps():
    raise UserError(
        f"--from={_FROM.value} holds no saved training states: --format=peft writes"
        " the adapter that a run trained"
    )
  adapter = state.adapter(states, str(_start(_TOKENIZER.value)))
  _tell_replaced(target)
  peft.write(target, adapter)
  factors = [factor for pair in adapter.factors.values() for factor in pair]
  _tell(target, len(factors), sum(factor.nbytes for factor in factors))
  return {
      "to": str(target),
      "rank": adapter.config.rank,
      "alpha": adapter.config.alpha,
      "targets": list(adapter.config.targets),
  }


def _tell_replaced(target: Path) -> None:
  if folder.is_model(target):
    print(f"{target} holds a model, which is replaced", file=sys.stderr)


def _tell(target: Path, tensors: int, nbytes: int) -> None:
  print(f"wrote {target}: {tensors} tensors, {nbytes} bytes", file=sys.stderr)


if __name__ == "__main__":
  cli.run(main)
