"""Tensors that are read when they are needed: what every format is turned into.

A checkpoint is a dict from Hugging Face's names to `Tensor`. Names, shapes and
types are known at once; bytes are read when `read` is called and are held no
longer than the caller holds them, so that a conversion needs the memory of one
tensor, however large the checkpoint is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = {np.dtype(kind) for kind in ("float64", "float32", "float16")} | {BFLOAT16}
"""Types that a change of the weights' type applies to."""
BLOCK = 1 << 24
"""Elements that are converted at once."""


@dataclass(frozen=True)
class Tensor:
  """A tensor that is not in memory.

  Attributes:
    shape, dtype: of what `read` gives.
    read: gives the values; a file's are mapped, not copied.
    at: file and offset of its bytes where they lie in one piece, C order.
  """

  shape: tuple[int, ...]
  dtype: np.dtype
  read: Callable[[], np.ndarray]
  at: tuple[Path, int] | None = None

  @property
  def size(self) -> int:
    return math.prod(self.shape)

  @property
  def nbytes(self) -> int:
    return self.size * self.dtype.itemsize


def held(value: Any) -> Tensor:
  """A tensor that is in memory already."""
  array = np.asarray(value)
  return Tensor(array.shape, array.dtype, lambda: array)


def mapped(path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> Tensor:
  """The tensor whose bytes lie in a file; each `read` maps them anew."""

  def read() -> np.ndarray:
    if not math.prod(shape):
      return np.empty(shape, dtype)  # nothing can't be mapped
    return np.memmap(path, dtype, "r", offset, shape).view(np.ndarray)

  return Tensor(shape, dtype, read, (path, offset))


def part(tensor: Tensor, index: Any) -> Tensor:
  """tensor[index], read with the whole."""
  shape = np.broadcast_to(np.empty(()), tensor.shape)[index].shape
  return Tensor(shape, tensor.dtype, lambda: tensor.read()[index])


def cast(tensor: Tensor, dtype: Any) -> Tensor:
  """`tensor` in another float type; what holds no floats stays as it is."""
  if dtype is None or tensor.dtype == dtype or tensor.dtype not in FLOATS:
    return tensor
  dtype = np.dtype(dtype)

  def read() -> np.ndarray:
    source = np.ascontiguousarray(tensor.read()).reshape(-1)
    out = np.empty(tensor.size, dtype)
    for start in range(0, tensor.size, BLOCK):
      out[start : start + BLOCK] = source[start : start + BLOCK]
    return out.reshape(tensor.shape)

  return replace(tensor, dtype=dtype, read=read, at=None)


def kind(tensors: dict[str, Tensor]) -> str:
  """The type most of the weights have, as config.json says it."""
  sizes: dict[str, int] = {}
  for tensor in tensors.values():
    sizes[tensor.dtype.name] = sizes.get(tensor.dtype.name, 0) + tensor.size
  return max(sizes, key=sizes.get)
