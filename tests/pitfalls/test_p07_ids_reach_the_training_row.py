"""P07: sampled ids reach the training row as they are; no text of theirs is encoded."""

import random

import numpy as np

from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.contracts.row import predecessors
from clawgym_jax.contracts.trajectory import Trajectory, scored
from clawgym_jax.pool import Group
from clawgym_jax.rl.rows import experience
from tests.gateway.conftest import engine, pool, run, tokenizer  # noqa: F401
from tests.rl import groups

U = {"role": "user", "content": "hello"}


def test_p07_row(run, pool, engine, monkeypatch):
  rng, tok = random.Random(0), engine.tokenizer
  sampled = [
      [rng.randrange(tok.vocab_size - 1) for _ in range(rng.randrange(30, 50))]
      + [tok.eos_id] * rng.randrange(2)
      for _ in range(8)
  ]
  texts = [tok.decode([i for i in ids if i != tok.eos_id]) for ids in sampled]
  assert any("\ufffd" in text for text in texts)  # no valid UTF-8
  assert all(tok.encode(text) != ids for text, ids in zip(texts, sampled))

  encoded = []
  encode, encode_rendered = Tokenizer.encode, Tokenizer.encode_rendered

  def record(self, text):
    encoded.append(text)
    return encode(self, text)

  def record_rendered(self, text, mark, *, start):
    encoded.append(text.replace(mark, ""))
    return encode_rendered(self, text, mark, start=start)

  monkeypatch.setattr(Tokenizer, "encode", record)
  monkeypatch.setattr(Tokenizer, "encode_rendered", record_rendered)

  async def scenario(harness):
    messages = [U]
    for ids in sampled:
      engine.script = [ids]
      messages += [await harness.say(messages), U]
    return harness.trajectory_id

  name = run(scenario)
  steps = pool.steps(name)
  pool.complete(Trajectory(name, "t", "g", 0, 0, "claw", steps, scored(1.0)))
  (group,) = pool.lease_groups("train", 1, "trainer", 60)
  other = groups.trajectory("other", [groups.step("a", [1], [2])], 0.0)
  made = experience(
      [Group("g", "t", [*group.trajectories, other], 0)],
      row_length=4096, advantage="dr_grpo", reward="code", temperature=1.0,
  )  # fmt: skip

  (row,) = made.rows
  before = predecessors(row.end)
  path = [int(np.flatnonzero(row.advantage > 0)[-1])]
  while before[path[-1]] >= 0:
    path.append(int(before[path[-1]]))
  path = path[::-1]
  assert row.tokens[path].tolist() == engine.prompts[-1] + sampled[-1]
  trained = [t for t in path if row.loss_weight[t]]
  assert row.tokens[trained].tolist() == [i for ids in sampled for i in ids]
  logprobs = np.concatenate([step.logprobs for step in steps])
  np.testing.assert_allclose(row.rollout_logprobs[trained], logprobs, rtol=1e-6)

  assert any("hello" in text for text in encoded)
  for text in texts:
    half = len(text) // 2
    for part in (text[:half].strip(), text[half:].strip()):
      assert len(part) > 8 and not any(part in given for given in encoded)
