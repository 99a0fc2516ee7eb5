"""Attention: over training rows under the mask j <= i < end[j], and into a KV cache."""

from clawgym_jax.models.layers.attention.cached import cached_attention
from clawgym_jax.models.layers.attention.rows import Window, tree_attention

__all__ = ["Window", "cached_attention", "tree_attention"]
