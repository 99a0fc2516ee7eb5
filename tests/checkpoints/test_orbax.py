"""Training states: exact resume, keep-N, and the last whole one after damage."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from clawgym_jax.checkpoints import hf, state
from clawgym_jax.checkpoints.orbax import Checkpoints, TrainState
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import create
from tests.checkpoints.test_hf import TOKENS


def state_of(step: int, vocab_size: int = 258) -> TrainState:
  model = create.tiny_qwen3(vocab_size, seed=step)
  params = nnx.state(model, nnx.Param)
  optimizer = optax.adamw(1e-3)
  state = optimizer.init(params)
  grads = jax.tree.map(jnp.ones_like, params)
  _, state = optimizer.update(grads, state, params)
  return TrainState(
      step=step,
      params=params,
      optimizer=state,
      rng=jax.random.key(step),
      data={"at": step},
      config=model.config.to_hf(),
  )


def save(directory, state: TrainState, **kw) -> None:
  saver = Checkpoints(directory, **kw)
  saver.save(state)
  saver.close()


def same(a: TrainState, b: TrainState) -> None:
  assert (a.step, a.data, a.config) == (b.step, b.data, b.config)
  assert jax.tree.structure(a.optimizer) == jax.tree.structure(b.optimizer)
  jax.tree.map(
      np.testing.assert_array_equal, (a.params, a.optimizer), (b.params, b.optimizer)
  )
  assert jnp.array_equal(jax.random.key_data(a.rng), jax.random.key_data(b.rng))


def damage(directory, step) -> str:
  """Flips one byte of the largest file of a step."""
  files = [path for path in (directory / str(step)).rglob("*") if path.is_file()]
  largest = max(files, key=lambda path: path.stat().st_size)
  raw = bytearray(largest.read_bytes())
  raw[len(raw) // 2] ^= 1
  largest.write_bytes(raw)
  return largest.name


def test_save_restore_and_keep(tmp_path):
  saver = Checkpoints(tmp_path, keep=2)
  assert saver.restore(state_of(0)) is None
  states = [state_of(step) for step in (1, 2, 3)]
  for state in states:
    saver.save(state)
  saver.wait()
  assert saver.steps() == [2, 3]
  restored = Checkpoints(tmp_path).restore(state_of(0))
  same(restored, states[-1])
  assert restored.code_version


def test_damage_falls_back_then_refuses(tmp_path, capsys):
  saver = Checkpoints(tmp_path, keep=3)
  states = {step: state_of(step) for step in (1, 2, 3)}
  for state in states.values():
    saver.save(state)
  saver.wait()
  name = damage(tmp_path, 3)
  (tmp_path / "2" / "manifest.json").unlink()  # killed before it was whole
  same(saver.restore(state_of(0)), states[1])
  warning = capsys.readouterr().err
  assert f"{name} is damaged" in warning and "step 3" in warning
  assert "manifest.json is missing" in warning and "step 2" in warning
  saver.save(states[2])  # the run goes on and saves the same steps again
  saver.save(states[3])
  saver.wait()
  same(Checkpoints(tmp_path).restore(state_of(0)), states[3])
  assert not list(tmp_path.glob("damaged-*"))
  for step in saver.steps():
    damage(tmp_path, step)
  for _ in range(2):  # the same command again is no way around it
    with pytest.raises(UserError, match="is whole"):
      Checkpoints(tmp_path).restore(state_of(0))


def test_a_kill_before_the_seal_loses_no_older_state(tmp_path, monkeypatch, capsys):
  def killed(self, step):
    raise KeyboardInterrupt

  def cut_short(state):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
      patch.setattr(Checkpoints, "_seal", killed)
      save(tmp_path, state, keep=1)

  first, second = state_of(1), state_of(2)
  cut_short(first)
  for _ in range(2):  # nothing was saved yet
    assert Checkpoints(tmp_path, keep=1).restore(state_of(0)) is None
  assert "none was saved before it" in capsys.readouterr().err
  save(tmp_path, first, keep=1)
  cut_short(second)
  params, _ = Checkpoints(tmp_path).open_params()
  assert params and (tmp_path / "2").exists()  # a reader moves nothing
  saver = Checkpoints(tmp_path, keep=1)
  same(saver.restore(state_of(0)), first)
  saver.save(second)
  saver.wait()
  assert sorted(path.name for path in tmp_path.iterdir()) == ["2"]


def test_what_is_kept(tmp_path):
  """The newest two, every third, and the best by score: 4 has the lowest."""
  saver = Checkpoints(tmp_path, keep=2, keep_every=3, keep_best=1)
  scores = {1: 9.0, 2: None, 3: 5.0, 4: 1.0, 5: 2.0, 6: None, 7: None, 8: 3.0}
  for step, score in scores.items():
    saver.save(TrainState(step=step, params=nnx.State({}), score=score,
                          optimizer={"a": jnp.zeros(1)}))  # fmt: skip
  saver.close()
  assert saver.steps() == [3, 4, 6, 7, 8]


def test_a_save_holds_what_was_given_while_its_arrays_are_used_again(tmp_path):
  """As in a training step: donated at once, and filled with something else."""
  other = lambda tree: jax.tree.map(lambda a: a * 2 + 1, tree)
  change = jax.jit(other, donate_argnums=0)
  arrays = {str(i): jnp.full((1 << 20,), i, jnp.float32) for i in range(8)}
  saver = Checkpoints(tmp_path)
  for step in (1, 2):
    saver.save(TrainState(step=step, params=nnx.State({}), optimizer=arrays))
    for _ in range(5):
      arrays = change(arrays)
  saver.wait()
  shutil.rmtree(tmp_path / "2")
  like = TrainState(step=0, params=nnx.State({}), optimizer=arrays)
  first = saver.restore(like).optimizer
  assert all((np.asarray(first[str(i)]) == i).all() for i in range(8))


def test_what_goes_wrong_behind_is_raised_by_the_next_call(tmp_path, monkeypatch):
  def full(self, step):
    raise OSError(errno.ENOSPC, "No space left on device")

  monkeypatch.setattr(Checkpoints, "_seal", full)
  saver = Checkpoints(tmp_path)
  saver.save(state_of(1))
  with pytest.raises(UserError, match="no space left for step 1"):
    saver.save(state_of(2))


def test_a_layer_is_a_chunk(tmp_path):
  """So that a layer is read alone, an expert too; what is not stacked is whole."""
  model = create.tiny_qwen3_moe(258)
  save(tmp_path, TrainState(step=1, params=nnx.state(model, nnx.Param)))
  params, _ = Checkpoints(tmp_path).open_params()
  chunks = {name: array.chunk_layout.read_chunk.shape for name, array in params.items()}
  assert chunks["model.embed_tokens.weight"] == (258, 64)
  assert chunks["model.layers.self_attn.q_proj.weight"] == (1, 128, 64)
  assert chunks["model.layers.mlp.experts.down_proj.weight"] == (1, 1, 64, 32)


def test_another_model_is_refused_by_name(tmp_path):
  save(tmp_path, state_of(1))
  with pytest.raises(UserError, match="embed_tokens"):
    Checkpoints(tmp_path).restore(state_of(1, vocab_size=100))
  other = dataclasses.replace(state_of(1), optimizer=())
  with pytest.raises(UserError, match="optimizer"):
    Checkpoints(tmp_path).restore(other)


def test_convert_command(tmp_path, tokenizer, logits):
  model = create.tiny_qwen3(tokenizer.vocab_size, seed=4)
  hf.save(tmp_path / "start", model, tokenizer)
  save(
      tmp_path / "run",
      TrainState(
          step=5, params=nnx.state(model, nnx.Param), config=model.config.to_hf()
      ),
  )
  command = [sys.executable, "-m", "clawgym_jax.convert", "--json"]
  done = subprocess.run(
      [
          *command,
          f"--from={tmp_path / 'run'}",
          f"--tokenizer={tmp_path / 'start'}",
          f"--to={tmp_path / 'out'}",
      ],
      capture_output=True,
      text=True,
      timeout=120,
      env=os.environ | {"JAX_PLATFORMS": "cpu"},
  )
  assert done.returncode == 0, done.stderr
  assert json.loads(done.stdout.splitlines()[-1])["layers"] == 2
  again, _ = hf.load(tmp_path / "out")
  np.testing.assert_array_equal(logits(model, TOKENS), logits(again, TOKENS))
  (tmp_path / "start" / "config.json").write_text('{"vocab_size": 7}')
  with pytest.raises(UserError, match="has 7: give the model"):
    state.read(Checkpoints(tmp_path / "run"), tmp_path / "start")
  (tmp_path / "start" / "tokenizer.json").unlink()  # the chat template is left
  with pytest.raises(UserError, match="no tokenizer's files"):
    state.read(Checkpoints(tmp_path / "run"), tmp_path / "start")
  done = subprocess.run(
      [*command, f"--from={tmp_path}/none", f"--to={tmp_path}/x"],
      capture_output=True,
      text=True,
      timeout=120,
      env=os.environ | {"JAX_PLATFORMS": "cpu"},
  )
  assert done.returncode == 1 and "none of" in done.stderr
