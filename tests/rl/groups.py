"""Groups of trajectories with given ids, or sampled by a real engine."""

import numpy as np

from clawgym_jax.contracts.trajectory import Step, Trajectory, scored
from clawgym_jax.pool import Group


def step(name, prompt, response, *, parent=None, logprobs=None, version=0, **sampling):
  logprobs = [-1.0] * len(response) if logprobs is None else list(logprobs)
  return Step(
      step_id=name,
      parent_id=parent,
      messages=[],
      response={"role": "assistant", "content": ""},
      finish_reason="stop",
      prompt_ids=list(prompt),
      response_ids=list(response),
      logprobs=logprobs,
      untempered_logprobs=logprobs,
      policy_versions=[version] * len(response),
      sampling={"temperature": 1.0, "top_p": 1.0} | sampling,
  )


def trajectory(name, steps, reward):
  return Trajectory(name, "task", "group", 0, 0, "claw", steps, scored(reward))


def group(*trajectories, unscored=0, name="group"):
  return Group(name, "task", list(trajectories), unscored)


def sampled(engine, sampling, *, vocab, groups=2, samples=4, seed=0):
  """Two-turn trajectories from the engine, rewards 0 and 1 in turn."""
  rng = np.random.default_rng(seed)
  pins = {"temperature": sampling.temperature, "top_p": sampling.top_p}
  made = []
  for number in range(groups):
    prompt = rng.integers(0, vocab, 9).tolist()
    first = [engine.generate(prompt, sampling) for _ in range(samples)]
    members = []
    for index, future in enumerate(first):
      one = future.result(60)
      answer = rng.integers(0, vocab, 3).tolist()
      two = engine.generate(prompt + one.ids + answer, sampling).result(60)
      steps = [
          step("a", prompt, one.ids, logprobs=one.logprobs, **pins),
          step("b", answer, two.ids, parent="a", logprobs=two.logprobs, **pins),
      ]
      members.append(trajectory(f"t{number}.{index}", steps, float(index % 2)))
    made.append(group(*members, name=f"g{number}"))
  return made
