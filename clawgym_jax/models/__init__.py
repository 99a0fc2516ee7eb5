"""Language models in Flax NNX whose module paths are Hugging Face's names."""

from clawgym_jax.models.causal_lm import CausalLM
from clawgym_jax.models.config import ModelConfig

__all__ = ["CausalLM", "ModelConfig"]
