"""HTTP servers of the project: a port is bound first, kept, and never guessed.

`serve` runs an application in a thread of this process; a program that is
nothing but a server runs `server` itself, on a socket from `listen`.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import uvicorn

from clawgym_jax.contracts.errors import UserError

_BACKLOG = 4096
_START_SECONDS = 30.0
_GRACE_SECONDS = 5  # to answer those who wait when the server ends


def listen(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
  """A listening socket; port 0 takes a free one. `UserError` if it can't be had."""
  listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
  try:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(_BACKLOG)
  except OSError as error:
    listener.close()
    what = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror
    mend = "give another --port, or 0 for a free one"
    if port == 0:
      mend = "give an address of this machine"
    raise UserError(f"can't listen on port {port} of {host}: {what}; {mend}") from error
  return listener


def url_of(listener: socket.socket) -> str:
  host, port = listener.getsockname()
  return f"http://{host}:{port}"


def server(application: Any) -> uvicorn.Server:
  """uvicorn for an ASGI application, as every server of the project runs it."""
  return uvicorn.Server(
      uvicorn.Config(
          application,
          log_config=None,  # its own would close the handlers that are there
          log_level="warning",
          access_log=False,
          ws="none",
          timeout_keep_alive=120,
          timeout_graceful_shutdown=_GRACE_SECONDS,
      )
  )


def serve(
    application: Any, *, host: str = "127.0.0.1", port: int = 0
) -> tuple[str, Callable[[], None]]:
  """Serves in a thread; returns the URL and a function that stops the server."""
  listener = listen(host, port)
  running = server(application)
  thread = threading.Thread(
      target=running.run, kwargs={"sockets": [listener]}, name="http", daemon=True
  )
  thread.start()

  def stop() -> None:
    running.should_exit = True
    thread.join(3 * _GRACE_SECONDS)
    listener.close()

  end = time.monotonic() + _START_SECONDS
  while not running.started:
    if not thread.is_alive() or time.monotonic() > end:
      stop()
      raise UserError(f"the server on {url_of(listener)} did not start")
    time.sleep(0.005)
  return url_of(listener), stop
