"""Safetensors files, read and written without holding a tensor that isn't needed.

A file is an unsigned 64-bit length, a JSON header of that length and the
tensors' bytes (https://github.com/huggingface/safetensors, "Format"). A header
is believed only where it fits the file: every byte belongs to exactly one
tensor. Bytes of a tensor whose type stays the same go from file to file inside
the kernel.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from clawgym_jax.checkpoints.folder import sync
from clawgym_jax.checkpoints.tensors import Tensor, append, mapped, whole
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD_BYTES = 5_000_000_000
_LONGEST_HEADER = 100_000_000  # as the safetensors library's
TYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
TYPES = {name: np.dtype(kind) for name, kind in TYPES.items()}
_NAMES = {kind: name for name, kind in TYPES.items()}


def read_file(path: Path) -> dict[str, Tensor]:
  """The tensors of one file, by name; `UserError` where it is missing or damaged."""
  try:
    with open(path, "rb") as file:
      size = os.fstat(file.fileno()).st_size
      length = int.from_bytes(file.read(8), "little")
      if size < 8 or length > min(size - 8, _LONGEST_HEADER):
        raise ValueError("its header is longer than it")
      header = json_text.parse(file.read(length))
    header.pop("__metadata__", None)
    found = {}
    end = 0
    for name, entry in sorted(header.items(), key=lambda e: e[1]["data_offsets"]):
      kind = TYPES[entry["dtype"]]
      shape = whole(entry["shape"])
      start, stop = whole(entry["data_offsets"])
      if start != end or stop - start != math.prod(shape) * kind.itemsize:
        raise ValueError(f"the bytes of {name} are not where its header says")
      end = stop
      found[name] = mapped(path, 8 + length + start, shape, kind)
    if 8 + length + end != size:
      raise ValueError(f"it has {size} bytes, its header says {8 + length + end}")
  except FileNotFoundError:
    raise UserError(f"{path} is missing: copy the model folder again, whole") from None
  except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
    raise UserError(
        f"{path} is damaged ({error}): copy or write the file again"
    ) from error
  return found


def read_folder(directory: Path) -> dict[str, Tensor]:
  """The tensors of a model folder, whose weights are one file or an index's."""
  index = directory / INDEX
  if not index.exists():
    if not (directory / SINGLE).exists() and any(directory.glob("*.bin")):
      raise UserError(
          f"{directory} holds pickled weights, which are not read: save the model"
          " as safetensors first"
      )
    return read_file(directory / SINGLE)
  try:
    where = json_text.parse(index.read_text())["weight_map"]
    files = sorted(set(where.values()))
    for file in files:
      if not file.endswith(".safetensors") or set(file) & set("/\\"):
        raise ValueError(f"{file!r} is not the name of a file beside it")
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise UserError(f"{index} is damaged ({error}): write it again") from error
  shards = {name: read_file(directory / name) for name in files}
  found = {}
  for name, file in where.items():
    if name not in shards[file]:
      raise UserError(f"{directory / file} has no tensor {name}, which {INDEX} says")
    found[name] = shards[file][name]
  for file, tensors in shards.items():
    for name in tensors.keys() - where.keys():
      raise UserError(f"{directory / file} has a tensor {name} that {INDEX} lacks")
  return found


def write_folder(
    directory: Path,
    tensors: dict[str, Tensor],
    *,
    shard_bytes: int = SHARD_BYTES,
    done: Callable[[int], Any] = lambda nbytes: None,
) -> None:
  """Writes the weights of a model folder, in files of at most `shard_bytes`.

  A tensor larger than that has a file of its own. `done` is told of bytes as
  they are written.
  """
  shards: list[dict[str, Tensor]] = [{}]
  size = 0
  for name, tensor in tensors.items():
    if shards[-1] and size + tensor.nbytes > shard_bytes:
      shards.append({})
      size = 0
    shards[-1][name] = tensor
    size += tensor.nbytes
  where = {}
  # A file is on its way to the disk while the next one is written.
  with ThreadPoolExecutor(1) as background:
    waiting = []
    for number, shard in enumerate(shards, 1):
      file = SINGLE
      if len(shards) > 1:
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
      where |= dict.fromkeys(shard, file)
      _write(directory / file, shard, done)
      waiting.append(background.submit(sync, directory / file))
    for synced in waiting:
      synced.result()
  if len(shards) > 1:
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    write_json(directory / INDEX, index)


def write_file(
    path: Path,
    tensors: dict[str, Tensor],
    *,
    done: Callable[[int], Any] = lambda nbytes: None,
) -> None:
  """Writes one file and returns once it is on the disk."""
  _write(path, tensors, done)
  sync(path)


def _write(
    path: Path, tensors: dict[str, Tensor], done: Callable[[int], Any]
) -> None:
  # Wide types first, so that every tensor's offset is a multiple of its type's.
  order = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
  header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
  end = 0
  for name in order:
    tensor = tensors[name]
    start, end = end, end + tensor.nbytes
    header[name] = {
        "dtype": _NAMES[tensor.dtype],
        "shape": list(tensor.shape),
        "data_offsets": [start, end],
    }
  text = json.dumps(header, separators=(",", ":")).encode()
  text += b" " * (-len(text) % 8)
  with open(path, "wb") as file:
    file.write(len(text).to_bytes(8, "little") + text)
    file.flush()
    for name in order:
      append(file.fileno(), tensors[name])
      done(tensors[name].nbytes)
