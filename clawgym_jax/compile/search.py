"""Meshes, rematerialisation and micro-batches of a topology, the fastest first.

What is tried is bounded: powers of two that the model and the batch allow, with
`tensor` within a host and rows that are cut over `context` no finer than 2,048
tokens. They are compiled in the order in which they are likely to be fast (less
sent, less computed again) until `enough` fit; those are compiled layer by layer
and ranked by the time that they take at least.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any

from clawgym_jax import cli
from clawgym_jax.configs.base import Mesh, RlConfig, SftConfig
from clawgym_jax.contracts.errors import UserError

Config = SftConfig | RlConfig
_FEWEST_TOKENS = 2048  # of a row on one device
_TENSOR = (1, 2, 4)
_REMAT = ("none", "dots", "attention", "full")


def ranked(
    config: Config,
    topology: str,
    step: str,
    compiled: Callable[..., dict[str, Any]],
    *,
    enough: int = 3,
    most: int = 12,
) -> dict[str, Any]:
  """The candidates that fit, by estimated tokens a second, and those that do not.

  `compiled` is `process.compiled`; at most `most` are compiled.
  """
  tries = list(candidates(config, _chips(topology)))
  if not tries:
    raise UserError(
        f"no mesh of {topology} suits {_rows(config)} rows of a step: change"
        " data.batch_rows or data.row_length"
    )
  fit: list[dict[str, Any]] = []
  fitting: list[Config] = []
  misfit: list[dict[str, Any]] = []
  with cli.progress(min(most, len(tries)), "compiling", unit="program") as bar:
    for trial in tries[:most]:
      named = described(trial)
      try:
        found = compiled(trial, topology, step, layers=False)
      except UserError as error:
        misfit.append(named | {"why": str(error)})
      else:
        if found["memory"]["room"] > 0:
          fit.append(named)
          fitting.append(trial)
        else:
          lacks = -found["memory"]["room"] / 2**30
          misfit.append(named | {"why": f"{lacks:.1f} GiB too much"})
      bar.update()
      if len(fit) == enough:
        break
  for place, (entry, trial) in enumerate(zip(fit, fitting), 1):
    print(f"estimating the time of {place} of {len(fit)}", file=sys.stderr)
    entry["result"] = compiled(trial, topology, step, layers=True)
  fit.sort(key=lambda entry: -entry["result"]["time"]["tokens_per_second_per_chip"])
  return {"topology": topology, "fit": fit, "misfit": misfit, "possible": len(tries)}


def candidates(config: Config, chips: int) -> Iterator[Config]:
  """Configs that differ in mesh, remat and micro-batches, the likeliest first.

  Less is computed again before more is, and fewer micro-batches come before more.
  """
  found = []
  for tensor in _TENSOR:
    for context in _powers(chips // tensor):
      if time_of(config) // (2 * context) * 2 < _FEWEST_TOKENS and context > 1:
        continue
      rest = chips // (tensor * context)
      for micro in _micro_batches(config, rest):
        for remat in _REMAT:
          mesh = Mesh(data=1, fsdp=rest, expert=1, context=context, tensor=tensor)
          cost = (tensor, micro, context, _REMAT.index(remat))
          found.append((cost, _with(config, mesh, micro, remat)))
  found.sort(key=lambda pair: pair[0])
  yield from (trial for _, trial in found)


def described(config: Config) -> dict[str, Any]:
  mesh = {name: size for name, size in vars(config.mesh).items() if size != 1}
  micro = config.micro_batches if isinstance(config, SftConfig) else config.micro_rows
  return {"mesh": mesh, "remat": config.model.remat, "micro": micro}


def time_of(config: Config) -> int:
  return config.data.row_length if isinstance(config, SftConfig) else config.row_length


def _rows(config: Config) -> int:
  return config.data.batch_rows if isinstance(config, SftConfig) else config.micro_rows


def _chips(topology: str) -> int:
  from clawgym_jax.parallel import topologies

  return topologies.parse(topology).devices


def _powers(most: int) -> Iterator[int]:
  size = 1
  while size <= most:
    yield size
    size *= 2


def _micro_batches(config: Config, shards: int) -> Iterator[int]:
  """Micro-batches whose rows `shards` devices can split; one, of a config for rl."""
  rows = _rows(config)
  if isinstance(config, RlConfig):
    if rows % shards == 0:
      yield 1
    return
  for micro in _powers(rows):
    if rows % micro == 0 and rows // micro % shards == 0:
      yield micro


def _with(config: Config, mesh: Mesh, micro: int, remat: str) -> Config:
  model = dataclasses.replace(config.model, remat=remat)
  config = dataclasses.replace(config, mesh=mesh, model=model)
  if isinstance(config, SftConfig):
    config = dataclasses.replace(config, micro_batches=micro)
  return config
