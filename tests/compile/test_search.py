"""Meshes that divide the work, ranked by what the compiler says of each."""

from __future__ import annotations

import pytest

from clawgym_jax.compile import search
from clawgym_jax.configs.base import Data, Mesh, ModelSource, RlConfig, SftConfig
from clawgym_jax.contracts.errors import UserError

CONFIG = SftConfig(
    model=ModelSource(source="Qwen3-8B"),
    data=Data(row_length=16384, batch_rows=8),
)


def pretended(config, topology, step, *, layers):
  """Faster with less `tensor`; what keeps everything does not fit."""
  if config.mesh.tensor == 2:
    raise UserError("it does not fit: RESOURCE_EXHAUSTED")
  room = -(2**30) if config.model.remat == "none" else 2**30
  rate = 1000 / config.mesh.context
  time = {"tokens_per_second_per_chip": rate, "mfu_bound": 0.5}
  answer = {"memory": {"room": room}, "topology": topology}
  return answer | {"time": time} if layers else answer


def test_candidates_are_meshes_of_all_chips():
  tries = list(search.candidates(CONFIG, 16))
  assert len(tries) == len({str(search.described(config)) for config in tries})
  for config in tries:
    mesh = config.mesh
    assert mesh.fsdp * mesh.context * mesh.tensor == 16
    rows = CONFIG.data.batch_rows / config.micro_batches
    assert rows % mesh.fsdp == 0 and 16384 / mesh.context >= 2048
  assert search.described(tries[0]) == {
      "mesh": {"fsdp": 8, "context": 2}, "remat": "none", "micro": 1,
  }  # fmt: skip


def test_what_fits_is_ranked_and_what_does_not_is_named():
  found = search.ranked(CONFIG, "v6e-16", "sft", pretended, enough=2)
  rates = [e["result"]["time"]["tokens_per_second_per_chip"] for e in found["fit"]]
  assert len(rates) == 2 and rates == sorted(rates, reverse=True)
  assert {entry["why"] for entry in found["misfit"]} == {"1.0 GiB too much"}


def test_a_batch_that_no_mesh_splits():
  config = SftConfig(data=Data(row_length=512, batch_rows=3))
  with pytest.raises(UserError, match="no mesh of v6e-256 suits 3 rows"):
    search.ranked(config, "v6e-256", "sft", pretended)


def test_rows_of_a_policy_step_are_one_micro_batch():
  config = RlConfig(row_length=8192, micro_rows=4, mesh=Mesh())
  found = {search.described(c)["micro"] for c in search.candidates(config, 4)}
  assert found == {4}
