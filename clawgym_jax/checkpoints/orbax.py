"""Training states, saved so that a kill at any moment loses at most one.

A step is sealed by its manifest, written last, which names every file with its
size and checksum; it is whole while they are so. A save goes on behind the one
who asked for it, one at a time. Older steps go only after the new one is sealed.
`restore` gives the newest whole step and sets aside what is newer and not whole,
with a warning. Steps never sealed, of a killed save, count as nothing; where all
that were sealed are damaged, nothing is touched and every call is the same error.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
import tensorstore as ts
from flax import nnx

from clawgym_jax.checkpoints import names
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import room_for
from clawgym_jax.contracts.files import write_json

_MANIFEST = "manifest.json"
_DAMAGED = "damaged-"
_ZARR = "/.zarray"


@dataclass(frozen=True, kw_only=True)
class TrainState:
  """All that a run needs to go on as if it had not stopped.

  Attributes:
    step: optimizer steps done.
    params: the model's parameters, an `nnx.State`.
    optimizer: the optimizer's state, any pytree of arrays.
    rng: a JAX random key, or None.
    data: the data iterator's state, and whatever else is JSON.
    config: the model's config.json, so that the state can be converted alone.
    code_version: the version of this package that saved it.
    score: what `keep_best` compares, the lower the better; None: no candidate.
  """

  step: int
  params: nnx.State
  optimizer: Any = ()
  rng: jax.Array | None = None
  data: dict[str, Any] = field(default_factory=dict)
  config: dict[str, Any] = field(default_factory=dict)
  code_version: str = ""
  score: float | None = None


class Checkpoints:
  """The saved states of one run, a folder a step.

  Kept are the newest `keep`, those of every `keep_every`-th step, and the
  `keep_best` of the lowest scores; 0 for none of a kind.
  """

  def __init__(
      self,
      directory: str | Path,
      *,
      keep: int = 2,
      keep_every: int = 0,
      keep_best: int = 0,
  ):
    self.directory = Path(directory).absolute()
    self._keep = keep
    self._keep_every = keep_every
    self._keep_best = keep_best
    self._manager: ocp.CheckpointManager | None = None
    self._background = ThreadPoolExecutor(1, thread_name_prefix="save")
    self._saving: Future[None] | None = None

  def steps(self) -> list[int]:
    """Steps that are there, whole or not, in order."""
    if not self.directory.is_dir():
      return []
    found = [path.name for path in self.directory.iterdir() if path.is_dir()]
    return sorted(int(name) for name in found if name.isascii() and name.isdigit())

  def save(self, state: TrainState) -> None:
    """Begins to save `state` as its step; returns when its arrays may change.

    Waits for the save before it. What goes wrong later is raised by the next
    `save` or `wait`.
    """
    self.wait()
    meta = {
        "step": state.step,
        "data": state.data,
        "config": state.config,
        "code_version": code_version(),
        "score": state.score,
    }
    arrays = {
        f"{part}:{name}": leaf
        for part in ("params", "optimizer", "rng")
        for name, leaf in _leaves(getattr(state, part))
    }
    # A layer is a chunk, so that it can be read alone.
    layout = {name: ocp.SaveArgs(shard_axes=_stacked(name)) for name in arrays}
    with room_for(self._what(state.step)):
      self._open().save(
          state.step,
          args=ocp.args.Composite(
              state=ocp.args.StandardSave(arrays, layout),
              meta=ocp.args.JsonSave(meta),
          ),
          force=True,
      )
    self._saving = self._background.submit(self._finish, state.step)

  def wait(self) -> None:
    """Returns once all that was saved is on the disk, whole."""
    saving, self._saving = self._saving, None
    if saving is not None:
      saving.result()

  def restore(self, like: TrainState) -> TrainState | None:
    """The newest whole state, laid out as `like`; None if none was ever sealed.

    Args:
      like: a state of the same shapes (arrays or `jax.ShapeDtypeStruct`), whose
        shardings say where the arrays go.

    Raises:
      UserError: states were sealed but none is whole, or it is of another model.
    """
    self.wait()
    step, faults = self._newest_whole()
    self._set_aside(faults)
    if step is None:
      return None
    saved = self._arrays(step, like)
    parts = {}
    for part in ("params", "optimizer", "rng"):
      tree = getattr(like, part)
      leaves = [saved[f"{part}:{name}"] for name, _ in _leaves(tree)]
      if part == "rng" and tree is not None:
        leaves = [jax.random.wrap_key_data(leaves[0], impl=jax.random.key_impl(tree))]
      parts[part] = jax.tree.unflatten(jax.tree.structure(tree), leaves)
    meta = self._meta(step)
    return replace(
        like,
        **parts,
        step=meta["step"],
        data=meta["data"],
        config=meta["config"],
        code_version=meta["code_version"],
        score=meta["score"],
    )

  def open_params(self) -> tuple[dict[str, ts.TensorStore], dict[str, Any]]:
    """Parameters by dotted path, not read yet, and the model's config.

    Of the newest whole step; `UserError` if there is none.
    """
    self.wait()
    step, _ = self._newest_whole()
    if step is None:
      raise UserError(f"{self.directory} holds no saved training state")
    arrays = _open_arrays(self.directory / str(step) / "state")
    params = {
        name.removeprefix("params:"): array
        for name, array in arrays.items()
        if name.startswith("params:")
    }
    return params, self._meta(step)["config"]

  def close(self) -> None:
    self.wait()
    if self._manager is not None:
      self._manager.close()
      self._manager = None

  def _open(self) -> ocp.CheckpointManager:
    if self._manager is None:
      self.directory.mkdir(parents=True, exist_ok=True)
      options = ocp.CheckpointManagerOptions(
          max_to_keep=None,  # `_prune` removes
          cleanup_tmp_directories=True,
      )
      self._manager = ocp.CheckpointManager(self.directory, options=options)
    return self._manager

  def _finish(self, step: int) -> None:
    """Waits for Orbax, then makes the step whole."""
    with room_for(self._what(step)):
      self._open().wait_until_finished()
      if jax.process_index() == 0:
        self._seal(step)
        self._prune()

  def _what(self, step: int) -> str:
    return f"step {step} in {self.directory}"

  def _arrays(self, step: int, like: TrainState) -> dict[str, jax.Array]:
    path = self.directory / str(step) / "state"
    wanted = {
        f"{part}:{name}": _abstract(leaf)
        for part in ("params", "optimizer", "rng")
        for name, leaf in _leaves(getattr(like, part))
    }
    with ocp.StandardCheckpointer() as reader:
      there = reader.metadata(path).item_metadata.tree
      for name in sorted(wanted.keys() | there.keys()):
        mine = wanted[name].shape if name in wanted else None
        saved = tuple(there[name].shape) if name in there else None
        if mine != saved:
          raise UserError(
              f"{self.directory} was saved by a run of another model or optimizer"
              f" ({name}: {saved} there, {mine} here): give the same config, or"
              " another folder"
          )
      return reader.restore(path, wanted)

  def _meta(self, step: int) -> dict[str, Any]:
    return json.loads((self.directory / str(step) / "meta" / "metadata").read_text())

  def _seal(self, step: int) -> None:
    """Writes the manifest, which makes the step whole."""
    folder = self.directory / str(step)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    manifest = {
        str(path.relative_to(folder)): [path.stat().st_size, _checksum(path)]
        for path in files
    }
    write_json(folder / _MANIFEST, manifest)

  def _prune(self) -> None:
    """Leaves the sealed steps that are to be kept, and nothing set aside."""
    sealed = [step for step in self.steps() if self._sealed(step)]
    kept = set(sealed[-self._keep :])
    if self._keep_every:
      kept |= {step for step in sealed if step % self._keep_every == 0}
    if self._keep_best:
      scores = {step: self._meta(step)["score"] for step in sealed}
      scored = [step for step in sealed if scores[step] is not None]
      kept |= set(sorted(scored, key=scores.get)[: self._keep_best])
    for step in set(self.steps()) - kept:
      shutil.rmtree(self.directory / str(step))
    for path in self.directory.glob(f"{_DAMAGED}*"):
      shutil.rmtree(path)

  def _sealed(self, step: int) -> bool:
    return (self.directory / str(step) / _MANIFEST).exists()

  def _newest_whole(self) -> tuple[int | None, dict[int, str]]:
    """The newest whole step, and what is wrong with those after it.

    None if no step was ever sealed; `UserError` if some were and none is whole.
    """
    whole, faults = None, {}
    for step in reversed(self.steps()):
      fault = self._fault(step)
      if fault is None:
        whole = step
        break
      faults[step] = fault
    if whole is None and any(self._sealed(step) for step in faults):
      what = "; ".join(f"step {step}: {fault}" for step, fault in faults.items())
      raise UserError(
          f"none of the saved states in {self.directory} is whole ({what}): delete"
          " the folder to start anew"
      )
    before = "none was saved before it" if whole is None else f"taking step {whole}"
    for step, fault in faults.items():
      print(
          f"warning: the state saved at step {step} in {self.directory} is not"
          f" whole ({fault}); {before}",
          file=sys.stderr,
          flush=True,
      )
    return whole, faults

  def _fault(self, step: int) -> str | None:
    """What is wrong with a step; None if it is whole."""
    folder = self.directory / str(step)
    try:
      manifest = json_text.parse((folder / _MANIFEST).read_text())
      for name, (size, checksum) in manifest.items():
        path = folder / name
        if path.stat().st_size != size or _checksum(path) != checksum:
          return f"{name} is damaged"
    except FileNotFoundError as error:
      return f"{Path(error.filename).relative_to(folder)} is missing"
    except (AttributeError, TypeError, ValueError):
      return f"{_MANIFEST} is damaged"
    return None

  def _set_aside(self, steps: Iterable[int]) -> None:
    """Takes steps that are not whole out of the way of the same ones to come."""
    for step in steps:
      if jax.process_index() == 0:
        aside = self.directory / f"{_DAMAGED}{step}"
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(self.directory / str(step), aside)
      self.close()


def _stacked(name: str) -> tuple[int, ...]:
  """The axes of layers and experts of a saved array."""
  part, _, dotted = name.partition(":")
  if part != "params":
    return ()
  return tuple(range(len(names.stacks(names.path_of(dotted)))))


def _open_arrays(path: Path) -> dict[str, ts.TensorStore]:
  """The arrays of a step, by dotted path, none of them read yet.

  Raises:
    UserError: it is damaged.
  """
  base = {"driver": "ocdbt", "base": f"file://{path}/"}
  context = ts.Context()
  try:
    keys = ts.KvStore.open(base, context=context).result().list().result()
    found = [key.decode().removesuffix(_ZARR) for key in keys if key.endswith(_ZARR.encode())]
    opened = {
        name: ts.open(
            {"driver": "zarr", "kvstore": base | {"path": f"{name}/"}},
            context=context,
            open=True,
            read=True,
        )
        for name in found
    }
    return {name: store.result() for name, store in opened.items()}
  except ValueError as error:
    raise UserError(f"{path} is damaged ({error}): save it again") from error


def _leaves(tree: Any) -> list[tuple[str, Any]]:
  """(dotted path, array) of a pytree; random keys as their data."""
  found = []
  for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      leaf = jax.random.key_data(leaf)
    found.append((name.removesuffix(".value"), leaf))
  return found


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(
      leaf.shape, leaf.dtype, sharding=getattr(leaf, "sharding", None)
  )


def _checksum(path: Path) -> int:
  value = 0
  with open(path, "rb") as file:
    while block := file.read(1 << 22):
      value = zlib.crc32(block, value)
  return value


@functools.cache
def code_version() -> str:
  """The version of this package, and the commit where it runs from a clone."""
  try:
    version = importlib.metadata.version("clawgym-jax")
  except importlib.metadata.PackageNotFoundError:
    version = "unknown"
  root = Path(__file__).resolve().parents[2]
  if not (root / ".git").exists():
    return version
  command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
  try:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10)
  except (OSError, subprocess.TimeoutExpired):
    return version
  return f"{version}+{done.stdout.strip()}" if done.returncode == 0 else version
