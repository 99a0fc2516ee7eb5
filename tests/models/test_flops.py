"""Operations by shapes: those that XLA counts in the same step, and the known sums."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from clawgym_jax.models import CausalLM, create, flops
from clawgym_jax.models.layers.lora import LoraConfig
from clawgym_jax.sft.scores import supervised_loss

VOCAB, TIME = 96, 128


def counted_by_shapes(config, positions, scored, lora=None):
  pairs = flops.seen_pairs(config, positions)
  return flops.training(config, len(positions), scored, pairs, lora)


def compiled_flops(model):
  """What XLA counts of a forward and backward pass of one row, all but one scored."""
  graphdef, trained, rest = nnx.split(
      model, nnx.LoRAParam if model.lora else nnx.Param, ...
  )
  slots = TIME - 1
  line = jnp.arange(TIME)[None]
  batch = {
      "tokens": jnp.zeros((1, TIME), jnp.int32),
      "positions": line,
      "end": jnp.full((1, TIME), TIME),
      "before": line[:, :-1],
      "targets": jnp.zeros((1, slots), jnp.int32),
      "weight": jnp.ones((1, slots)),
      "share": jnp.ones((1, slots)) / slots,
  }

  def loss(trained):
    return supervised_loss(nnx.merge(graphdef, trained, rest), batch)[0]

  return jax.jit(jax.grad(loss)).lower(trained).compile().cost_analysis()["flops"]


LORA = LoraConfig(rank=8, alpha=1, targets=("q_proj", "up_proj"))


@pytest.mark.parametrize("lora", [None, LORA])
def test_xla_counts_the_same_for_a_layer(lora):
  """But for the masked half of attention, the scores that the backward pass computes
  again, and what is no product: one layer is the difference of two depths."""
  counted, mine = [], []
  for layers in (2, 3):
    config = replace(create.tiny_config("llama", VOCAB), num_hidden_layers=layers)
    model = CausalLM(config, rngs=nnx.Rngs(0), lora=lora)
    counted.append(compiled_flops(model))
    mine.append(counted_by_shapes(config, np.arange(TIME), TIME - 1, lora))
  width = config.num_attention_heads * config.head_dim
  # One block of queries here, so XLA computes all pairs.
  more = width * (14 * TIME * TIME - 12 * TIME * (TIME + 1) / 2)
  assert counted[1] - counted[0] == pytest.approx(mine[1] - mine[0] + more, rel=0.04)


def test_padding_and_what_is_not_seen_count_nothing():
  config = create.tiny_config("llama", VOCAB)
  two = np.concatenate([np.arange(8), np.arange(8)])
  one = np.arange(16)
  differ = counted_by_shapes(config, one, 4) - counted_by_shapes(config, two, 4)
  pairs = 16 * 17 / 2 - 2 * 8 * 9 / 2
  width = config.num_attention_heads * config.head_dim
  assert differ == config.num_hidden_layers * 12 * width * pairs
  assert counted_by_shapes(config, one[:0], 0) == 0


def test_windows_bound_what_sliding_layers_see():
  config = create.tiny_config("gemma3_text", VOCAB)
  full = counted_by_shapes(config, np.arange(5), 0)
  longer = counted_by_shapes(config, np.arange(6), 0)
  width = config.num_attention_heads * config.head_dim
  matrices = (full - 12 * width * 3 * 15) / 5
  assert longer - full == pytest.approx(matrices + 12 * width * (6 + 2 * 5))


def test_six_times_the_parameters():
  """The rule of thumb, attention's share left out: of experts those that are active."""
  for family in ("qwen3", "qwen3_moe"):
    config = create.tiny_config(family, VOCAB)
    sizes = {
        path: leaf.size
        for path, leaf in nnx.to_flat_state(
            nnx.state(create.tiny(family, VOCAB), nnx.Param)
        )
        if leaf.ndim - ("layers" in path) - ("experts" in path) > 1
        and "embed_tokens" not in path
    }
    share = (config.num_experts_per_tok or 1) / (config.num_experts or 1)
    active = sum(s * (share if "experts" in p else 1) for p, s in sizes.items())
    if config.tie_word_embeddings:
      active += flops.head_weights(config)
    assert flops.training(config, 1, 1, 0) == 6 * active
