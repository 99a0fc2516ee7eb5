"""What a program takes on a topology: memory, operations, traffic, least time.

Memory is the compiler's plan of the program as it runs, its layers scanned.
Operations of one step are counted from shapes. What a layer moves is the
difference of two programs whose layers are unrolled, because the compiler counts
a loop's body once; those are compiled without windowed products, which are loops
too. The compiler does not see into a Pallas kernel: of attention it counts what
goes in and out. The difference's operations must agree with those that the
shapes of a layer's products give, rematerialisation counted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from clawgym_jax.compile import programs
from clawgym_jax.compile.hlo import Traffic, collectives
from clawgym_jax.compile.programs import Program
from clawgym_jax.configs.base import RlConfig, SftConfig
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import flops
from clawgym_jax.parallel.topologies import Topology

DEPTHS = 2, 3
"""Unrolled layers of the two programs whose difference is a layer."""
STRAIGHT = {"xla_jf_spmd_threshold_for_windowed_einsum_mib": "1000000"}
"""A product and a collective stay two operations, in place of a loop of both."""

Build = Callable[..., Program]
BUILDS: dict[str, Build] = {
    "sft": programs.sft,
    "rl": programs.rl,
    "decode": programs.decode,
}


def measured(
    step: str,
    config: SftConfig | RlConfig,
    topology: Topology,
    devices: list[jax.Device],
    *,
    layers: bool,
) -> dict[str, Any]:
  """JSON-ready; `layers` asks for the two programs more that say what a layer moves.

  A program that the compiler refuses to fit is a `UserError` with its words.
  """
  program = BUILDS[step](config, devices)
  used = 1 if step == "decode" else len(devices)
  compiled, _ = compile_program(program.lowered)
  result = {
      "step": step,
      "topology": topology.name,
      "chips": used,
      "mesh": {name: size for name, size in vars(config.mesh).items() if size != 1},
      "memory": memory(compiled, program, topology),
      "flops": operations(program, used),
  }
  if layers:
    result["layer"] = layer(step, config, devices, used)
    result["time"] = _time(result, program, topology)
  return result


def compile_program(
    lowered: jax.stages.Lowered, options: dict[str, str] | None = None
) -> tuple[jax.stages.Compiled, str]:
  """The compiled program and the text of its optimised HLO."""
  # A newer libtpu may have operations that this jaxlib's own text can't show.
  with tempfile.TemporaryDirectory() as folder:
    dump = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
    try:
      compiled = lowered.compile(compiler_options=dump | (options or {}))
    except jax.errors.JaxRuntimeError as error:
      if "RESOURCE_EXHAUSTED" in str(error):
        raise UserError(f"it does not fit: {_first_line(error)}") from error
      raise
    (text,) = Path(folder).glob("*after_optimizations.txt")
    return compiled, text.read_text()


def memory(
    compiled: jax.stages.Compiled, program: Program, topology: Topology
) -> dict[str, Any]:
  """Bytes a device, by kind; `room` is what is left of its memory at the peak."""
  plan = compiled.memory_analysis()
  made = plan.output_size_in_bytes - plan.alias_size_in_bytes
  peak = (
      plan.argument_size_in_bytes
      + made
      + plan.temp_size_in_bytes
      + plan.generated_code_size_in_bytes
  )
  return {
      "arguments": plan.argument_size_in_bytes,
      **program.held,
      "outputs": made,  # but for those that take an argument's place
      "temporaries": plan.temp_size_in_bytes,
      "code": plan.generated_code_size_in_bytes,
      "peak": peak,
      "hbm": topology.chip.hbm_bytes,
      "room": topology.chip.hbm_bytes - peak,
  }


def operations(program: Program, devices: int) -> dict[str, float]:
  """Of one call, on one device, from shapes: a model's own, and those executed."""
  model = program.model
  layers = model.num_hidden_layers
  products = 2.0 * flops.layer_weights(model) * program.tokens / devices  # forward
  attention = flops.attention_forward(model, program.pairs) / devices
  head = 2.0 * flops.head_weights(model) * program.scored / devices
  useful = program.passes * (layers * (products + attention) + head)
  # The head's logits are computed again in the backward pass, as a layer may be.
  head_passes = program.passes + (program.passes > 1)
  executed_products = program.product_passes * products
  if program.product_passes > 3 and model.num_experts is None:
    # Nothing in the backward pass wants the last product's result.
    last = model.hidden_size * model.intermediate_size
    executed_products -= 2.0 * last * program.tokens / devices
  again = executed_products + program.attention_passes * attention
  executed = layers * again + head_passes * head
  return {
      "useful": useful,
      "executed": executed,
      "layer_products": executed_products,
  }


def layer(
    step: str, config: SftConfig | RlConfig, devices: list[jax.Device], used: int
) -> dict[str, Any]:
  """What one layer more takes, forward and backward, on one device."""
  found = []
  for depth in DEPTHS:
    program = BUILDS[step](config, devices, layers=depth)
    compiled, text = compile_program(program.lowered, STRAIGHT)
    found.append((compiled.cost_analysis(), collectives(text, used)))
  return difference(*found) | {
      "flops_of_shapes": operations(program, used)["layer_products"]
  }


Counted = tuple[dict[str, float], dict[str, Traffic]]


def difference(less: Counted, more: Counted) -> dict[str, Any]:
  """A layer, from the costs and the traffic of two depths; `rest` is no layer's."""
  one = {}
  step = DEPTHS[1] - DEPTHS[0]
  for name, key in (("flops", "flops"), ("bytes", "bytes accessed")):
    one[name] = (more[0][key] - less[0][key]) / step
  one["rest_bytes"] = less[0]["bytes accessed"] - DEPTHS[0] * one["bytes"]
  kinds = sorted(less[1].keys() | more[1].keys())
  none = Traffic()
  one["collectives"] = {}
  one["rest_collective_bytes"] = 0.0
  for kind in kinds:
    low, high = less[1].get(kind, none), more[1].get(kind, none)
    count, size = (high.count - low.count) / step, (high.bytes - low.bytes) / step
    if count or size:
      one["collectives"][kind] = {"count": count, "bytes": size}
    one["rest_collective_bytes"] += low.bytes - DEPTHS[0] * size
  one["collective_bytes"] = sum(k["bytes"] for k in one["collectives"].values())
  return one


def _time(
    result: dict[str, Any], program: Program, topology: Topology
) -> dict[str, float]:
  """Seconds that each resource is busy at least, if it alone were the limit.

  All links of a chip are taken as used at once in one direction each way: no
  step is faster, and a mesh axis laid along one side of the torus is slower.
  """
  chip, layers, one = topology.chip, program.model.num_hidden_layers, result["layer"]
  executed = result["flops"]["executed"]
  moved = layers * one["bytes"] + max(0.0, one["rest_bytes"])
  sent = layers * one["collective_bytes"] + max(0.0, one["rest_collective_bytes"])
  seconds = {
      "compute": executed / chip.flops,
      "hbm": moved / chip.hbm_bandwidth,
      "ici": sent / (2 * chip.axes * chip.link_bandwidth),
  }
  least = max(seconds.values())
  tokens = program.tokens / result["chips"]
  return seconds | {
      "step": least,
      "tokens_per_second_per_chip": tokens / least,
      "mfu_bound": result["flops"]["useful"] / (least * chip.flops),
  }


def _first_line(error: Exception) -> str:
  return str(error).strip().splitlines()[0][:500]
