"""P63: 1,000 calls at once, at no more work a call than 100 at once take."""

import asyncio
import time

import aiohttp

from clawgym_jax.pool import Pool
from sandbox import gateway
from tests.gateway import engine as fakes


def _flood(tmp_path, url, count):
  """CPU seconds a call, and seconds until the first answer."""
  pool = Pool.open(f"sqlite:///{tmp_path}/{count}.db")
  pool.add_group("many", "train", "t", count)
  attempts = [pool.claim("train", "w", 600) for _ in range(count)]
  answered = []

  async def one(http, base, key):
    async with http.post(
        f"{base}/chat/completions",
        json={"messages": [{"role": "user", "content": "hello"}]},
        headers={"Authorization": f"Bearer {key}"},
    ) as response:
      answered.append(time.monotonic())
      assert response.status == 200

  async def body():
    async with gateway.start(pool, url) as gate:
      doors = [gate.register(attempt.trajectory_id) for attempt in attempts]
      connector = aiohttp.TCPConnector(limit=0)
      async with aiohttp.ClientSession(connector=connector) as http:
        started, spent = time.monotonic(), time.process_time()
        await asyncio.gather(*(one(http, *door) for door in doors))
        return (time.process_time() - spent) / count, answered[0] - started

  cpu, first = asyncio.run(body())
  assert len(answered) == count
  assert all(len(pool.steps(attempt.trajectory_id)) == 1 for attempt in attempts)
  pool.close()
  return cpu, first


def test_p63(tmp_path):
  engine = fakes.Engine(fakes.tokenizer())
  engine.delay = 0.2
  with fakes.serving(engine.app) as url:
    few, _ = _flood(tmp_path, url, 100)
    many, first = _flood(tmp_path, url, 1000)
  print(f"{few * 1e3:.2f}, {many * 1e3:.2f} ms CPU a call; first after {first:.2f} s")
  assert many < 2 * few + 1e-3
