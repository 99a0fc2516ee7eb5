"""Training steps compiled for TPUs that are not here: what fits, and against MaxText.

First the recipes at 64K tokens on v5p-64 and v6e-256: memory a device and the room
that is left. Then both programs' steps on v5p-64 with rows of 8,192 tokens, one a
device, full rematerialisation and fsdp: memory, and of one layer the bytes read
and written and the volume of collectives, each as ours / MaxText's; the most that
is wanted is 1. MaxText is in an environment of its own (`benchmarks.peers`).

Every compilation takes minutes and gigabytes; one runs at a time.

  python -m benchmarks.ahead_of_time [--models=8b,30b-a3b] [--peer] [--json]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks import peers
from clawgym_jax import cli
from clawgym_jax.compile.process import compiled
from clawgym_jax.configs import command
from clawgym_jax.configs.base import Data, Mesh, ModelSource, SftConfig

_MODELS = flags.DEFINE_list("models", ["8b", "30b-a3b"], "Of Qwen3.")
_FIT = flags.DEFINE_bool("fit", True, "Compile the recipes at 64K tokens.")
_PEER = flags.DEFINE_bool("peer", True, "Compare with MaxText.")

_TIME, _ROWS = 8192, 32
_PEERS_TOPOLOGY = "v5p-64"
_LONG = {"v5p-64": {"fsdp": 8, "context": 4}, "v6e-256": {"fsdp": 32, "context": 8}}
"""Meshes of the recipes; as many rows in a micro-batch as `fsdp` splits."""
_GIB = 2**30


def main() -> dict[str, Any]:
  found: dict[str, Any] = {}
  for model in _MODELS.value:
    found[model] = {}
    if _FIT.value:
      found[model]["fits"] = {name: fit(model, name) for name in _LONG}
    if _PEER.value:
      found[model]["peer"] = compare(model)
  return found


def fit(model: str, topology: str) -> dict[str, float]:
  """GiB a device of a recipe's micro-batch."""
  mesh = _LONG[topology]
  recipe = f"sft_qwen3_{model.replace('-', '_')}_64k"
  items = [f"mesh.{axis}={size}" for axis, size in mesh.items()]
  items += ["mesh.data=1", "micro_batches=1", f"data.batch_rows={mesh['fsdp']}"]
  config = command.load(recipe, SftConfig, items)
  memory = compiled(config, topology, "sft", layers=False)["memory"]
  print(
      f"Qwen3-{model} at 64K on {topology}: {memory['peak'] / _GIB:.2f} GiB a device,"
      f" {memory['room'] / _GIB:.2f} left"
  )
  return {name: size / _GIB for name, size in memory.items()}


def compare(model: str) -> dict[str, Any]:
  """Ours / MaxText's."""
  config = SftConfig(
      model=ModelSource(
          source=f"Qwen3-{model}", compute_dtype="bfloat16", remat="full"
      ),
      data=Data(row_length=_TIME, batch_rows=_ROWS),
      mesh=Mesh(data=1, fsdp=_ROWS),
  )
  print(f"compiling ours of Qwen3-{model}", file=sys.stderr)
  result = compiled(config, _PEERS_TOPOLOGY, "sft", layers=True)
  memory, layer = result["memory"], result["layer"]
  ours = {
      "arguments": memory["arguments"],
      "temporaries": memory["temporaries"],
      "layer_bytes": layer["bytes"],
      "layer_collective_bytes": layer["collective_bytes"],
  }
  theirs = _maxtext(f"qwen3-{model}")
  for name, size in ours.items():
    other = theirs[name]
    print(
        f"Qwen3-{model}: {name} {size / _GIB:.3f} GiB, MaxText {other / _GIB:.3f},"
        f" ratio {size / other:.3f}"
    )
  counted = layer["flops"] / layer["flops_of_shapes"]
  print(f"Qwen3-{model}: a layer's FLOPs counted / by shapes {counted:.4f}")
  ratios = {name: ours[name] / theirs[name] for name in ours}
  return {"ours": ours, "maxtext": theirs, "ratios": ratios, "flops_counted": counted}


def _maxtext(model: str) -> dict[str, float]:
  from clawgym_jax.compile.hlo import collectives
  from clawgym_jax.compile.measure import DEPTHS, STRAIGHT, difference

  settings = {"model": model, "topology": _PEERS_TOPOLOGY, "time": _TIME}
  counted, whole = [], {}
  for layers in (0, *DEPTHS):
    print(f"compiling MaxText's of {model}, {layers or 'all'} layers", file=sys.stderr)
    folder = Path(tempfile.mkdtemp())
    try:
      more = {"layers": layers, "dump": str(folder)}
      more["options"] = STRAIGHT if layers else {}
      found = peers.measured("maxtext", settings | more, timeout=3600)
      if not layers:
        whole = found
        continue
      (text,) = folder.rglob("*jit_train_step*after_optimizations.txt")
      counted.append((found, collectives(text.read_text(), _ROWS)))
    finally:
      shutil.rmtree(folder)
  layer = difference(*counted)
  return {
      "arguments": whole["arguments"],
      "temporaries": whole["temporaries"],
      "layer_bytes": layer["bytes"],
      "layer_collective_bytes": layer["collective_bytes"],
  }


if __name__ == "__main__":
  cli.run(main)
