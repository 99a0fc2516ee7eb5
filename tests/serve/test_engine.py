"""What the engine samples is what the model says, however it was batched."""

import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from clawgym_jax.models.create import tiny_llama
from clawgym_jax.serve import Busy, Engine, EngineError, Refused, Sampling
from tests.serve.conftest import (
    FEW_SHAPES, SHAPES, VOCAB, prompt, sharpened, training_logprobs
)

WAIT = 60


def check(model, prompt_ids, completion, temperature=1.0):
  np.testing.assert_allclose(
      completion.untempered_logprobs,
      training_logprobs(model, prompt_ids, completion.ids),
      atol=1e-5,
  )
  np.testing.assert_allclose(
      completion.logprobs,
      training_logprobs(model, prompt_ids, completion.ids, temperature),
      atol=1e-5,
  )


def test_logprobs_are_those_of_the_training_forward(model, engine):
  """Chunked prefill, samples of one prompt (copies), then a reused slot."""
  ids = prompt(0, 75)
  futures = [
      engine.generate(ids, Sampling(max_tokens=20, seed=s, temperature=0.7))
      for s in range(6)
  ]
  done = [future.result(WAIT) for future in futures]
  assert [c.reused_tokens for c in done] == [0] + [74] * 5
  assert len({tuple(c.ids) for c in done}) == 6
  for completion in done:
    assert completion.finish_reason == "length" and len(completion.ids) == 20
    check(model, ids, completion, 0.7)
  longer = ids + done[2].ids + prompt(1, 9)
  again = engine.generate(longer, Sampling(max_tokens=5, seed=1)).result(WAIT)
  assert again.reused_tokens == 94
  check(model, longer, again)
  branch = ids[:40] + prompt(2, 30)
  other = engine.generate(branch, Sampling(max_tokens=5, seed=1)).result(WAIT)
  assert other.reused_tokens == 40
  check(model, branch, other)


def test_greedy_equals_a_naive_loop(model, engine):
  ids = prompt(3, 21)
  wanted = list(ids)
  pad = jnp.zeros((1, 40), jnp.int32)
  forward = nnx.jit(lambda m, t: m.logits(m(t, jnp.arange(40)[None])[0]))
  for _ in range(12):
    tokens = pad.at[0, : len(wanted)].set(jnp.asarray(wanted))
    wanted.append(int(forward(model, tokens)[0, len(wanted) - 1].argmax()))
  done = engine.generate(ids, Sampling(max_tokens=12, temperature=0)).result(WAIT)
  assert done.ids == wanted[21:]
  assert not any(done.logprobs)


def test_the_same_seed_gives_the_same_tokens_in_any_company(engine):
  ids = prompt(4, 30)
  sampling = Sampling(max_tokens=25, seed=77, top_p=0.95)
  alone = engine.generate(ids, sampling).result(WAIT)
  crowd = [
      engine.generate(prompt(10 + i, 5 + 7 * i), Sampling(max_tokens=9 + i))
      for i in range(9)
  ]
  together = engine.generate(ids, sampling)
  crowd += [engine.generate(prompt(5, 44), Sampling(max_tokens=9))]
  assert together.result(WAIT).ids == alone.ids
  for future in crowd:
    future.result(WAIT)


def test_stop_ids_end_a_completion_and_are_kept(engine):
  ids = prompt(6, 17)
  free = engine.generate(ids, Sampling(max_tokens=20, seed=5)).result(WAIT)
  stop = free.ids[9]
  done = engine.generate(
      ids, Sampling(max_tokens=20, seed=5, stop_ids=(VOCAB - 1, stop))
  ).result(WAIT)
  assert done.finish_reason == "stop"
  assert done.ids == free.ids[: free.ids.index(stop) + 1]


def test_a_completion_ends_where_the_row_does(model, engine):
  ids = prompt(7, 120)
  done = engine.generate(ids, Sampling(max_tokens=500, seed=1)).result(WAIT)
  assert len(done.ids) == 8 and done.finish_reason == "length"
  check(model, ids, done)
  last = engine.generate(prompt(8, 127), Sampling()).result(WAIT)
  assert len(last.ids) == 1


@pytest.mark.parametrize(
    "ids, sampling, cause",
    [
        (prompt(0, 128), {}, "128 tokens.*max_len 128"),
        ([], {}, "empty"),
        ([1, VOCAB], {}, "outside"),
        ([1, -1], {}, "outside"),
        ([1, 2.5], {}, "token ids"),
        ([1], {"temperature": -1}, "temperature"),
        ([1], {"temperature": float("nan")}, "temperature"),
        ([1], {"top_p": 0}, "top_p"),
        ([1], {"max_tokens": 0}, "max_tokens"),
        ([1], {"seed": -1}, "seed"),
        ([1], {"stop_ids": tuple(range(9))}, "stop_ids"),
    ],
)
def test_what_can_never_succeed_is_refused(engine, ids, sampling, cause):
  with pytest.raises(Refused, match=cause):
    engine.generate(ids, Sampling(**sampling))


def test_a_cancelled_request_gives_its_slot_back(engine):
  futures = [engine.generate(prompt(i, 9), Sampling()) for i in range(12)]
  for future in futures:
    assert future.cancel()
  engine.generate(prompt(20, 9), Sampling(max_tokens=3)).result(WAIT)
  deadline = time.monotonic() + WAIT
  while engine.report()["running"] and time.monotonic() < deadline:
    time.sleep(0.01)
  assert engine.report()["running"] == engine.report()["waiting"] == 0


def test_new_weights_in_the_middle_of_a_request():
  """No request is lost, and every log-prob is that of its token's weights."""
  old, new = sharpened(tiny_llama(VOCAB)), sharpened(tiny_llama(VOCAB, seed=1))
  params = jax.tree.map(jnp.copy, nnx.state(new, nnx.Param))
  with Engine(old, None, policy_version=3, **SHAPES) as engine:
    decode = engine._programs.decode  # slowed, so that the update meets it
    engine._programs.decode = lambda *a, **k: (time.sleep(0.05), decode(*a, **k))[1]
    ids = prompt(0, 20)
    futures = [
        engine.generate(ids, Sampling(max_tokens=100, seed=s)) for s in range(6)
    ]
    while engine.stats.sampled_tokens < 40:
      time.sleep(0.001)
    engine.update_weights(params, 4)
    for leaf in jax.tree.leaves(params):
      leaf.delete()  # as a trainer does that donates its parameters
    assert engine.policy_version == 4
    mixed = 0
    for future in futures:
      done = future.result(WAIT)
      versions = np.array(done.policy_versions)
      assert len(done.ids) == 100 and (np.diff(versions) >= 0).all()
      mixed += len(set(done.policy_versions)) == 2
      wanted = np.where(
          versions == 3,
          training_logprobs(old, ids, done.ids),
          training_logprobs(new, ids, done.ids),
      )
      np.testing.assert_allclose(done.logprobs, wanted, atol=1e-5)
    assert mixed
    assert engine.recompiles == 0
    with pytest.raises(ValueError, match="not those of the model"):
      engine.update_weights(nnx.state(tiny_llama(VOCAB + 1), nnx.Param), 5)


def test_bfloat16_stays_near_float32():
  model = tiny_llama(VOCAB)
  with Engine(model, None, compute_dtype=jnp.bfloat16, **FEW_SHAPES) as engine:
    ids = prompt(0, 40)
    done = engine.generate(ids, Sampling(max_tokens=20, seed=0)).result(WAIT)
    np.testing.assert_allclose(
        done.logprobs, training_logprobs(model, ids, done.ids), atol=0.05
    )
    assert engine.recompiles == 0


def test_an_error_in_the_thread_reaches_everyone():
  failures = []
  engine = Engine(tiny_llama(VOCAB), None, **FEW_SHAPES)
  engine.on_failure = failures.append
  futures = [engine.generate(prompt(i, 9), Sampling()) for i in range(8)]
  engine._programs.decode = lambda *_, **__: 1 / 0
  for future in futures:
    with pytest.raises(EngineError, match="ZeroDivisionError"):
      future.result(WAIT)
  with pytest.raises(EngineError, match="ZeroDivisionError"):
    engine.generate([1])
  with pytest.raises(EngineError, match="ZeroDivisionError"):
    engine.update_weights(nnx.state(tiny_llama(VOCAB), nnx.Param), 1)
  assert len(failures) == 1
  engine.close()


def test_closing_ends_what_waits():
  engine = Engine(tiny_llama(VOCAB), None, max_queue=6, **FEW_SHAPES)
  gate = threading.Event()
  decode = engine._programs.decode
  engine._programs.decode = lambda *a, **k: (gate.wait(), decode(*a, **k))[1]
  futures = [engine.generate([1], Sampling())]
  while engine.report()["waiting"]:
    time.sleep(0.001)
  futures += [engine.generate([i], Sampling()) for i in range(6)]
  with pytest.raises(Busy):
    engine.generate([1])
  threading.Timer(0.1, gate.set).start()
  engine.close()
  for future in futures:
    with pytest.raises(EngineError, match="closed"):
      future.result(WAIT)
