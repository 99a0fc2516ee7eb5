"""P66: a session's token and the upstream's key are in nothing that is stored."""

import asyncio

import aiohttp

from clawgym_jax.pool import Pool
from sandbox import gateway
from tests.gateway import engine as fakes


def test_p66(tmp_path, capfd):
  canary = "sk-canary-7f3a"
  pool = Pool.open(f"sqlite:///{tmp_path}/pool.db")
  attempt = fakes.claimed(pool)

  async def scenario(url):
    async with gateway.start(pool, url, api_key=canary) as gate:
      base, key = gate.register(attempt.trajectory_id)
      async with aiohttp.ClientSession() as http:
        for token in (key, "wrong"):
          async with http.post(
              f"{base}/chat/completions",
              json={"messages": [{"role": "user", "content": "hello"}]},
              headers={"Authorization": f"Bearer {token}"},
          ) as response:
            text = await response.text()
            assert key not in text and canary not in text
    return key

  with fakes.serving(fakes.Engine(fakes.tokenizer()).app) as url:
    key = asyncio.run(scenario(url))
  assert len(pool.steps(attempt.trajectory_id)) == 1
  stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
  said = "".join(capfd.readouterr())
  for secret in (key, canary):
    assert secret.encode() not in stored and secret not in said
