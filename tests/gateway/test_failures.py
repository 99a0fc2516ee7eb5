"""Failed calls leave nothing behind; retries and busy sessions are told apart."""

import asyncio

import aiohttp
import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.trajectory import scored
from clawgym_jax.pool import AttemptGone, Pool
from sandbox import gateway
from sandbox.gateway.upstream import connect
from tests.gateway import engine as fakes
from tests.gateway.engine import call
from tests.pool.samples import trajectory

U = [{"role": "user", "content": "hello"}]


def test_a_busy_engine_is_asked_again(run, pool, engine):
  async def scenario(harness):
    engine.script = [(503, {"error": "updating"}, {"Retry-After": "0.05"})] * 3
    await harness.say(U)
    return pool.steps(harness.trajectory_id)

  assert len(run(scenario)) == 1 and len(engine.bodies) == 4


def test_a_broken_engine_is_given_up_on(run, pool, engine):
  async def scenario(harness):
    engine.script = [(500, {"error": "boom"}, {})] * 50
    status, body = await harness.post(U)
    assert status == 503 and "boom" in body["error"]["message"]

  run(scenario)
  assert len(engine.bodies) == 4


def test_a_refusal_is_a_400_at_once(run, pool, engine):
  async def scenario(harness):
    engine.script = [(400, {"error": "top_p is 7"}, {})]
    status, body = await harness.post(U)
    assert status == 400 and "top_p is 7" in body["error"]["message"]
    return pool.steps(harness.trajectory_id)

  assert run(scenario) == [] and len(engine.bodies) == 1


def test_a_prompt_beyond_the_context(run, pool, engine):
  engine.max_len = 20

  async def scenario(harness):
    status, body = await harness.post([{"role": "user", "content": "fox " * 50}])
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")

  run(scenario)
  assert engine.bodies == []


def test_max_tokens_is_what_fits(run, pool, engine):
  engine.max_len = 40

  async def scenario(harness):
    await harness.say(U, tools=None, max_tokens=1000)

  run(scenario)
  (body,) = engine.bodies
  assert len(body["prompt_ids"]) + body["max_tokens"] == 40


def test_a_session_ends_with_its_attempt(run, pool, engine):
  async def scenario(harness):
    attempt = fakes.claimed(pool, "other")
    pool.complete(trajectory(attempt, scored(1.0)))
    await harness.say(U)
    engine.delay = 0.2
    late = asyncio.create_task(harness.post(U))
    await asyncio.sleep(0.1)
    pool.release("w")
    assert (await late)[0] == 404
    assert (await harness.post(U))[0] == 404

  run(scenario)


@pytest.mark.parametrize(
    "body",
    [
        {"messages": []},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"messages": U, "n": 2},
        {"messages": U, "stop": ["x"]},
        {"messages": U, "temperature": "hot"},
        {"messages": U, "tools": [{"type": "function"}]},
    ],
)
def test_requests_that_make_no_sense_are_400(run, engine, body):
  async def scenario(harness):
    status, answer = await harness.post(**{"tools": None, **body})
    assert status == 400, answer

  run(scenario)
  assert engine.bodies == []


def test_a_gateway_that_starts_again_knows_its_sessions(pool, engine, tmp_path):
  async def scenario(url):
    attempt = fakes.claimed(pool)
    engine.script = [call("read", path="a"), "bye"]
    headers, messages = {}, list(U)
    async with aiohttp.ClientSession() as http:
      for _ in range(2):
        mine = Pool.open(f"sqlite:///{tmp_path}/pool.db")
        async with gateway.start(mine, url) as gate:
          if not headers:
            base, key = gate.register(attempt.trajectory_id)
            headers = {"Authorization": f"Bearer {key}"}
          path = base.split("/s/")[1]
          async with http.post(
              f"{gate.url}/s/{path}/chat/completions",
              json={"messages": messages},
              headers=headers,
          ) as response:
            assert response.status == 200
            said = (await response.json())["choices"][0]["message"]
        messages += [said, {"role": "tool", "content": "text", "tool_call_id": "x"}]
        mine.close()
    return pool.steps(attempt.trajectory_id)

  with fakes.serving(engine.app) as url:
    steps = asyncio.run(scenario(url))
  assert [step.parent_id for step in steps] == [None, "s0"]


def test_registering_needs_a_running_attempt(pool, engine):
  async def scenario(url):
    async with gateway.start(pool, url) as gate:
      with pytest.raises(AttemptGone):
        gate.register("nobody.0.0")

  with fakes.serving(engine.app) as url:
    asyncio.run(scenario(url))


def test_upstreams_that_are_none(pool, engine):
  with pytest.raises(UserError, match="can't use the upstream"):
    asyncio.run(connect("http://127.0.0.1:9"))
  with fakes.serving(fakes.Starlette()) as url:
    with pytest.raises(UserError, match="neither an engine nor"):
      asyncio.run(connect(url))

  async def scenario(url):
    async with gateway.start(pool, url, {"heat": 1}):
      pass

  with fakes.serving(engine.app) as url:
    with pytest.raises(UserError, match="can't pin heat"):
      asyncio.run(scenario(url))
