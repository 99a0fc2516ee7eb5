"""P58: 64 servers start at once, each on a port of its own."""

import concurrent.futures
import urllib.request

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.web import serve


def _app(name):
  async def answer(_):
    return PlainTextResponse(name)

  return Starlette(routes=[Route("/", answer)])


def test_p58():
  names = [str(n) for n in range(64)]
  with concurrent.futures.ThreadPoolExecutor(64) as pool:
    servers = list(pool.map(lambda name: serve(_app(name)), names))
    try:
      said = [urllib.request.urlopen(url).read().decode() for url, _ in servers]
      with pytest.raises(UserError, match="in use.*another --port"):
        serve(_app("late"), port=int(servers[0][0].rpartition(":")[2]))
    finally:
      list(pool.map(lambda server: server[1](), servers))
  assert said == names
