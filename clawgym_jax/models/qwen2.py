"""The Qwen2.5 decoder layer: Llama's, with biases on queries, keys and values.

Agrees with transformers' modeling_qwen2.py.
"""

from __future__ import annotations

from clawgym_jax.models import llama


class Attention(llama.Attention):
  """Attention whose three input projections have biases."""

  bias = True


class DecoderLayer(llama.DecoderLayer):
  """Llama's layer around Qwen2's attention."""

  attention = Attention
