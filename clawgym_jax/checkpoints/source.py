"""One reader for whatever names a model: a GGUF file, a package or a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.checkpoints import gguf, hf
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import CausalLM


def load(
    source: str, *, flag: str, also: Sequence[str] = (), **kw: Any
) -> tuple[CausalLM, Tokenizer]:
  """The model and tokenizer that `source` names.

  Args:
    source: a .gguf file, package:NAME or a Hugging Face folder.
    flag: what the user gave it by, for errors.
    also: what else the caller takes there, for errors.
    kw: of `CausalLM`, such as compute_dtype.

  Raises:
    UserError: it is none of these, or damaged.
  """
  path = Path(source)
  if source.startswith("package:") or path.suffix == ".gguf":
    return gguf.load(source, **kw)
  if (path / "config.json").is_file():
    return hf.load(path, **kw)
  forms = (
      "a .gguf file",
      "package:NAME",
      "a Hugging Face folder (with config.json)",
      *also,
  )
  problem = "is none of" if path.exists() else "does not exist, and is none of"
  raise UserError(f"{flag}={source} {problem}: {', '.join(forms)}")
