"""Steps of google-tunix's PeftTrainer on a CPU in float32: losses, seconds, memory.

Settings: `shape` of its Llama model; `ids` [samples][tokens], all trained, taken
`rows` a step in order; `rate`.
"""

import json
import resource
import sys
import time

import jax
import numpy as np
import optax
from flax import nnx
from tunix.models.llama3 import model as llama3
from tunix.sft import peft_trainer, utils


def model_input(batch):
  mask = batch.input_tokens >= 0
  return {
      "input_tokens": batch.input_tokens,
      "input_mask": batch.input_mask,
      "positions": utils.build_positions_from_mask(mask),
      "attention_mask": utils.make_causal_attn_mask(mask),
  }


def main():
  settings = json.load(sys.stdin)
  mesh = jax.make_mesh(
      (1, 1), ("fsdp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2
  )
  rows = settings["rows"]
  ids = np.asarray(settings["ids"], np.int32).reshape(-1, rows, len(settings["ids"][0]))
  seconds, last = [], time.perf_counter()

  def batches():
    nonlocal last
    for step in ids:
      last = time.perf_counter()
      yield peft_trainer.TrainingInput(step, np.ones_like(step))

  class Timed(peft_trainer.PeftTrainer):
    def _post_process_train_step(self, aux):
      super()._post_process_train_step(aux)
      jax.block_until_ready(nnx.state(self.model))
      seconds.append(time.perf_counter() - last)

  with jax.set_mesh(mesh):
    model = llama3.Llama3(llama3.ModelConfig(**settings["shape"]), rngs=nnx.Rngs(0))
    rule = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(settings["rate"], 0.9, 0.95)
    )
    trainer = Timed(
        model,
        rule,
        peft_trainer.TrainingConfig(
            eval_every_n_steps=10**9, max_steps=len(ids), max_inflight_computations=1
        ),
    ).with_gen_model_input_fn(model_input)
    trainer.train(batches())
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  print(json.dumps({"seconds": seconds, "peak_bytes": peak << 10}))


main()
