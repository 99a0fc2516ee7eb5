"""SFT, RL and decode steps compile for a TPU that is not here, kernels and all."""

from __future__ import annotations

import importlib.util

import pytest

from clawgym_jax.compile import process
from clawgym_jax.configs import base
from clawgym_jax.contracts.errors import UserError

needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed"
)


def compiled(config, step, *, topology="v5p:2x2x1", layers=False):
  return process.compiled(config, topology, step, layers=layers)


MODEL = base.ModelSource(compute_dtype="bfloat16", remat="full")


@needs_libtpu
def test_supervised_step_of_trees_over_context():
  config = base.SftConfig(
      model=MODEL,
      data=base.Data(row_length=512, batch_rows=4),
      mesh=base.Mesh(data=1, fsdp=2, context=2),
  )
  result = compiled(config, "sft")
  memory = result["memory"]
  parts = memory["weights"] + memory["optimizer"] + memory["batch"]
  assert parts <= memory["arguments"] < 1.25 * parts  # small arrays are padded
  assert memory["room"] == memory["hbm"] - memory["peak"] > 0
  counts = result["flops"]
  assert counts["useful"] < counts["executed"] < 4 / 3 * counts["useful"] + 1


@needs_libtpu
def test_supervised_step_of_flat_rows():
  config = base.SftConfig(
      model=MODEL,
      data=base.Data(row_length=256, batch_rows=4, share_prefixes=False),
      mesh=base.Mesh(fsdp=4),
  )
  assert compiled(config, "sft")["memory"]["room"] > 0


@needs_libtpu
def test_policy_step_and_decode_steps():
  config = base.RlConfig(
      model=MODEL,
      rollouts=base.Rollouts(slots=4, max_len=128),
      objective=base.Objective(kl_coef=0.1),
      mesh=base.Mesh(fsdp=2, tensor=2),
      row_length=256,
      micro_rows=2,
  )
  assert compiled(config, "rl")["memory"]["room"] > 0
  result = compiled(config, "decode", topology="v6e-1")
  assert result["chips"] == 1 and result["memory"]["cache"] > 0


@needs_libtpu
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("source,rows", [("SmolLM2-135M", 4)])
def test_a_layer_is_counted_as_its_shapes_say(source, rows):
  config = base.SftConfig(
      model=base.ModelSource(source=source, compute_dtype="bfloat16", remat="full"),
      data=base.Data(row_length=1024, batch_rows=rows),
      mesh=base.Mesh(fsdp=4),
  )
  result = compiled(config, "sft", layers=True)
  layer = result["layer"]
  assert layer["flops"] == pytest.approx(layer["flops_of_shapes"], rel=0.03)
  assert layer["collective_bytes"] > 0 and 0 < result["time"]["mfu_bound"] < 1


def test_what_can_not_be_compiled_is_said():
  config = base.SftConfig(model=base.ModelSource(source="who/knows"))
  with pytest.raises(UserError, match="--topology=v9-8 is no TPU"):
    compiled(config, "sft", topology="v9-8")


def test_a_compiler_that_is_not_done_in_time_is_ended():
  with pytest.raises(UserError, match="was not done after 0.05 s and was ended"):
    process.compiled(
        base.SftConfig(), "v5p:2x2x1", "sft", layers=False, deadline=0.05
    )
