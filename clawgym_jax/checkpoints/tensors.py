"""Tensors that are read when they are needed: what every format is turned into.

A checkpoint is a dict from Hugging Face's names to `Tensor`. Names, shapes and
types are known at once; bytes are read when `read` is called and are held no
longer than the caller holds them, so that a conversion needs the memory of one
tensor, however large the checkpoint is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from clawgym_jax.contracts.errors import UserError

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


def whole(values: Any) -> tuple[int, ...]:
  """A shape or places in a file, as JSON has them; ValueError for anything else."""
  if not isinstance(values, list) or any(type(v) is not int or v < 0 for v in values):
    raise ValueError(f"{values!r} are not whole numbers")
  return tuple(values)


def part(tensor: Tensor, index: Any) -> Tensor:
  """tensor[index], read with the whole."""
  shape = np.broadcast_to(np.empty(()), tensor.shape)[index].shape
  return Tensor(shape, tensor.dtype, lambda: tensor.read()[index])


def cast(name: str, tensor: Tensor, dtype: Any) -> Tensor:
  """`tensor` in another float type; what holds no floats stays as it is."""
  if dtype is None or tensor.dtype == dtype or tensor.dtype not in FLOATS:
    return tensor
  dtype = np.dtype(dtype)

  def read() -> np.ndarray:
    source = np.ascontiguousarray(tensor.read()).reshape(-1)
    out = np.empty(tensor.size, dtype)
    for start in range(0, tensor.size, BLOCK):
      put(name, source[start : start + BLOCK], out[start : start + BLOCK])
    return out.reshape(tensor.shape)

  return replace(tensor, dtype=dtype, read=read, at=None)


def put(name: str, values: np.ndarray, out: np.ndarray) -> None:
  """out[...] = values; `UserError` where float16 is too narrow for them."""
  with np.errstate(over="ignore"):
    out[...] = values
  if out.dtype == np.float16 and (np.isinf(out) & np.isfinite(values)).any():
    raise UserError(
        f"{name} has values that float16 can't hold: choose bfloat16 or float32"
    )


def append(target: int, tensor: Tensor) -> None:
  """Appends a tensor's bytes to an open file, a file's inside the kernel."""
  if tensor.at is None:
    value = np.ascontiguousarray(tensor.read())
    left = memoryview(value.reshape(-1).view(np.uint8))
    while left:
      left = left[os.write(target, left) :]
    return
  path, offset = tensor.at
  left = tensor.nbytes
  with open(path, "rb") as source:
    while left:
      sent = os.sendfile(target, source.fileno(), offset, left)
      if not sent:
        raise UserError(f"{path} became shorter while it was read")
      offset, left = offset + sent, left - sent


def kind(tensors: dict[str, Tensor]) -> str:
  """The type most of the weights have, as config.json says it."""
  sizes: dict[str, int] = {}
  for tensor in tensors.values():
    sizes[tensor.dtype.name] = sizes.get(tensor.dtype.name, 0) + tensor.size
  return max(sizes, key=sizes.get)
