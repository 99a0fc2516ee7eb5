"""What names no model is refused by the name of its flag."""

from __future__ import annotations

import pytest

from clawgym_jax.checkpoints import hf, source
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import create


def test_a_folder_is_loaded_and_anything_else_refused(tmp_path, tokenizer):
  hf.save(tmp_path / "model", create.tiny_qwen3(tokenizer.vocab_size), tokenizer)
  model, _ = source.load(str(tmp_path / "model"), flag="--x", compute_dtype="bfloat16")
  assert model.compute_dtype == "bfloat16"
  found = source.read(str(tmp_path / "model"), flag="--x")
  assert found.tensors.keys() == hf.read(tmp_path / "model").tensors.keys()
  for take in (source.load, source.read):
    with pytest.raises(UserError, match="--x=.* is none of: .*tiny"):
      take(str(tmp_path), flag="--x", also=("tiny",))
  with pytest.raises(UserError, match="--x=nowhere does not exist"):
    source.load("nowhere", flag="--x")
  with pytest.raises(UserError, match="hf download Owner/a-model-1.5B --local"):
    source.load("Owner/a-model-1.5B", flag="--x")
  (tmp_path / "adapter_config.json").write_text("{}")
  with pytest.raises(UserError, match="--x=.* is a LoRA adapter: merge it"):
    source.load(str(tmp_path), flag="--x")
  with pytest.raises(UserError, match="pip install"):
    source.load("package:no-such-model", flag="--x")
