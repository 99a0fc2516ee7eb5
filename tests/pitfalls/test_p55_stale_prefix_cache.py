"""P55: KV of old weights must not serve new ones, nor be lost without a reason."""

from flax import nnx

from clawgym_jax.models.create import tiny_llama
from clawgym_jax.serve import Engine, Sampling
from tests.serve.conftest import FEW_SHAPES, VOCAB, prompt


def test_a_prefix_is_missed_after_an_update_and_hit_without():
  model, ids = tiny_llama(VOCAB), prompt(0, 30)
  with Engine(model, None, **FEW_SHAPES) as engine:

    def reused():
      sampling = Sampling(max_tokens=2, seed=0)
      return engine.generate(ids, sampling).result(60).reused_tokens

    assert reused() == 0
    assert reused() == 29
    engine.update_weights(nnx.state(model, nnx.Param), 1)
    assert reused() == 0
    assert reused() == 29
