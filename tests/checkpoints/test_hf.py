"""Hugging Face folders: transformers computes the same, damage is named."""

from __future__ import annotations

import json
import os

import jax.numpy as jnp
import numpy as np
import pytest

from clawgym_jax.checkpoints import folder, gguf, hf, safetensors
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import create

TOKENS = np.random.default_rng(0).integers(0, 256, (2, 33))
FAMILIES = {
    "llama": create.tiny_llama,
    "qwen2": create.tiny_qwen2,
    "qwen3": create.tiny_qwen3,
    "qwen3_moe": create.tiny_qwen3_moe,
    "gemma3_text": create.tiny_gemma3,
}

ENGLISH = (
    "The capital of France is Paris, and the capital of Italy is Rome. In 1969,"
    " humans first landed on the Moon. Water boils at 100 degrees Celsius."
)


def transformers_logits(directory, tokens, dtype="float32"):
  torch = pytest.importorskip("torch")
  transformers = pytest.importorskip("transformers")
  model = transformers.AutoModelForCausalLM.from_pretrained(
      directory, dtype=getattr(torch, dtype), attn_implementation="sdpa"
  )
  with torch.no_grad():
    return model.eval()(torch.tensor(tokens)).logits.numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_computes_the_same(family, tmp_path, tokenizer, logits):
  model = FAMILIES[family](tokenizer.vocab_size, seed=3)
  hf.save(tmp_path / "model", model, tokenizer)
  np.testing.assert_allclose(
      transformers_logits(tmp_path / "model", TOKENS),
      logits(model, TOKENS),
      atol=1e-4,
      rtol=0,
  )


def test_auto_tokenizer_encodes_the_same(tmp_path, tokenizer):
  transformers = pytest.importorskip("transformers")
  model = create.tiny_qwen3(tokenizer.vocab_size)
  hf.save(tmp_path / "model", model, tokenizer)
  theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
  text = "Zoë owes 12.50 €\n\tto <b>Bob</b>; 日本 ok?"
  assert theirs.encode(text, add_special_tokens=False) == tokenizer.encode(text)
  assert theirs.eos_token_id == tokenizer.eos_id


@pytest.mark.slow
def test_smollm2_from_gguf_matches_transformers(smollm2, tmp_path, logits):
  """Logits go up to 40; over longer texts transformers' own float32 is 1.6e-4 off."""
  model, tokenizer = gguf.load(smollm2)
  hf.save(tmp_path / "model", model, tokenizer)
  tokens = np.asarray([tokenizer.encode(ENGLISH)])
  for dtype in ("float32", "float64"):
    np.testing.assert_allclose(
        logits(model, tokens),
        transformers_logits(tmp_path / "model", tokens, dtype),
        atol=1e-4,
        rtol=0,
    )


def test_shards_and_bfloat16_round_trip(tmp_path, tokenizer, logits):
  model = create.tiny_qwen3(tokenizer.vocab_size, seed=1)
  hf.save(tmp_path / "a", model, tokenizer, shard_bytes=50_000)
  assert len(list((tmp_path / "a").glob("model-*-of-*.safetensors"))) > 1
  again, _ = hf.load(tmp_path / "a")
  np.testing.assert_array_equal(logits(model, TOKENS), logits(again, TOKENS))
  hf.save(tmp_path / "b", model, tokenizer, dtype="bfloat16")
  half, _ = hf.load(tmp_path / "b")
  assert json.loads((tmp_path / "b" / "config.json").read_text())["dtype"] == "bfloat16"
  assert half.model.norm.weight[...].dtype == jnp.float32
  np.testing.assert_allclose(logits(model, TOKENS), logits(half, TOKENS), atol=0.02)


def test_replaces_a_model_but_nothing_else(tmp_path, tokenizer):
  model = create.tiny_qwen3(tokenizer.vocab_size)
  hf.save(tmp_path / "model", model, tokenizer)
  hf.save(tmp_path / "model", model, tokenizer)
  assert [path.name for path in tmp_path.iterdir()] == ["model"]
  (tmp_path / "work").mkdir()
  (tmp_path / "work" / "notes.txt").write_text("mine")
  with pytest.raises(UserError, match="not a model"):
    hf.save(tmp_path / "work", model, tokenizer)
  (tmp_path / "work" / "config.json").write_text('{"port": 80}')  # a program's own
  with pytest.raises(UserError, match="not a model"):
    hf.save(tmp_path / "work", model, tokenizer)


@pytest.mark.parametrize("fault", ["truncated", "missing", "other", "config"])
def test_damage_is_named(fault, tmp_path, tokenizer):
  model = create.tiny_qwen3(tokenizer.vocab_size)
  hf.save(tmp_path / "model", model, tokenizer)
  weights = tmp_path / "model" / "model.safetensors"
  config = tmp_path / "model" / "config.json"
  expected = "model.safetensors"
  if fault == "truncated":
    os.truncate(weights, weights.stat().st_size // 2)
  elif fault == "missing":
    weights.unlink()
  elif fault == "config":
    config.write_text("{")
    expected = "config.json"
  else:
    values = json.loads(config.read_text())
    config.write_text(json.dumps(values | {"hidden_size": 128}))
    expected = "embed_tokens.weight has shape"
  with pytest.raises(UserError, match=expected):
    hf.load(tmp_path / "model")


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_what_a_killed_save_leaves_ends_at_the_next(
    renames, tmp_path, tokenizer, monkeypatch
):
  model = create.tiny_qwen3(tokenizer.vocab_size)
  target = tmp_path / "model"
  hf.save(target, model, tokenizer)
  rename, done = os.rename, []

  def until_killed(*paths):
    if len(done) == renames:
      raise KeyboardInterrupt
    done.append(rename(*paths))

  with monkeypatch.context() as patch:  # nothing is cleaned up: as after kill -9
    patch.setattr(folder.os, "rename", until_killed)
    patch.setattr(folder.shutil, "rmtree", lambda path, **kw: until_killed())
    with pytest.raises(KeyboardInterrupt):
      hf.save(target, model, tokenizer)
  assert list(tmp_path.glob(".model.*"))
  assert target.exists() == (renames != 1)
  monkeypatch.setattr(safetensors, "write_folder", lambda *_, **kw: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    hf.save(target, model, tokenizer)
  assert [path.name for path in tmp_path.iterdir()] == ["model"]
  hf.load(target)


def test_a_write_ends_no_other_models(tmp_path, tokenizer):
  """What a killed write of `a.old-b` left is not one of `a`."""
  model = create.tiny_qwen3(tokenizer.vocab_size)
  hf.save(tmp_path / ".a.old-b.partial-0a1b2c3d", model, tokenizer)
  before = sorted(path.name for path in tmp_path.iterdir())
  hf.save(tmp_path / "a", model, tokenizer)
  assert sorted(path.name for path in tmp_path.iterdir()) == [*before, "a"]


def test_a_failed_save_leaves_the_old_model(tmp_path, tokenizer, monkeypatch):
  model = create.tiny_qwen3(tokenizer.vocab_size)
  hf.save(tmp_path / "model", model, tokenizer)
  monkeypatch.setattr(hf, "write_atomic", lambda path, _: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    hf.save(tmp_path / "model", model, tokenizer)
  assert [path.name for path in tmp_path.iterdir()] == ["model"]
  hf.load(tmp_path / "model")
