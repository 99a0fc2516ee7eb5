"""Converts a model to a Hugging Face folder.

  python -m clawgym_jax.convert --from=SOURCE --to=DIR [--dtype=bfloat16]

SOURCE is a .gguf file, `package:NAME` (a Python distribution that ships one),
a Hugging Face folder, the folder of a training run's saved states, or `tiny`:
a small random model whose vocabulary is trained on --corpus.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli
from clawgym_jax.chat import vocabulary
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.checkpoints import hf, names, orbax
from clawgym_jax.checkpoints import source as checkpoint
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.data import chats
from clawgym_jax.models import CausalLM, ModelConfig, create

_FROM = flags.DEFINE_string("from", None, "What to convert.", required=True)
_TO = flags.DEFINE_string("to", None, "Folder to write.", required=True)
_DTYPE = flags.DEFINE_enum(
    "dtype", "float32", ["float32", "bfloat16"], "Weights on disk."
)
_TOKENIZER = flags.DEFINE_string(
    "tokenizer", None, "Model folder that gives the tokenizer of a training state."
)
_CORPUS = flags.DEFINE_string(
    "corpus", None, "Chats (JSON lines) that the vocabulary of `tiny` is trained on."
)
_TINY_VOCABULARY = 1024


def load(source: str, tokenizer: str | None) -> tuple[CausalLM, Tokenizer]:
  """The model at `source`, of whichever format it is."""
  path = Path(source)
  if source == "tiny":
    return _tiny()
  states = orbax.Checkpoints(path)
  if (path / "config.json").is_file() or not states.steps():
    also = ("a folder of saved training states", "tiny")
    return checkpoint.load(source, flag="--from", also=also)
  if tokenizer is None:
    raise UserError(
        "a training state has no tokenizer: give --tokenizer=DIR, the model"
        " folder that the run started from"
    )
  params, config = states.restore_params()
  model = names.build(ModelConfig.from_hf(config), names.reader(params))
  return model, Tokenizer.load(Path(tokenizer))


def _tiny() -> tuple[CausalLM, Tokenizer]:
  if _CORPUS.value is None:
    raise UserError("--from=tiny needs --corpus=FILE, chats to train a vocabulary on")
  texts = chats.texts(chats.read_chats(Path(_CORPUS.value)))
  tokenizer = vocabulary.train(texts, _TINY_VOCABULARY)
  return create.tiny_qwen3(tokenizer.vocab_size), tokenizer


def main() -> dict[str, Any]:
  target = Path(_TO.value)
  if target.is_file():
    raise UserError(f"--to={target} is a file: give the name of a folder")
  model, tokenizer = load(_FROM.value, _TOKENIZER.value)
  hf.save(target, model, tokenizer, dtype=_DTYPE.value)
  return {
      "to": str(target),
      "family": model.config.family,
      "layers": model.config.num_hidden_layers,
      "dtype": _DTYPE.value,
  }


if __name__ == "__main__":
  cli.run(main)
