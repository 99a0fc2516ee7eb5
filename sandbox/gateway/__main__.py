"""The recording gateway alone: `python -m sandbox.gateway --upstream=… --pool=…`.

It serves the sessions that rollouts on the same pool register, until it is
stopped.
"""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

from absl import flags

from clawgym_jax import cli, web
from clawgym_jax.contracts.files import write_json
from clawgym_jax.pool import Pool
from sandbox.gateway.server import app
from sandbox.gateway.sessions import PINS
from sandbox.gateway.upstream import connect

_UPSTREAM = flags.DEFINE_string(
    "upstream", None, "URL of an engine or of an OpenAI chat API.", required=True
)
_POOL = flags.DEFINE_string(
    "pool", None, "Where steps go, as sqlite:///FILE.", required=True
)
_PORT = flags.DEFINE_integer("port", 0, "Port to listen on; 0 takes a free one.", 0)
_READY_FILE = flags.DEFINE_string(
    "ready_file", None, 'Gets {"url": ...} once the gateway listens.'
)
_MODEL = flags.DEFINE_string(
    "model", None, "Model to ask a chat API for; default is the first it offers."
)
_DEADLINE = flags.DEFINE_float(
    "deadline", 600.0, "Seconds a model call may take, retries included.", 1.0
)
flags.DEFINE_float("temperature", None, "Wins over what the agent sends.", 0.0)
flags.DEFINE_float("top_p", None, "Wins over what the agent sends.", 0.0, 1.0)
flags.DEFINE_integer("max_tokens", None, "Wins over what the agent sends.", 1)
flags.DEFINE_integer("seed", None, "Makes sampling repeatable.", 0)


def main() -> None:
  pins = {name: flags.FLAGS[name].value for name in PINS}
  pins = {name: value for name, value in pins.items() if value is not None}
  pool = Pool.open(_POOL.value)
  upstream = asyncio.run(
      connect(
          _UPSTREAM.value,
          deadline=_DEADLINE.value,
          model=_MODEL.value,
          api_key=os.environ.get("UPSTREAM_API_KEY"),
      )
  )
  url, stop = web.serve(app(pool, upstream, pins), port=_PORT.value)
  print(f"gateway: {url} records {upstream.model} into {_POOL.value}", flush=True)
  if _READY_FILE.value:
    write_json(Path(_READY_FILE.value), {"url": url})
  try:
    threading.Event().wait()
  finally:
    stop()
    if _READY_FILE.value:
      Path(_READY_FILE.value).unlink(missing_ok=True)


if __name__ == "__main__":
  cli.run(main)
