"""Names: what a checkpoint has too much, too little or in another shape is named."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from flax import nnx

from clawgym_jax.checkpoints import hf, names
from clawgym_jax.checkpoints.tensors import held
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import CausalLM, create
from clawgym_jax.models.layers.lora import LoraConfig
from tests.checkpoints.test_hf import FAMILIES, TOKENS

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def tensors_of(model: CausalLM):
  return names.tensors(nnx.state(model, nnx.Param))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scan_layers", [True, False])
def test_a_model_comes_back_from_its_tensors(family, scan_layers):
  """Stacked or not, on either side."""
  model = FAMILIES[family](260, seed=1)
  found = tensors_of(model)
  assert {n: t.shape for n, t in found.items()} == names.layout(model.config)
  again = names.build(model.config, found, scan_layers=scan_layers)
  for name, tensor in tensors_of(again).items():
    np.testing.assert_array_equal(tensor.read(), found[name].read(), err_msg=name)


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_saves_these_names(family, tmp_path):
  """Its own save, of the same config, has the tensors that we expect."""
  transformers = pytest.importorskip("transformers")
  model = FAMILIES[family](260, seed=1)
  config = transformers.AutoConfig.for_model(**model.config.to_hf())
  theirs = transformers.AutoModelForCausalLM.from_config(config)
  theirs.save_pretrained(tmp_path)
  found = hf.read(tmp_path)
  assert {n: t.shape for n, t in found.tensors.items()} == names.layout(model.config)
  state = dict(theirs.state_dict())
  norm = found.tensors["model.norm.weight"].read()
  np.testing.assert_array_equal(norm, state["model.norm.weight"].numpy())


def test_experts_that_transformers_fused_are_parted():
  """Its layout in memory: gate over up in one tensor, all experts stacked."""
  model = create.tiny_qwen3_moe(260)
  plain = tensors_of(model)
  fused = {n: t for n, t in plain.items() if ".experts." not in n}
  for layer in range(model.config.num_hidden_layers):
    at = f"model.layers.{layer}.mlp.experts"

    def stacked(kind, at=at):
      count = model.config.num_experts
      return np.stack([plain[f"{at}.{e}.{kind}.weight"].read() for e in range(count)])

    gate_up = np.concatenate([stacked("gate_proj"), stacked("up_proj")], axis=1)
    fused[f"{at}.gate_up_proj"] = held(gate_up)
    fused[f"{at}.down_proj"] = held(stacked("down_proj"))
  found = names.fitting(model.config, fused)
  assert found.keys() == plain.keys()
  for name, tensor in found.items():
    assert tensor.shape == plain[name].shape
    np.testing.assert_array_equal(tensor.read(), plain[name].read(), err_msg=name)


def test_a_head_must_agree_with_tie_word_embeddings():
  tied, untied = create.tiny_qwen3(260), create.tiny_llama(260)
  found = tensors_of(tied)
  embedding = found[EMBEDDING].read()
  again = names.fitting(tied.config, found | {HEAD: held(embedding.copy())})
  assert HEAD not in again
  with pytest.raises(UserError, match="other than model.embed_tokens"):
    names.fitting(tied.config, found | {HEAD: held(embedding + 1)})
  found = tensors_of(untied)
  del found[HEAD]
  with pytest.raises(UserError, match="no lm_head.weight"):
    names.fitting(untied.config, found)


def test_what_does_not_fit_is_named():
  model = create.tiny_qwen3(260)
  found = tensors_of(model)
  with pytest.raises(UserError, match="no tensor model.norm.weight"):
    names.fitting(model.config, {n: t for n, t in found.items() if "model.norm" not in n})
  with pytest.raises(UserError, match="tensor q.weight that its config"):
    names.fitting(model.config, found | {"q.weight": held(np.ones(2))})
  wider = dataclasses.replace(model.config, intermediate_size=96)
  with pytest.raises(UserError, match="layers.0.mlp.*has shape"):
    names.fitting(wider, found)
  buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": held(np.ones(2))}
  assert names.fitting(model.config, found | buffer).keys() == found.keys()


def test_lora_is_new_in_what_is_built_and_no_tensor_of_the_model(logits):
  lora = LoraConfig(rank=2, alpha=4.0, targets=("q_proj", "down_proj"))
  model = create.tiny_qwen3(260)
  adapted = names.build(model.config, tensors_of(model), lora=lora)
  assert tensors_of(adapted).keys() == tensors_of(model).keys()
  np.testing.assert_array_equal(logits(adapted, TOKENS), logits(model, TOKENS))
  factor = adapted.model.layers.mlp.down_proj.lora_A.weight[...]
  assert factor.shape == (2, 2, 128) and float(abs(factor).max()) > 0
