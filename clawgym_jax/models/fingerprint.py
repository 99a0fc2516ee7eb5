"""One short text for a set of weights, computed where they lie.

Equal bits give equal fingerprints on every mesh; one changed element always
changes it. It tells checkpoints apart, it is no signature.
"""

from __future__ import annotations

import hashlib

import jax
import jax.numpy as jnp
from flax import nnx

_LENGTH = 16  # hex digits
_WORDS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}  # by bytes of an element


def fingerprint(params: nnx.State) -> str:
  """Over the name, type, shape and every element of each parameter."""
  leaves = jax.tree.leaves_with_path(params)
  digest = hashlib.sha256()
  for (path, leaf), total in zip(leaves, jax.device_get([_sum(x) for _, x in leaves])):
    digest.update(f"{jax.tree_util.keystr(path)} {leaf.dtype}{leaf.shape} {total}\n".encode())
  return digest.hexdigest()[:_LENGTH]


@jax.jit
def _sum(leaf: jax.Array) -> jax.Array:
  """The sum modulo 2^32 of each element mixed with its place.

  The mixing (MurmurHash3's finaliser) maps bits to bits one to one, so that a
  changed element changes its term, and two changes hardly ever cancel.
  """
  word = _WORDS[leaf.dtype.itemsize]
  bits = jax.lax.bitcast_convert_type(leaf, word).reshape(-1).astype(jnp.uint32)
  mixed = bits + jax.lax.iota(jnp.uint32, bits.size) * jnp.uint32(0x9E3779B1)
  for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
    mixed = (mixed ^ (mixed >> shift)) * jnp.uint32(factor)
  return jnp.sum(mixed ^ (mixed >> 16), dtype=jnp.uint32)
