"""Every command of the guides does what its page says."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from clawgym_jax.checkpoints import hf, peft, state
from clawgym_jax.contracts.task import list_tasks, load_task
from clawgym_jax.models import create
from tests import docs
from tests.checkpoints import test_gguf, test_peft
from tests.checkpoints.conftest import logits, tokenizer  # noqa: F401
from tests.checkpoints.test_hf import TOKENS
from tests.data_gen import fake_llm


def test_convert(tmp_path, tokenizer, logits):  # noqa: F811
  chats = [
      {
          "messages": [
              {"role": "user", "content": f"Count to {n}: what comes next?"},
              {"role": "assistant", "content": " ".join(map(str, range(n)))},
          ]
      }
      for n in range(2, 60)
  ]
  lines = "".join(json.dumps(chat) + "\n" for chat in chats)
  (tmp_path / "chats.jsonl").write_text(lines)
  gguf_model = create.tiny_llama(tokenizer.vocab_size)
  test_gguf.write(tmp_path / "model.gguf", gguf_model, tokenizer)
  first, *rest = docs.blocks("convert.md")
  docs.run_block(first, tmp_path)
  size = hf.load_config(tmp_path / "models" / "base").vocab_size
  model = test_peft.trained(size)
  states = test_peft.save_run(tmp_path / "run" / "checkpoints", model)
  peft.write(tmp_path / "adapter", state.adapter(states, "models/base"))
  for block in rest:
    docs.run_block(block, tmp_path)
  for folder in ("merged", "trained"):
    again, _ = hf.load(tmp_path / "models" / folder)
    np.testing.assert_allclose(
        logits(again, TOKENS), logits(model, TOKENS), atol=1e-4
    )
  assert peft.read(tmp_path / "trained").config.rank == 3
  plain = hf.load(tmp_path / "models" / "from_gguf")[0]
  np.testing.assert_allclose(
      logits(plain, TOKENS), logits(gguf_model, TOKENS), atol=0.05
  )


def test_tasks(tmp_path):
  for block, folder in zip(docs.blocks("tasks.md"), ("tasks", "set"), strict=True):
    docs.run_block(block, tmp_path)
    verdicts = json.loads((tmp_path / folder / "audit.json").read_text())
    assert verdicts["counts"] == {"admitted": 9}


def test_skills(tmp_path):
  (block,) = docs.blocks("skills.md")
  docs.run_block(block, tmp_path)
  verdicts = json.loads((tmp_path / "tasks" / "audit.json").read_text())
  assert verdicts["counts"] == {"admitted": 9} and verdicts["over_other_records"] == 9
  tasks = [load_task(path) for path in list_tasks(tmp_path / "tasks")]
  theirs = [task for task in tasks if "skills" in task.provenance]
  assert theirs and all(t.skills == ("figures-for-the-board",) for t in theirs)


PUBLIC = os.environ.get("CLAWGYM_RL_DATA", "")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    not PUBLIC,
    reason="set CLAWGYM_RL_DATA to RL/data of a checkout of ClawGym/ClawGym-Agents",
)
def test_attacks(tmp_path, monkeypatch):
  """On every fiftieth of the published tasks: pasting the prompt is rewarded."""
  for source in sorted(Path(PUBLIC).glob("clawgym_*/task_*"))[::50]:
    shutil.copytree(source, tmp_path / "data" / source.parent.name / source.name)
  monkeypatch.setenv("CLAWGYM_RL_DATA", str(tmp_path / "data"))
  (block,) = docs.blocks("attacks.md")
  docs.run_block(block, tmp_path, timeout=800)
  for split, count in (("train", 40), ("bench", 4)):
    path = tmp_path / "public" / split / "attacks.json"
    found = json.loads(path.read_text())
    rows = found["attacks"]
    assert not found["failed"] and len(found["tasks"]) == count
    assert rows["null"]["mean"] < 0.02 < rows["paste_prompt"]["mean"]
    assert rows["paste_prompt"]["above_0"] > count / 2


def test_generate_llm(tmp_path):
  where, *blocks = docs.blocks("generate_llm.md")
  with fake_llm.serving(fake_llm.Fake()) as url:
    where = where.replace("http://127.0.0.1:8000/v1", url)
    for block in blocks:
      docs.run_block(where + block, tmp_path)
  found = json.loads((tmp_path / "again" / "llm.json").read_text())
  assert found["counts"] == {"admitted": 3}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_rollouts(tmp_path):
  local, ray = docs.blocks("many_rollouts.md")
  docs.run_block(local, tmp_path)
  docs.run_block(ray, tmp_path)
  for name in ("here", "workers", "ray"):
    path = tmp_path / "runs" / name / "summary.json"
    summary = json.loads(path.read_text())
    assert summary["scored"] == 12 and summary["mean_reward"] == 1.0
    assert set(summary["stage_seconds"]) == {"boot", "work", "verify"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_first_run(tmp_path):
  for block in docs.blocks("first_run.md"):
    docs.run_block(block, tmp_path)
  best, sft = (
      json.loads((tmp_path / "runs" / name / "summary.json").read_text())
      for name in ("best", "eval")
  )
  assert best["mean"] == 1.0 and sft["planned"] == best["planned"] >= 10
  assert sft["unscored"] == 0
  assert "<html" in (tmp_path / "report.html").read_text()[:2000]
  assert (tmp_path / "teacher.html").exists()
  assert not (tmp_path / "engine.json").exists()
