"""A result of `measure.measured` as a person reads it."""

from __future__ import annotations

from typing import Any

_GIB = 2**30
_MIB = 2**20


def show(result: dict[str, Any]) -> None:
  """Prints memory, operations, a layer's traffic and the least time."""
  where = f"{result['topology']}, {result['chips']} chips{_mesh(result)}"
  print(f"{result['step']} on {where}")
  memory = result["memory"]
  for name, size in memory.items():
    inside = "  " if name in ("weights", "optimizer", "batch", "cache") else ""
    print(f"  {inside}{name:<{14 - len(inside)}} {size / _GIB:9.3f} GiB a device")
  if memory["room"] < 0:
    print("  it does not fit")
  counts = result["flops"]
  print(f"  {counts['useful'] / 1e12:.2f} TFLOP a device of the model's own, executed"
        f" {counts['executed'] / 1e12:.2f}")  # fmt: skip
  if "layer" not in result:
    return
  layer, time = result["layer"], result["time"]
  share = layer["flops"] / layer["flops_of_shapes"] - 1
  print(
      f"a layer: {layer['flops'] / 1e12:.3f} TFLOP counted by the compiler"
      f" ({share:+.1%} of its products by shapes),"
      f" {layer['bytes'] / _GIB:.2f} GiB read and written"
  )
  for kind, traffic in layer["collectives"].items():
    count, size = traffic["count"], traffic["bytes"] / _MIB
    print(f"  {kind:<20} {count:5.0f} {size:9.1f} MiB")
  print(
      f"least seconds a call: compute {time['compute']:.4f}, memory {time['hbm']:.4f},"
      f" links {time['ici']:.4f}"
  )
  print(
      f"at most {time['tokens_per_second_per_chip']:.0f} tokens/s a chip,"
      f" MFU {time['mfu_bound']:.1%}"
  )


def show_ranking(result: dict[str, Any]) -> None:
  """Prints what fits, the fastest first, and what does not."""
  for place, entry in enumerate(result["fit"], 1):
    found = entry["result"]
    print(
        f"{place}. {_entry(entry)}: at most"
        f" {found['time']['tokens_per_second_per_chip']:.0f} tokens/s a chip, MFU"
        f" {found['time']['mfu_bound']:.1%}, room"
        f" {found['memory']['room'] / _GIB:.1f} GiB"
    )
  for entry in result["misfit"]:
    print(f"-  {_entry(entry)}: {entry['why']}")
  if not result["fit"]:
    print(f"nothing that was tried fits {result['topology']}")


def _entry(entry: dict[str, Any]) -> str:
  mesh = ", ".join(f"{name} {size}" for name, size in entry["mesh"].items())
  mesh = mesh or "one device"
  return f"{mesh}; remat {entry['remat']}; micro-batches {entry['micro']}"


def _mesh(result: dict[str, Any]) -> str:
  sizes = ", ".join(f"{name} {size}" for name, size in result["mesh"].items())
  return f" ({sizes})" if sizes else ""
