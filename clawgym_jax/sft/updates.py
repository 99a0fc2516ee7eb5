"""From a summed loss to optimizer steps, with as many micro-batches as need be.

The loss of an update is the sum over its micro-batches divided by one
`denominator`, so that splitting a batch changes nothing but memory. Where a
model has adapters, they alone have gradients and optimizer state; the other
weights pass through. An update whose gradient is not finite, or that the caller
says is not usable, leaves weights and optimizer as they were and says so. Weights
and optimizer state are donated to `apply`: they are gone afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from clawgym_jax.configs import base
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models.causal_lm import CausalLM
from clawgym_jax.sft.optimizer import transformation
from clawgym_jax.sft.scores import Batch

Loss = Callable[[CausalLM, Batch], tuple[jax.Array, dict[str, jax.Array]]]
_LOST_UPDATES = 3  # in a row: the run can't recover
Sums = tuple[nnx.State, dict[str, jax.Array]]  # gradients, and sums to report


class Updates:
  """The compiled parts of one trainer's step.

  Args:
    graphdef, params: of the model, from `nnx.split(model, nnx.Param)`.
    loss: gives a summed loss and sums to report, from a model and a batch.
    config: the optimizer.
    mesh: what `params` are laid out on; None on one device.
  """

  def __init__(
      self,
      graphdef: nnx.GraphDef,
      params: nnx.State,
      loss: Loss,
      config: base.Optimizer,
      mesh: jax.sharding.Mesh | None = None,
  ):
    optimizer = transformation(config)

    def loss_and_sums(trained, rest, batch, denominator):
      total, sums = loss(nnx.merge(graphdef, trained, rest), batch)
      return total / denominator, sums

    def only(params, batch, denominator):
      gradients = jax.grad(loss_and_sums, has_aux=True)
      return gradients(*_split(params), batch, denominator)

    def add(sums, params, batch, denominator):
      return jax.tree.map(jnp.add, sums, only(params, batch, denominator))

    def zeros(params, batch):
      trained, rest = _split(params)
      _, reported = jax.eval_shape(loss_and_sums, trained, rest, batch, 1.0)
      return jax.tree.map(jnp.zeros_like, (trained, reported))

    def initial(params):
      return optimizer.init(_split(params)[0])

    def apply(params, state, grads, rate, usable=True):
      trained, rest = _split(params)
      norm = optax.tree.norm(grads)

      def update(trained, state, grads):
        steps, state = optimizer.update(grads, state, trained)
        return jax.tree.map(lambda p, u: p - rate * u, trained, steps), state

      trained, state = jax.lax.cond(
          usable & jnp.isfinite(norm),
          update,
          lambda p, s, _: (p, s),
          trained,
          state,
          grads,
      )
      return nnx.merge_state(trained, rest), state, norm

    layouts, sums = (None, None, None), None
    if mesh is not None:
      trained, _ = _split(params)
      layouts = _layouts(optimizer, params, trained, mesh)
      sums = jax.tree.map(lambda param: param.sharding, trained), layouts[2]
    self.initial = jax.jit(initial, out_shardings=layouts[1])
    self._zeros = jax.jit(zeros, out_shardings=sums)
    self._only = jax.jit(only, out_shardings=sums)
    self._add = jax.jit(add, donate_argnums=0, out_shardings=sums)
    self.apply = jax.jit(apply, donate_argnums=(0, 1), out_shardings=layouts)

  def summed(
      self, params: nnx.State, parts: Sequence[Batch], denominator: float
  ) -> Sums:
    """Of all micro-batches; one alone takes no memory for what is added up."""
    if len(parts) == 1:
      return self._only(params, parts[0], jnp.float32(denominator or 1.0))
    sums = None
    for part in parts:
      sums = self.accumulate(sums, params, part, denominator)
    return sums

  def accumulate(
      self, sums: Sums | None, params: nnx.State, batch: Batch, denominator: float
  ) -> Sums:
    """Adds one micro-batch to `sums`; None starts anew."""
    denominator = jnp.float32(denominator or 1.0)  # nothing trained: a loss of 0
    if sums is None:  # from zeros, so that there is one program to compile
      sums = self._zeros(params, batch)
    return self._add(sums, params, batch, denominator)


def _split(params: nnx.State) -> tuple[nnx.State, nnx.State]:
  """What is trained, and the rest: the adapters where there are some, else all."""
  adapters, rest = nnx.split_state(params, nnx.LoRAParam, ...)
  return (adapters, rest) if jax.tree.leaves(adapters) else (rest, adapters)


def _layouts(
    optimizer: optax.GradientTransformation,
    params: nnx.State,
    trained: nnx.State,
    mesh: jax.sharding.Mesh,
) -> tuple[Any, Any, Any]:
  """Shardings of weights, optimizer state and norm: moments lie as their weights."""
  everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  weights = {
      jax.tree_util.keystr(path): leaf
      for path, leaf in jax.tree_util.tree_leaves_with_path(trained)
  }

  def place(path, moment):
    """As the weight whose path ends the moment's own; what has none, everywhere."""
    for start in range(len(path)):
      weight = weights.get(jax.tree_util.keystr(path[start:]))
      if weight is not None and weight.shape == moment.shape:
        return weight.sharding
    return everywhere

  state = jax.tree_util.tree_map_with_path(
      place, jax.eval_shape(optimizer.init, trained)
  )
  return jax.tree.map(lambda param: param.sharding, params), state, everywhere


class Watch:
  """Counts steps that taught nothing, and ends a run that can't go on.

  `empty`: steps without a trained token. `skipped`: updates left out because
  the gradient was not finite; three in a row are a `UserError`. Says so when
  a step after the second of this life compiles something.
  """

  def __init__(self) -> None:
    self.empty = 0
    self.skipped = 0
    self._in_a_row = 0
    self._steps = 0

  def see(self, line: dict[str, Any]) -> None:
    """Looks at a step's metrics; `gradient_norm` None means not finite."""
    self._steps += 1
    if self._steps > 2 and line["compiles"]:
      print(
          f"note: step {line['step']} compiled {line['compiles']} programs anew",
          file=sys.stderr,
      )
    if not line["trained_tokens"]:
      self.empty += 1
      print(
          f"warning: step {line['step']} had no token to train",
          file=sys.stderr,
      )
    if line["gradient_norm"] is not None:
      self._in_a_row = 0
      return
    self.skipped += 1
    self._in_a_row += 1
    print(
        f"warning: step {line['step']} was skipped, its gradient is not finite",
        file=sys.stderr,
    )
    if self._in_a_row == _LOST_UPDATES:
      raise UserError(
          f"{_LOST_UPDATES} updates in a row had no finite gradient, the last at step"
          f" {line['step']}: lower optimizer.peak_lr, or use"
          " model.compute_dtype=float32"
      )
