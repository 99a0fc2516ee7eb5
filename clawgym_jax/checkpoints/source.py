"""One reader for whatever names a model: a GGUF file, a package or a folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.checkpoints import gguf, hf
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import CausalLM

_HUB = re.compile(r"\w[\w.-]*/[\w.-]+")  # the form of an id, owner/name


def load(
    source: str, *, flag: str, also: Sequence[str] = (), **kw: Any
) -> tuple[CausalLM, Tokenizer]:
  """The model and tokenizer that `source` names.

  Args:
    source: a .gguf file, package:NAME or a model folder.
    flag: what the user gave it by, for errors.
    also: what else the caller takes there, for errors.
    kw: of `CausalLM`, such as compute_dtype.

  Raises:
    UserError: it is none of these, or damaged.
  """
  reader = gguf if _is_gguf(source, flag, also) else hf
  return reader.load(source, **kw)


def read(
    source: str, *, flag: str, also: Sequence[str] = (), dtype: str = "float32"
) -> hf.Checkpoint:
  """The model that `source` names, not in memory; arguments as `load`'s.

  `dtype` is what a GGUF file's weights become.
  """
  if _is_gguf(source, flag, also):
    return gguf.read(source, dtype)
  return hf.read(source)


def tokenizer(source: str, *, flag: str, also: Sequence[str] = ()) -> Tokenizer:
  """The tokenizer alone of the model that `source` names; arguments as `load`'s."""
  if _is_gguf(source, flag, also):
    return gguf.tokenizer(source)
  return Tokenizer.load(Path(source))


def _is_gguf(source: str, flag: str, also: Sequence[str]) -> bool:
  """Whether it is a GGUF file; else it is a folder, or a `UserError`."""
  path = Path(source)
  if source.startswith("package:") or path.suffix == ".gguf":
    return True
  if (path / "config.json").is_file():
    return False
  forms = (
      "a .gguf file",
      "package:NAME",
      "a Hugging Face folder (with config.json)",
      *also,
  )
  if (path / "adapter_config.json").is_file():
    raise UserError(
        f"{flag}={source} is a LoRA adapter: merge it into its base first, with"
        f" `python -m clawgym_jax.convert --from=BASE --adapter={source} --to=DIR`"
    )
  problem = "is none of" if path.exists() else "does not exist, and is none of"
  hub = ""
  if not path.exists() and _HUB.fullmatch(source):
    hub = f"; a model of the Hub: `hf download {source} --local-dir=DIR` and give DIR"
  raise UserError(f"{flag}={source} {problem}: {', '.join(forms)}{hub}")
