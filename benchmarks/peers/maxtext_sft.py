"""MaxText's training step compiled for a TPU topology, without the hardware.

Settings: `model` and `topology` by MaxText's names, `time` tokens of a row (one a
device), `layers` (0: the model's own, scanned; else so many, unrolled), `dump`, a
folder where the text of the program is left, `options` of the compiler. Full
rematerialisation, float32 weights and AdamW, bfloat16 products, fsdp.
"""

import json
import os
import sys


def main():
  settings = json.load(sys.stdin)
  os.environ |= {
      "TPU_SKIP_MDS_QUERY": "1",
      "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
      "TPU_ACCELERATOR_TYPE": "v5p-8",
      "TPU_WORKER_HOSTNAMES": "localhost",
  }
  layers = settings["layers"]
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
    told = settings["options"] | {
        "xla_dump_to": settings["dump"],
        "xla_dump_hlo_as_text": True,
    }
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
      f"model_name={settings['model']}",
      f"compile_topology={settings['topology']}",
      "compile_topology_num_slices=1",
      "per_device_batch_size=1",
      f"max_target_length={settings['time']}",
      "remat_policy=full",
      "dtype=bfloat16",
      "weight_dtype=float32",
  ]
  if layers:
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
