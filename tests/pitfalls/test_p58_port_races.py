"""P58: a server takes its port before anything else and never loses it."""

import threading

import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.serve.__main__ import listen


def test_64_parallel_starts_get_64_ports():
  listeners = []
  threads = [
      threading.Thread(target=lambda: listeners.append(listen("127.0.0.1", 0)))
      for _ in range(64)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  ports = {listener.getsockname()[1] for listener in listeners}
  assert len(ports) == 64
  with pytest.raises(UserError, match="in use"):
    listen("127.0.0.1", min(ports))
  for listener in listeners:
    listener.close()
