"""Serves a checkpoint: token ids in, token ids and log-probs out.

  python -m clawgym_jax.serve --checkpoint=DIR [--port=0 --ready_file=F]

The port is taken before the checkpoint is read; the ready file, JSON with
`url` and `pid`, is written once requests are answered, and removed at the end.
SIGTERM or Ctrl-C ends the server; an engine that fails or stalls ends it with
status 1 and the cause.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import uvicorn
from absl import flags

from clawgym_jax import cli, web
from clawgym_jax.checkpoints import source as checkpoint
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_json
from clawgym_jax.parallel.host import keep_memory
from clawgym_jax.serve import http, precision
from clawgym_jax.serve.engine import Engine, EngineError

_CHECKPOINT = flags.DEFINE_string(
    "checkpoint",
    None,
    "Hugging Face folder, .gguf file or package:NAME.",
    required=True,
)
_HOST = flags.DEFINE_string("host", "127.0.0.1", "Address to listen on.")
_PORT = flags.DEFINE_integer("port", 8000, "Port; 0 takes a free one.", 0, 65535)
_READY_FILE = flags.DEFINE_string(
    "ready_file", None, "Written when requests are answered: {url, pid}."
)
_NAME = flags.DEFINE_string("name", None, "Model name; the checkpoint's by default.")
_SLOTS = flags.DEFINE_integer("slots", 16, "Requests that run at once.", 1, 4096)
_MAX_LEN = flags.DEFINE_integer(
    "max_len", 1024, "Tokens of prompt and completion together.", 16
)
_COMPUTE_DTYPE = flags.DEFINE_enum(
    "compute_dtype", "auto", precision.CHOICES, "auto times both and says which."
)
_POLICY_VERSION = flags.DEFINE_integer(
    "policy_version", 0, "Version stamped on sampled tokens.", 0
)

_HEAP = 0.3  # share of the machine's memory; a trainer may run beside it
_LAST_SECONDS = 10.0  # of a server whose engine failed


def main() -> dict[str, Any]:
  keep_memory(_HEAP)
  ready_file = Path(_READY_FILE.value) if _READY_FILE.value else None
  if ready_file:
    ready_file.unlink(missing_ok=True)  # of an earlier run
  with web.listen(_HOST.value, _PORT.value) as listener:
    url = web.url_of(listener)
    try:
      return _serve(listener, url, ready_file)
    finally:
      if ready_file:
        ready_file.unlink(missing_ok=True)


def _serve(
    listener: socket.socket, url: str, ready_file: Path | None
) -> dict[str, Any]:
  started = time.monotonic()
  engine = _load(_CHECKPOINT.value)
  server = web.server(http.app(engine))
  failures: list[EngineError] = []

  def fail(error: EngineError) -> None:
    failures.append(error)
    print(f"error: {error}", file=sys.stderr, flush=True)
    server.should_exit = True
    # A stalled device call can't be interrupted; it must not keep the process.
    last = threading.Timer(_LAST_SECONDS, lambda: os._exit(1))
    last.daemon = True
    last.start()

  engine.on_failure = fail
  # uvicorn raises the signal again when it is done, for what was there before.
  signal.signal(
      signal.SIGTERM, lambda *_: setattr(server, "should_exit", True)
  )
  announce = threading.Thread(
      target=_announce, args=(server, url, ready_file, started), daemon=True
  )
  announce.start()
  server.run(sockets=[listener])
  if failures:
    raise UserError(f"{failures[0]}; the server has ended")
  engine.close()
  return {"url": url, **engine.report()}


def _load(source: str) -> Engine:
  model, tokenizer = checkpoint.load(source, flag="--checkpoint")
  dtype, reason = precision.choose(
      _COMPUTE_DTYPE.value, model.config, _SLOTS.value
  )
  print(f"{reason}; compiling the engine's programs", file=sys.stderr, flush=True)
  return Engine(
      model,
      tokenizer,
      name=_NAME.value or Path(source).stem,
      slots=_SLOTS.value,
      max_len=_MAX_LEN.value,
      compute_dtype=jnp.dtype(dtype),
      policy_version=_POLICY_VERSION.value,
  )


def _announce(
    server: uvicorn.Server, url: str, ready_file: Path | None, started: float
) -> None:
  while not server.started and not server.should_exit:
    time.sleep(0.02)
  if server.should_exit:
    return
  print(
      f"ready after {time.monotonic() - started:.1f} s: {url}",
      file=sys.stderr,
      flush=True,
  )
  if ready_file:
    write_json(ready_file, {"url": url, "pid": os.getpid()})


if __name__ == "__main__":
  cli.run(main)
