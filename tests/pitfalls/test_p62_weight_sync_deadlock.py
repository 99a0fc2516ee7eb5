"""P60, P62: a stalled device call ends in an error that names it, for everyone."""

import threading
import time

import pytest
from flax import nnx

from clawgym_jax.models.create import tiny_llama
from clawgym_jax.serve import Engine, EngineError, Sampling
from tests.serve.conftest import FEW_SHAPES, VOCAB


def test_a_weight_update_never_waits_for_ever():
  model = tiny_llama(VOCAB)
  engine = Engine(model, None, call_deadline=3.0, **FEW_SHAPES)
  gate = threading.Event()
  engine._programs.decode = lambda *_, **__: gate.wait()
  future = engine.generate([1], Sampling())
  start = time.monotonic()
  params = nnx.state(model, nnx.Param)
  with pytest.raises(TimeoutError):
    engine.update_weights(params, 1, timeout=0.5)
  with pytest.raises(EngineError, match="decode"):
    future.result(60)
  with pytest.raises(EngineError, match="more than 3 s"):
    engine.update_weights(params, 2, timeout=60)
  assert time.monotonic() - start < 30
  gate.set()
  engine.close()
