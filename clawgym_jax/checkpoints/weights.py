"""Weights as an Orbax checkpoint: Hugging Face's name -> array, nothing stacked.

The folder is a Hugging Face folder whose weights lie in `weights/`, which Orbax
alone restores as a dict of arrays. Each array is one chunk without compression
(zarr version 2), that is a file of its values in C order: so bytes go from file
to file inside the kernel, and a reader maps what it needs of them.
`weights_writer` writes them; reading takes no Orbax, whose import is a second.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clawgym_jax.checkpoints import safetensors
from clawgym_jax.checkpoints.tensors import Tensor, mapped, whole
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError

FOLDER = "weights"
_ABOUT = ".zarray"


def read(directory: Path) -> dict[str, Tensor]:
  """The tensors of a model folder; `UserError` where they are damaged."""
  found = {}
  for about in sorted((directory / FOLDER).glob(f"*/{_ABOUT}")):
    try:
      values = json_text.parse(about.read_text())
      shape, kind = whole(values["shape"]), np.dtype(values["dtype"])
      if kind not in safetensors.TYPES.values():
        raise ValueError(f"its values are {values['dtype']!r}")
      coded = values["compressor"], values["filters"]
      if (coded, values["order"]) != ((None, None), "C"):
        raise ValueError("its values are compressed or in another order")
      if values["chunks"] != values["shape"]:
        raise ValueError("it has more than one chunk")
      path = about.parent / chunk(shape)
      tensor = mapped(path, 0, shape, kind)
      if path.stat().st_size != tensor.nbytes:
        raise ValueError(f"{path.name} has not {tensor.nbytes} bytes")
    except (ValueError, KeyError, TypeError, OSError) as error:
      raise UserError(
          f"{about.parent} is damaged or was not written by --format=orbax"
          f" ({error}): write it again"
      ) from error
    found[about.parent.name] = tensor
  if not found:
    raise UserError(f"{directory / FOLDER} is damaged (it has no arrays): write it again")
  return found


def chunk(shape: tuple[int, ...]) -> str:
  """The file name of an array's first chunk."""
  return ".".join("0" * len(shape)) or "0"
