"""MaxText's training step compiled for a topology; runs in MaxText's environment.

  python maxtext_compile.py MODEL TOPOLOGY TIME LAYERS DUMP [OPTION=VALUE…]

LAYERS 0 is the model's own, scanned; more are so many, unrolled. One JSON line of
its compiler's figures is printed last; the text of the program is left in DUMP.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
  os.environ |= {
      "JAX_PLATFORMS": "cpu",
      "TPU_SKIP_MDS_QUERY": "1",
      "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
      "TPU_ACCELERATOR_TYPE": "v5p-8",
      "TPU_WORKER_HOSTNAMES": "localhost",
  }
  model, topology, time, layers, dump, *options = sys.argv[1:]
  from maxtext.configs import pyconfig
  from maxtext.trainers.pre_train import train_compile

  found = {}

  def compile_noting(function, arguments, keywords, mesh, ins, outs, static, donated,
                     config, rules):  # fmt: skip
    import jax

    with jax.set_mesh(mesh), rules:
      lowered = jax.jit(
          function,
          in_shardings=ins,
          out_shardings=outs,
          static_argnums=static,
          donate_argnums=donated,
      ).lower(*arguments, **keywords)
    told = dict(option.split("=") for option in options)
    told |= {"xla_dump_to": dump, "xla_dump_hlo_as_text": True}
    compiled = lowered.compile(compiler_options=told)
    plan, costs = compiled.memory_analysis(), compiled.cost_analysis()
    found.update({
        "arguments": plan.argument_size_in_bytes,
        "temporaries": plan.temp_size_in_bytes,
        "flops": costs["flops"],
        "bytes accessed": costs["bytes accessed"],
    })
    raise Done

  train_compile.jit_and_compile = compile_noting
  folder = os.path.join(os.path.dirname(pyconfig.__file__), "base.yml")
  arguments = [
      "train_compile",
      folder,
      f"model_name={model}",
      f"compile_topology={topology}",
      "compile_topology_num_slices=1",
      "per_device_batch_size=1",
      f"max_target_length={time}",
      "remat_policy=full",
      "dtype=bfloat16",
      "weight_dtype=float32",
  ]
  if int(layers):
    arguments += [
        f"base_num_decoder_layers={layers}",
        "override_model_config=True",
        "scan_layers=False",
    ]
  try:
    train_compile.main(arguments)
  except Done:
    print(json.dumps(found), flush=True)


class Done(Exception):
  """All that was asked for is known."""


if __name__ == "__main__":
  main()
