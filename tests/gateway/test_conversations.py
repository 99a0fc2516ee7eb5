"""Several conversations in one session: roots of their own, all of them learnt."""

from clawgym_jax.contracts.trajectory import Step, Trajectory, scored
from clawgym_jax.rl.rows import sequences_of
from sandbox.curate import curate
from tests.gateway.engine import call
from tests.gateway.test_recording import S, U, _check_exact, _result

THIRD = {"role": "user", "content": "do it by the note"}


def _trajectory(steps, number=0, **fields):
  return Trajectory(
      id=f"t{number}", task_id="task", group_id="g", sample_index=number, attempt=0,
      harness="claw", steps=steps, outcome=scored(1.0), final_message="x", **fields,
  )  # fmt: skip


def _spoken(run, pool, engine):
  """The steps of two conversations: of two user turns, and of one that is fresh."""

  async def scenario(harness):
    engine.script = [
        call("read", path="a"), "noted", "fine", call("exec", command="b"), "bye"
    ]  # fmt: skip
    history = [S, U]
    said = await harness.say(history)
    history += [said, _result(said, "text")]
    history += [await harness.say(history), {"role": "user", "content": "and c"}]
    await harness.say(history)
    fresh = [S, THIRD]
    said = await harness.say(fresh)
    await harness.say([*fresh, said, _result(said, "more")])
    return pool.steps(harness.trajectory_id)

  return run(scenario, pins={"temperature": 1.0})


def test_a_fresh_turn_is_a_root_with_its_cause(run, pool, engine):
  steps = _spoken(run, pool, engine)
  assert [s.parent_id for s in steps] == [None, "s0", "s1", None, "s3"]
  assert [s.fork_cause for s in steps] == [None, None, None, "new_conversation", None]
  assert steps[3].messages == [S, THIRD] and steps[3].tools
  _check_exact(engine, steps)
  trajectory = _trajectory(steps)
  assert [leaf.step_id for leaf in trajectory.conversations()] == ["s2", "s4"]


def test_both_conversations_are_trained_on(run, pool, engine):
  trajectory = _trajectory(_spoken(run, pool, engine))
  sequences = sequences_of(trajectory, advantage=1.0, temperature=1.0)
  parts = (trajectory.steps[:3], trajectory.steps[3:])
  sampled = [sum(len(step.response_ids) for step in part) for part in parts]
  assert [s.trained_tokens for s in sequences] == sampled
  kept, dropped = curate([trajectory], min_reward=0.5, max_per_task=1)
  assert [line["messages"][-1]["content"] for line in kept] == ["fine", "bye"]
  assert [line["messages"][1] for line in kept] == [U, THIRD]
  assert all(line["tools"] for line in kept) and dropped == {}


def _step(number, parent, text, cause=None, asked="hi"):
  """A step of text, whose response says `text`."""
  return Step(
      step_id=f"s{number}", parent_id=parent, fork_cause=cause, tools=[],
      messages=[{"role": "user", "content": asked}], finish_reason="stop",
      response={"role": "assistant", "content": text},
  )  # fmt: skip


def test_what_was_rewritten_gives_its_last_branch_and_one_said_again_none():
  steps = [
      _step(0, None, "a"),
      _step(1, None, "b", "compaction"),
      _step(2, None, "c", "new_conversation", "else"),
      _step(3, None, "d", "resampled", "else"),
  ]
  again = [_step(0, None, "b"), _step(1, None, "e", "new_conversation", "other")]
  kept, dropped = curate(
      [_trajectory(steps), _trajectory(again, 1), _trajectory(steps, 2)],
      min_reward=0.5,
      max_per_task=4,
  )
  assert [line["messages"][-1]["content"] for line in kept] == ["b", "d", "e"]
  assert dropped == {"earlier_branch": 2, "conversation_again": 1, "duplicate": 1}
