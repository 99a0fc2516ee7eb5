"""Writes what `weights` reads, through Orbax, one tensor in memory at a time.

Orbax makes the checkpoint and describes every array; their values, plain bytes,
are put beside that without passing through it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import orbax.checkpoint as ocp
import tensorstore as ts

from clawgym_jax.checkpoints.folder import sync
from clawgym_jax.checkpoints.tensors import Tensor, append
from clawgym_jax.checkpoints.weights import FOLDER, chunk

_OPEN = 64


class _Streamed(ocp.type_handlers.NumpyHandler):
  """Writes tensors one after another; Orbax's own handler holds all in memory.

  Up to `_OPEN` files are on their way to the disk while the next is written. After
  one that fails no more are written.
  """

  def __init__(self, done: Callable[[int], Any], background: Executor):
    super().__init__(deepcopy_host_arrays=False)
    self._done = done
    self._background = background
    self.syncing: list[Future[None]] = []
    self._stopped = False

  async def _open_and_write(self, value: Tensor, tspec: Any, ts_context: Any) -> None:
    # Orbax has started all of these: each runs to its end, for it awaits nothing.
    if self._stopped:
      return
    self._stopped = True
    # Syncing each description by itself would wait for all values before it.
    context = ts.Context({"file_io_sync": False}, ts_context)
    ts.open(ts.Spec(tspec), create=True, open=True, context=context).result()
    path = Path(tspec["kvstore"]["path"]) / chunk(value.shape)
    file = open(path, "wb", buffering=0)
    append(file.fileno(), value)
    self.syncing.append(self._background.submit(_finish, file))
    if len(self.syncing) > _OPEN:
      self.syncing[-_OPEN].result()
    self._done(value.nbytes)
    self._stopped = False


def write(
    directory: Path,
    tensors: dict[str, Tensor],
    *,
    done: Callable[[int], Any] = lambda nbytes: None,
) -> None:
  """Saves `tensors` below a model folder and returns once they are on the disk.

  `done` is told of bytes as they are written.
  """
  with ThreadPoolExecutor(1) as background:
    streamed = _Streamed(done, background)
    registry = ocp.type_handlers.create_type_handler_registry((Tensor, streamed))
    handler = ocp.PyTreeCheckpointHandler(
        type_handler_registry=registry, use_ocdbt=False, use_compression=False
    )
    with ocp.Checkpointer(handler) as saver:
      saver.save(directory / FOLDER, args=ocp.args.PyTreeSave(tensors))
    for task in streamed.syncing:
      task.result()
  for path in (directory / FOLDER).rglob("*"):
    sync(path)  # Orbax's files, and the folders


def _finish(file: BinaryIO) -> None:
  with file:
    os.fsync(file.fileno())
