"""A causal language model over any family's decoder layer.

`scan_layers=True` (training) stacks the layers' parameters on a leading axis;
False (serving) keeps one module a layer, so that a decode step reads each
weight once and copies none. `create.serving_copy` goes from one to the other.
The hidden states that leave the model are after the final norm; logits are
computed apart, at the positions that need them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from clawgym_jax.models import llama, qwen3
from clawgym_jax.models.cache import KVCache
from clawgym_jax.models.config import ModelConfig
from clawgym_jax.models.layers.linear import Embedding, Linear, matmul
from clawgym_jax.models.layers.norm import RMSNorm
from clawgym_jax.models.layers.rope import rope_tables

_LAYERS = {"llama": llama.DecoderLayer, "qwen3": qwen3.DecoderLayer}
REMAT = {
    "none": None,
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}
"""What the backward pass keeps of a layer: all, its input, or its products."""


class Decoder(nnx.Module):
  """Embedding, layers and final norm: what Hugging Face calls `model`."""

  def __init__(
      self,
      config: ModelConfig,
      *,
      rngs: nnx.Rngs,
      param_dtype: jnp.dtype,
      compute_dtype: jnp.dtype,
      scan_layers: bool,
      remat: str,
  ):
    self.config = config
    self.remat = remat
    self.scan_layers = scan_layers
    kw = {
        "rngs": rngs,
        "param_dtype": param_dtype,
        "compute_dtype": compute_dtype,
    }
    layer = _LAYERS[config.family]
    count = config.num_hidden_layers
    self.embed_tokens = Embedding(
        config.vocab_size, config.hidden_size, rngs=rngs, param_dtype=param_dtype
    )
    if scan_layers:
      self.layers = layer(config, layers=count, **kw)
    else:
      self.layers = nnx.List([layer(config, **kw) for _ in range(count)])
    self.norm = RMSNorm(
        config.hidden_size, eps=config.rms_norm_eps, param_dtype=param_dtype
    )

  def __call__(
      self,
      tokens: jax.Array,
      positions: jax.Array,
      *,
      end: jax.Array | None,
      rows: jax.Array | None,
      cache: KVCache | None,
  ) -> tuple[jax.Array, KVCache | None]:
    tables = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embed_tokens(tokens)
    if cache is None:
      if end is None:
        end = jnp.full(tokens.shape, tokens.shape[1], jnp.int32)
      x = self._run(x, tables, end, positions)
    else:
      x, cache = self._run_cached(x, tables, positions, rows, cache)
    return self.norm(x), cache

  def _run(self, x, tables, end, positions):
    def apply(layer, x):
      return layer(
          x, tables, end=end, positions=positions, rows=None, cache=None
      )[0]

    def step(x, state):
      return apply(nnx.merge(graphdef, state), x), None

    modules = [self.layers] if self.scan_layers else self.layers
    for module in modules:
      graphdef, state = nnx.split(module)
      body = step
      if REMAT[self.remat] is not None:
        body = jax.checkpoint(step, policy=REMAT[self.remat])
      if self.scan_layers:
        # A loop on a CPU keeps bfloat16 as float32 and copies every residual.
        unroll = jax.default_backend() == "cpu"
        x, _ = jax.lax.scan(body, x, state, unroll=unroll or 1)
      else:
        x, _ = body(x, state)
    return x

  def _run_cached(self, x, tables, positions, rows, cache):
    keys, values = [], []
    for index in range(self.config.num_hidden_layers):
      x, (key, value) = self._layer(index)(
          x,
          tables,
          end=None,
          positions=positions,
          rows=rows,
          cache=(cache.keys[index], cache.values[index]),
      )
      keys.append(key)
      values.append(value)
    return x, KVCache(tuple(keys), tuple(values))

  def _layer(self, index: int) -> nnx.Module:
    if not self.scan_layers:
      return self.layers[index]
    graphdef, state = nnx.split(self.layers)
    return nnx.merge(graphdef, jax.tree.map(lambda value: value[index], state))


class CausalLM(nnx.Module):
  """A decoder and its language-model head.

  Args:
    config: the model's shape.
    rngs: seeds of the initial weights (normal, standard deviation 0.02).
    param_dtype: of the parameters; float32 for training.
    compute_dtype: of the operands of matrix products (float32 or bfloat16);
      sums, norms, softmax and the residual stream are float32 in both.
    scan_layers: layers stacked and scanned (training), or one by one (serving).
    remat: a name of `REMAT`.
  """

  def __init__(
      self,
      config: ModelConfig,
      *,
      rngs: nnx.Rngs,
      param_dtype: jnp.dtype = jnp.float32,
      compute_dtype: jnp.dtype = jnp.float32,
      scan_layers: bool = True,
      remat: str = "none",
  ):
    self.config = config
    self.compute_dtype = jnp.dtype(compute_dtype)
    self.model = Decoder(
        config,
        rngs=rngs,
        param_dtype=jnp.dtype(param_dtype),
        compute_dtype=self.compute_dtype,
        scan_layers=scan_layers,
        remat=remat,
    )
    if not config.tie_word_embeddings:
      self.lm_head = Linear(
          config.hidden_size,
          config.vocab_size,
          axes=("tensor", "fsdp"),
          rngs=rngs,
          param_dtype=jnp.dtype(param_dtype),
          compute_dtype=self.compute_dtype,
      )

  def __call__(
      self,
      tokens: jax.Array,
      positions: jax.Array,
      *,
      end: jax.Array | None = None,
      cache: KVCache | None = None,
      rows: jax.Array | None = None,
  ) -> tuple[jax.Array, KVCache | None]:
    """Hidden states after the final norm, float32 [batch, time, hidden].

    Args:
      tokens: int32 [batch, time].
      positions: int32 [batch, time], the depth of each token on its path.
      end: int32 [batch, time]; query i sees key j iff j <= i < end[j]. Absent:
        plain causal attention. Not used with a cache.
      cache: where the new keys and values are written (slot = position) and
        then read: a query at position p sees slots 0..p of its row.
      rows: int32 [batch], the cache row of each sequence, all different;
        absent: sequence b uses row b and the batch has as many rows.

    Returns:
      The hidden states and the updated cache (None without one).
    """
    return self.model(tokens, positions, end=end, rows=rows, cache=cache)

  def logits(self, hidden: jax.Array) -> jax.Array:
    """hidden [..., hidden] -> float32 [..., vocab]."""
    if self.config.tie_word_embeddings:
      weight = self.model.embed_tokens.weight[...]
      return matmul(hidden, weight, self.compute_dtype)
    return self.lm_head(hidden)
