"""A causal language model over any family's decoder layer.

`scan_layers=True` (training) stacks the layers' parameters on a leading axis;
False (serving) keeps one module a layer, so that a decode step reads each
weight once and copies none. `create.serving_copy` goes from one to the other.
The hidden states that leave the model are after the final norm; logits are
computed apart, at the positions that need them. A mixture of experts has no
auxiliary loss: nothing but hidden states leaves the model.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from clawgym_jax import parallel
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import gemma3, llama, qwen2, qwen3, qwen3_moe
from clawgym_jax.models.cache import KVCache
from clawgym_jax.models.config import ModelConfig
from clawgym_jax.models.layers.linear import Embedding, Linear, matmul
from clawgym_jax.models.layers.lora import LoraConfig
from clawgym_jax.models.layers.norm import RMSNorm
from clawgym_jax.models.layers.rope import Tables, rope_tables
from clawgym_jax.parallel import context

_LAYERS = {
    "gemma3_text": gemma3.DecoderLayer,
    "llama": llama.DecoderLayer,
    "qwen2": qwen2.DecoderLayer,
    "qwen3": qwen3.DecoderLayer,
    "qwen3_moe": qwen3_moe.DecoderLayer,
}
_NO_WINDOW = np.iinfo(np.int32).max
_ATTENTION = jax.checkpoint_policies.save_only_these_names("attention")
REMAT = {
    "none": None,
    "full": jax.checkpoint_policies.nothing_saveable,
    "attention": _ATTENTION,
    "dots": jax.checkpoint_policies.save_from_both_policies(
        jax.checkpoint_policies.dots_with_no_batch_dims_saveable, _ATTENTION
    ),
}
"""What the backward pass keeps of a layer beside its input.

All, nothing, what attention gave, or that and every product with a weight. The
rest it computes again.
"""


class LayerKinds(NamedTuple):
  """What tells sliding layers from full ones, [layers] each or of one layer.

  Arrays in place of Python branches, so that both kinds are one scanned layer.

  Attributes:
    sliding: bool, whether the layer takes the sliding layers' RoPE.
    window: int32, how many positions back a query sees, itself included.
  """

  sliding: np.ndarray
  window: np.ndarray

  @classmethod
  def of(cls, config: ModelConfig) -> LayerKinds | None:
    """None where all layers are full ones."""
    if config.sliding_layers is None:
      return None
    sliding = np.asarray(config.sliding_layers)
    window = np.where(sliding, config.sliding_window, _NO_WINDOW)
    return cls(sliding, window.astype(np.int32))


class Decoder(nnx.Module):
  """Embedding, layers and final norm: what Hugging Face calls `model`.

  Gemma multiplies its embeddings by sqrt(hidden). transformers rounds that
  factor to the weights' dtype: 33.94 becomes 34 in bfloat16. Here it is float32
  whatever the weights are, as the residual stream that it scales is; in float32
  both agree.
  """

  def __init__(
      self,
      config: ModelConfig,
      *,
      rngs: nnx.Rngs,
      param_dtype: jnp.dtype,
      compute_dtype: jnp.dtype,
      scan_layers: bool,
      unroll: bool | None,
      remat: str,
      flat_rows: bool,
      lora: LoraConfig | None,
  ):
    self.config = config
    self.unroll = unroll
    self.remat = remat
    self.flat_rows = flat_rows
    self.scan_layers = scan_layers
    kw = {
        "rngs": rngs,
        "param_dtype": param_dtype,
        "compute_dtype": compute_dtype,
        "lora": lora,
    }
    layer = _LAYERS[config.family]
    count = config.num_hidden_layers
    gemma = config.family == "gemma3_text"
    self.embed_tokens = Embedding(
        config.vocab_size,
        config.hidden_size,
        scale=float(np.sqrt(np.float32(config.hidden_size))) if gemma else 1.0,
        rngs=rngs,
        param_dtype=param_dtype,
    )
    if scan_layers:
      self.layers = layer(config, layers=count, **kw)
    else:
      self.layers = nnx.List([layer(config, **kw) for _ in range(count)])
    self.norm = RMSNorm(
        config.hidden_size,
        eps=config.rms_norm_eps,
        offset=gemma3.NORM_OFFSET if gemma else 0,
        param_dtype=param_dtype,
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
    if cache is not None:
      tables = self._tables(positions)
      x = self.embed_tokens(tokens)
      x, cache = self._run_cached(x, tables, positions, rows, cache)
      return self.norm(x), cache
    if end is None:
      end = jnp.full(tokens.shape, tokens.shape[1], jnp.int32)
    order, placed = context.order(tokens.shape[1]), positions
    if order is not None:
      tokens, placed = tokens[:, order], positions[:, order]
    x = parallel.laid_out(self.embed_tokens(tokens))
    x = self._run(x, self._tables(placed), end, positions)
    return context.natural(self.norm(x)), None

  def _tables(self, positions: jax.Array) -> tuple[Tables, Tables | None]:
    """Of the full layers' RoPE, and of the sliding layers' where there are such."""
    config = self.config
    full = rope_tables(
        positions, config.head_dim, config.rope_theta, config.rope_scaling
    )
    if config.rope_local_base_freq is None:
      return full, None
    return full, rope_tables(positions, config.head_dim, config.rope_local_base_freq)

  def _run(self, x, tables, end, positions):
    kinds = LayerKinds.of(self.config)

    def step(x, inputs):
      state, kind = inputs
      layer = nnx.merge(graphdef, state)
      how = {"end": end, "positions": positions, "flat": self.flat_rows}
      x, _ = layer(x, **_of_layer(tables, kind), **how)
      return parallel.laid_out(x), None

    modules = [self.layers] if self.scan_layers else self.layers
    for index, module in enumerate(modules):
      graphdef, state = nnx.split(module)
      body = step
      if REMAT[self.remat] is not None:
        body = jax.checkpoint(step, policy=REMAT[self.remat])
      if self.scan_layers:
        unroll = self.unroll
        if unroll is None:
          # A loop on a CPU keeps bfloat16 as float32 and copies every residual. But
          # without one XLA merges there what is computed again with what was kept.
          unroll = parallel.platform() == "cpu" and REMAT[self.remat] is None
        x, _ = jax.lax.scan(body, x, (state, kinds), unroll=unroll or 1)
      else:
        x, _ = body(x, (state, _at(kinds, index)))
    return x

  def _run_cached(self, x, tables, positions, rows, cache):
    kinds = LayerKinds.of(self.config)
    keys, values = [], []
    for index in range(self.config.num_hidden_layers):
      x, (key, value) = self._layer(index)(
          x,
          **_of_layer(tables, _at(kinds, index)),
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
    return nnx.merge(graphdef, _at(state, index))


def _at(tree: Any, index: int) -> Any:
  """One layer of a tree stacked by layers."""
  return jax.tree.map(lambda value: value[index], tree)


def _of_layer(
    tables: tuple[Tables, Tables | None], kind: LayerKinds | None
) -> dict[str, Any]:
  """The RoPE tables and the window that a layer is called with."""
  full, local = tables
  if kind is None:
    return {"tables": full, "window": None}
  chosen = jax.tree.map(lambda a, b: jnp.where(kind.sliding, b, a), full, local)
  return {"tables": chosen, "window": kind.window}


class CausalLM(nnx.Module):
  """A decoder and its language-model head.

  Args:
    config: the model's shape.
    rngs: seeds of the initial weights (normal, standard deviation 0.02).
    param_dtype: of the parameters; float32 for training.
    compute_dtype: of the operands of matrix products (float32 or bfloat16);
      sums, norms, softmax and the residual stream are float32 in both. An
      accelerator also stores in it what a layer's products give.
    scan_layers: layers stacked and scanned (training), or one by one (serving).
    unroll: whether a scan is written out layer by layer: quicker programs that
      compile for longer; None: on a CPU, unless something is computed again.
    remat: a name of `REMAT`.
    flat_rows: no row that it is called with is a tree; see `tree_attention`.
    lora: adapters in the linear layers it names; `create.merged` takes them out.
  """

  def __init__(
      self,
      config: ModelConfig,
      *,
      rngs: nnx.Rngs,
      param_dtype: jnp.dtype = jnp.float32,
      compute_dtype: jnp.dtype = jnp.float32,
      scan_layers: bool = True,
      unroll: bool | None = None,
      remat: str = "none",
      flat_rows: bool = False,
      lora: LoraConfig | None = None,
  ):
    if lora is not None and config.num_experts is not None:
      experts = {"gate_proj", "up_proj", "down_proj"} & set(lora.targets)
      if experts:
        raise UserError(
            f"LoRA targets {', '.join(sorted(experts))}, which are experts' weights"
            " in this model: only its attention can be adapted"
        )
    self.config = config
    self.lora = lora
    self.compute_dtype = jnp.dtype(compute_dtype)
    self.model = Decoder(
        config,
        rngs=rngs,
        param_dtype=jnp.dtype(param_dtype),
        compute_dtype=self.compute_dtype,
        scan_layers=scan_layers,
        unroll=unroll,
        remat=remat,
        flat_rows=flat_rows,
        lora=lora,
    )
    if not config.tie_word_embeddings:
      self.lm_head = Linear(
          config.hidden_size,
          config.vocab_size,
          name="lm_head",
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
    return matmul(hidden, self.head(), self.compute_dtype, axes=("tensor", "fsdp"))

  def head(self) -> jax.Array:
    """The vectors of the vocabulary that score hidden states, [vocab, hidden]."""
    if self.config.tie_word_embeddings:
      return self.model.embed_tokens.weight[...]
    return self.lm_head.weight[...]
