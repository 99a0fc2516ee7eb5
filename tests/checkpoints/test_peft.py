"""Adapters: merged as peft merges, written so that it reads, others refused."""

from __future__ import annotations

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import nnx

from clawgym_jax.checkpoints import hf, names, peft, safetensors, state
from clawgym_jax.checkpoints.orbax import Checkpoints, TrainState
from clawgym_jax.checkpoints.tensors import held
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import create
from clawgym_jax.models.layers.lora import LoraConfig
from tests.checkpoints.test_hf import TOKENS, transformers_logits

LORA = LoraConfig(rank=3, alpha=6.0, targets=("q_proj", "v_proj", "down_proj"))


def trained(vocab_size: int, seed: int = 0):
  """A tiny model whose adapters change what it computes."""
  model = create.tiny_qwen3(vocab_size, seed=seed, lora=LORA)
  factors = nnx.state(model, nnx.LoRAParam)
  keys = iter(jax.random.split(jax.random.key(seed), 100))
  factors = jax.tree.map(
      lambda leaf: jax.random.normal(next(keys), leaf.shape) * 0.1, factors
  )
  nnx.update(model, factors)
  return model


def save_run(directory, model) -> Checkpoints:
  lora = {"rank": LORA.rank, "alpha": LORA.alpha, "targets": list(LORA.targets)}
  states = Checkpoints(directory)
  states.save(
      TrainState(
          step=1,
          params=nnx.state(model, nnx.Param),
          config=model.config.to_hf() | {"lora": lora},
      )
  )
  states.wait()
  return states


@pytest.fixture
def run(tmp_path, tokenizer):
  """A model trained with LoRA, its base's folder and its saved states."""
  model = trained(tokenizer.vocab_size)
  plain = create.tiny_qwen3(tokenizer.vocab_size)
  hf.save(tmp_path / "base", plain, tokenizer)
  return model, tmp_path / "base", save_run(tmp_path / "run", model)


def test_out_and_merged_is_what_the_model_computes(run, tmp_path, logits):
  model, base, states = run
  peft.write(tmp_path / "adapter", state.adapter(states, str(base)))
  merged = peft.merged(hf.read(base), peft.read(tmp_path / "adapter"))
  hf.write(tmp_path / "merged", merged)
  again, _ = hf.load(tmp_path / "merged")
  expected = logits(model, TOKENS)
  assert np.abs(expected - logits(hf.load(base)[0], TOKENS)).max() > 0.1
  np.testing.assert_allclose(logits(again, TOKENS), expected, atol=1e-4)
  np.testing.assert_allclose(
      transformers_logits(tmp_path / "merged", TOKENS), expected, atol=1e-4
  )
  hf.write(tmp_path / "whole", state.read(states, base))  # merged by the way
  for name, tensor in hf.read(tmp_path / "whole").tensors.items():
    np.testing.assert_array_equal(tensor.read(), merged.tensors[name].read())


def test_the_format_is_the_documented_one(run, tmp_path):
  model, base, states = run
  peft.write(tmp_path / "adapter", state.adapter(states, "org/base"))
  config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
  assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 3, 6.0)
  assert sorted(config["target_modules"]) == sorted(LORA.targets)
  assert config["base_model_name_or_path"] == "org/base"
  found = safetensors.read_file(tmp_path / "adapter" / "adapter_model.safetensors")
  assert len(found) == 2 * 3 * model.config.num_hidden_layers
  at = "base_model.model.model.layers.1.mlp.down_proj"
  assert found[f"{at}.lora_A.weight"].shape == (3, 128)
  assert found[f"{at}.lora_B.weight"].shape == (64, 3)
  factor = model.model.layers.mlp.down_proj.lora_B.weight[...][1]
  np.testing.assert_array_equal(found[f"{at}.lora_B.weight"].read(), factor)


def test_peft_computes_the_same(run, tmp_path, logits):
  theirs = pytest.importorskip("peft")
  torch = pytest.importorskip("torch")
  transformers = pytest.importorskip("transformers")
  model, base, states = run
  peft.write(tmp_path / "adapter", state.adapter(states, str(base)))
  plain = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
  adapted = theirs.PeftModel.from_pretrained(plain, str(tmp_path / "adapter"))
  with torch.no_grad():
    found = adapted(torch.tensor(TOKENS)).logits.numpy()
  np.testing.assert_allclose(found, logits(model, TOKENS), atol=1e-4)
  adapted.save_pretrained(tmp_path / "theirs")
  again = peft.read(tmp_path / "theirs")
  assert again.config == replace(LORA, targets=tuple(sorted(LORA.targets)))
  assert again.factors.keys() == peft.read(tmp_path / "adapter").factors.keys()


def test_the_merge_is_float32_and_then_the_bases_type(run, tmp_path, tokenizer):
  model, base, states = run
  adapter = state.adapter(states, str(base))
  source = hf.read(base)
  hf.write(tmp_path / "half", source, dtype="bfloat16")
  half = hf.read(tmp_path / "half")
  name = "model.layers.0.self_attn.q_proj.weight"
  a, b = (t.read() for t in adapter.factors[name])
  weight = half.tensors[name].read()
  found = peft.merged(half, adapter).tensors[name].read()
  expected = (weight.astype(np.float32) + 2.0 * (b @ a)).astype(weight.dtype)
  assert found.dtype == weight.dtype
  np.testing.assert_array_equal(found, expected)


def change_config(directory, **change) -> None:
  path = directory / "adapter_config.json"
  path.write_text(json.dumps(json.loads(path.read_text()) | change))


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"use_dora": True}, "use_dora"),
        ({"peft_type": "IA3"}, "'IA3'"),
        ({"bias": "all"}, "bias 'all'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"r": 4}, "another rank"),
        ({"lora_alpha": None}, "no number lora_alpha"),
        ({"lora_alpha": "6"}, "no number lora_alpha"),
        ({"lora_alpha": 10**400}, "no number lora_alpha"),
        ({"r": [8]}, r"the rank r \[8\]"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights 'pissa'"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights"),
        ({"init_lora_weights": "olora"}, "init_lora_weights 'olora'"),
        ({"init_lora_weights": "corda"}, "init_lora_weights 'corda'"),
        ({"init_lora_weights": "loftq"}, "init_lora_weights 'loftq'"),
        ({"init_lora_weights": None}, "init_lora_weights None"),
    ],
)
def test_what_is_more_than_lora_is_refused(change, expected, run, tmp_path):
  _, base, states = run
  peft.write(tmp_path / "adapter", state.adapter(states, str(base)))
  change_config(tmp_path / "adapter", **change)
  with pytest.raises(UserError, match=expected):
    peft.read(tmp_path / "adapter")


@pytest.mark.parametrize("start", [True, False, "gaussian", "eva", "no key"])
def test_starts_that_leave_the_base_alone_are_read(start, run, tmp_path):
  _, base, states = run
  peft.write(tmp_path / "adapter", state.adapter(states, str(base)))
  change_config(tmp_path / "adapter", init_lora_weights=start)
  path = tmp_path / "adapter" / "adapter_config.json"
  if start == "no key":
    path.write_text(path.read_text().replace("init_lora_weights", "other"))
  assert peft.read(tmp_path / "adapter").config == replace(
      LORA, targets=tuple(sorted(LORA.targets))
  )
  text = path.read_text().replace('"lora_alpha"', '"alpha"')
  path.write_text(text)
  with pytest.raises(UserError, match="no number lora_alpha"):
    peft.read(tmp_path / "adapter")


def named(directory, name: str) -> None:
  """Says `_name_or_path` as transformers 4 does."""
  path = directory / "config.json"
  path.write_text(json.dumps(json.loads(path.read_text()) | {"_name_or_path": name}))


def test_an_own_adapter_knows_its_base_by_its_weights(run, tmp_path, tokenizer):
  """Whatever it is called, in any type of floats; a sibling of its shape it is not."""
  _, base, states = run
  peft.write(tmp_path / "unnamed", state.adapter(states, str(base)))
  named(base, "org/base")
  peft.write(tmp_path / "named", state.adapter(states, str(base)))
  assert peft.read(tmp_path / "unnamed").base == str(base)
  assert peft.read(tmp_path / "named").base == "org/base"
  for kind in ("bfloat16", "float16"):
    hf.write(tmp_path / kind, hf.read(base), dtype=kind)
  sibling = create.tiny_qwen3(tokenizer.vocab_size, seed=1)
  hf.save(tmp_path / "sibling", sibling, tokenizer)
  named(tmp_path / "sibling", "org/base")
  for folder in ("unnamed", "named"):
    adapter = peft.read(tmp_path / folder)
    for same in (base, tmp_path / "bfloat16", tmp_path / "float16"):
      peft.merged(hf.read(same), adapter)
    with pytest.raises(UserError, match="this model's weights are others"):
      peft.merged(hf.read(tmp_path / "sibling"), adapter)
    (tmp_path / folder / "base_weights.json").write_text('{"a": 1}')
    with pytest.raises(UserError, match="base_weights.json is damaged"):
      peft.merged(hf.read(base), peft.read(tmp_path / folder))
    (tmp_path / folder / "base_weights.json").unlink()  # as the error says
    peft.merged(hf.read(tmp_path / "sibling"), peft.read(tmp_path / folder))


def test_an_adapter_of_another_base_is_refused(run, tmp_path, tokenizer):
  _, base, states = run
  adapter = replace(state.adapter(states, "org/base-a"), known={})  # another's
  source = hf.read(base)
  for name in ("/models/base-b/", "org/base-b"):
    other = replace(source, config=source.config | {"_name_or_path": name})
    with pytest.raises(UserError, match="of the base org/base-a"):
      peft.merged(other, adapter)
    peft.merged(replace(other, name="models/Base-A/"), adapter)
  hf.save(tmp_path / "other", create.tiny_llama(tokenizer.vocab_size), tokenizer)
  with pytest.raises(UserError, match="of another base"):
    peft.merged(hf.read(tmp_path / "other"), adapter)
  extra = dict(adapter.factors)
  extra["model.layers.9.self_attn.q_proj.weight"] = next(iter(extra.values()))
  more = peft.Adapter(config=adapter.config, factors=extra)
  with pytest.raises(UserError, match="layers.9.*does not have"):
    peft.merged(source, more)
  peft.write(tmp_path / "adapter", adapter)
  tensors = safetensors.read_file(tmp_path / "adapter" / "adapter_model.safetensors")
  tensors["base_model.model.model.embed_tokens.lora_embedding_A"] = held(np.ones((3, 2)))
  safetensors.write_file(tmp_path / "adapter" / "more", tensors)
  (tmp_path / "adapter" / "more").rename(tmp_path / "adapter" / "adapter_model.safetensors")
  with pytest.raises(UserError, match="lora_embedding_A, which is not"):
    peft.read(tmp_path / "adapter")


def test_a_run_without_lora_has_no_adapter(tmp_path, tokenizer):
  model = create.tiny_qwen3(tokenizer.vocab_size)
  states = Checkpoints(tmp_path)
  states.save(
      TrainState(step=1, params=nnx.state(model, nnx.Param), config=model.config.to_hf())
  )
  states.wait()
  with pytest.raises(UserError, match="without LoRA"):
    state.adapter(states, "base")
  assert names.layout(model.config).keys() == names.tensors(nnx.state(model)).keys()
