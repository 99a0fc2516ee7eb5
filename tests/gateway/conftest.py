"""A pool, a fake engine and a gateway between them."""

import asyncio
import contextlib

import aiohttp
import pytest

from clawgym_jax.pool import Pool
from sandbox import gateway
from tests.gateway import engine as fakes


@pytest.fixture(scope="session")
def tokenizer():
  return fakes.tokenizer()


@pytest.fixture
def pool(tmp_path):
  pool = Pool.open(f"sqlite:///{tmp_path}/pool.db")
  yield pool
  pool.close()


@pytest.fixture
def engine(tokenizer):
  return fakes.Engine(tokenizer)


class Harness:
  """One session's client."""

  def __init__(self, http, base_url, key, trajectory_id):
    self._http = http
    self.base_url = base_url
    self.key = key
    self.trajectory_id = trajectory_id

  async def post(self, messages, *, tools=fakes.TOOLS, headers=(), **fields):
    """(status, JSON body) of a chat completion."""
    body = {"model": "m", "messages": messages, **fields}
    if tools:
      body["tools"] = tools
    async with self._http.post(
        f"{self.base_url}/chat/completions",
        json=body,
        headers={"Authorization": f"Bearer {self.key}", **dict(headers)},
    ) as response:
      if fields.get("stream"):
        return response.status, await response.text()
      return response.status, await response.json()

  async def say(self, messages, **fields):
    """The assistant message of a call that must succeed."""
    status, body = await self.post(messages, **fields)
    assert status == 200, body
    return body["choices"][0]["message"]


@pytest.fixture
def run(pool, engine):
  """run(scenario, pins=, deadline=): `await scenario(harness)` against a gateway."""

  def run(scenario, *, pins=None, deadline=20.0, upstream=None):
    @contextlib.asynccontextmanager
    async def harness(url):
      attempt = fakes.claimed(pool)
      async with gateway.start(pool, url, pins, deadline=deadline) as gate:
        base_url, key = gate.register(attempt.trajectory_id)
        async with aiohttp.ClientSession() as http:
          yield Harness(http, base_url, key, attempt.trajectory_id)

    async def body(url):
      async with harness(url) as client:
        return await asyncio.wait_for(scenario(client), 60)

    with fakes.serving(upstream or engine.app) as url:
      return asyncio.run(body(url))

  return run
