"""Weights as an Orbax checkpoint: Hugging Face's name -> array, nothing stacked.

The folder is a Hugging Face folder whose weights lie in `weights/`, which Orbax
alone restores as a dict of arrays. Both ways go tensor by tensor: no more than
`_IN_FLIGHT` bytes, or one larger tensor, are on their way at once. Arrays are
not compressed: trained weights gain little and cost the time of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import tensorstore as ts

from clawgym_jax.checkpoints.folder import sync
from clawgym_jax.checkpoints.tensors import Tensor
from clawgym_jax.contracts.errors import UserError

FOLDER = "weights"
_IN_FLIGHT = 256 << 20
_CHUNK = 16 << 20
"""Bytes of rows that are stored together: buffers of this size are used again."""
_ZARR = "/.zarray"


class _Streamed(ocp.type_handlers.NumpyHandler):
  """Writes tensors that are read only when their turn comes.

  Orbax's own handler copies every array of the tree before it writes the first.
  """

  def __init__(self, done: Callable[[int], Any]):
    super().__init__(deepcopy_host_arrays=False)
    self._done = done
    self._free = _IN_FLIGHT
    self._changed = asyncio.Condition()

  async def _open_and_write(self, value: Tensor, tspec: Any, ts_context: Any) -> None:
    size = min(value.nbytes, _IN_FLIGHT)
    async with self._changed:
      await self._changed.wait_for(lambda: self._free >= size)
      self._free -= size
    array = np.require(value.read(), requirements="CA")
    # Not waited for one by one: `write` syncs what is there meanwhile.
    context = ts.Context({"file_io_sync": False}, ts_context)
    if array.nbytes > _CHUNK:
      rows = max(_CHUNK // (array.nbytes // len(array)), 1)
      tspec["metadata"]["chunks"] = [rows, *array.shape[1:]]
    await super()._open_and_write(array, tspec, context)
    del array
    self._done(value.nbytes)
    async with self._changed:
      self._free += size
      self._changed.notify_all()


def write(
    directory: Path,
    tensors: dict[str, Tensor],
    *,
    done: Callable[[int], Any] = lambda nbytes: None,
) -> None:
  """Saves `tensors` below a model folder and returns once they are on the disk.

  `done` is told of bytes as they are written.
  """
  synced: set[str] = set()
  syncing: list[Future[None]] = []

  def flush() -> None:
    with contextlib.suppress(FileNotFoundError):  # Orbax renames its folder
      for path in directory.rglob("*"):
        if path.name not in synced and path.is_file():
          sync(path)
          synced.add(path.name)

  def written(nbytes: int) -> None:
    done(nbytes)
    if not syncing or syncing[-1].done():
      syncing.append(background.submit(flush))

  registry = ocp.type_handlers.create_type_handler_registry(
      (Tensor, _Streamed(written))
  )
  handler = ocp.PyTreeCheckpointHandler(
      type_handler_registry=registry, use_compression=False
  )
  with ThreadPoolExecutor(1) as background, ocp.Checkpointer(handler) as saver:
    saver.save(directory / FOLDER, args=ocp.args.PyTreeSave(tensors))
    for task in syncing:
      task.result()
  for path in (directory / FOLDER).rglob("*"):
    sync(path)  # those that changed since, and the folders


def read(directory: Path) -> dict[str, Tensor]:
  """The tensors that `write` saved."""
  return {
      name: Tensor(store.shape, store.dtype.numpy_dtype, functools.partial(_read, store))
      for name, store in open_arrays(directory / FOLDER).items()
  }


def open_arrays(path: Path) -> dict[str, ts.TensorStore]:
  """The arrays of an Orbax checkpoint, by dotted path, none of them read yet.

  Raises:
    UserError: it is damaged, or no checkpoint of arrays.
  """
  base = {"driver": "ocdbt", "base": f"file://{path.absolute()}/"}
  context = ts.Context()
  try:
    if not (path / "manifest.ocdbt").exists():
      raise ValueError("it has no manifest.ocdbt")
    keys = ts.KvStore.open(base, context=context).result().list().result()
    names = [key.decode().removesuffix(_ZARR) for key in keys if key.endswith(_ZARR.encode())]
    opened = {
        name: ts.open(
            {"driver": "zarr", "kvstore": base | {"path": f"{name}/"}},
            context=context,
            open=True,
            read=True,
        )
        for name in names
    }
    return {name: store.result() for name, store in opened.items()}
  except ValueError as error:
    raise UserError(f"{path} is damaged ({error}): write it again") from error


def stacked(store: ts.TensorStore, lead: int) -> Callable[[tuple[int, ...]], np.ndarray]:
  """Reads store[index] for indices of `lead` numbers, in ascending order.

  What one chunk of the first axis holds is read at once and kept until the next.
  """
  rows = store.chunk_layout.read_chunk.shape[0] if lead else 1

  @functools.lru_cache(maxsize=1)
  def block(number: int) -> np.ndarray:
    first = number * rows
    return _read(store[first : min(first + rows, store.shape[0])])

  def read(index: tuple[int, ...]) -> np.ndarray:
    if not index:
      return _read(store)
    return block(index[0] // rows)[(index[0] % rows, *index[1:])]

  return read


def _read(store: ts.TensorStore) -> np.ndarray:
  try:
    return store.read().result()
  except ValueError as error:
    raise UserError(
        f"{store.spec().to_json()['kvstore']['base']} is damaged ({error}): write it"
        " again"
    ) from error
