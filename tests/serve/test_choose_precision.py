"""The programs of one run compute alike because one of them measured."""

import json
import subprocess
import sys

from clawgym_jax.chat import vocabulary
from clawgym_jax.checkpoints import hf
from clawgym_jax.models.create import tiny_qwen3


def test_a_model_folder_is_timed_and_the_answer_written(tmp_path):
  tokenizer = vocabulary.train(["write the sum of a.csv to out/b.txt"] * 40, 300)
  hf.save(tmp_path / "model", tiny_qwen3(tokenizer.vocab_size), tokenizer)
  done = subprocess.run(
      [
          sys.executable, "-m", "clawgym_jax.serve.choose_precision",
          f"--checkpoint={tmp_path / 'model'}", f"--out={tmp_path / 'p.json'}",
      ],
      capture_output=True, text=True, timeout=120,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  answer = json.loads((tmp_path / "p.json").read_text())
  assert answer["compute_dtype"] in ("float32", "bfloat16")
  assert all(name in answer["reason"] for name in ("float32", "bfloat16"))
