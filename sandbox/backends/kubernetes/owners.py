"""Whose a pod is, and what becomes of it when its controller is gone.

A pod or claim names its controller, by machine, boot and PID namespace, process
and start time, and when its life is over. Pods of a warm pool are their pool's.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from clawgym_jax.contracts.errors import UserError
from sandbox.backends.kubernetes import manifests
from sandbox.backends.kubernetes.api import Refused, connected
from sandbox.backends.kubernetes.manifests import Cluster
from sandbox.backends.labels import process_start

_EXPIRED_SECONDS = 120.0  # a pod's life begins when it runs, not when it is made


async def reap_pods(cluster: Cluster) -> dict[str, int]:
  """Deletes pods whose life is over or whose controller is gone.

  A pod whose controller lives, or ran on another machine and may live, is kept
  until it expires, whatever run it is of. Counts removed, kept and refused.
  """
  counts = {"removed": 0, "kept": 0, "refused": 0}
  async with connected(cluster) as api:
    kinds = [api.path("pods")]
    if api.cluster.warm_pool:
      kinds.append(api.custom(manifests.CLAIMS))
    for kind in kinds:
      query = {"labelSelector": f"{manifests.MARK}=true"}
      try:
        found = await api.call("GET", kind, query=query)
      except Refused as error:
        why = error.explained("dead pods were not looked for")
        raise why if isinstance(why, UserError) else UserError(str(why)) from None
      for item in found["items"]:
        meta = item["metadata"]
        notes = meta.get("annotations", {})
        expires = notes.get(manifests.EXPIRES, "")
        if not expires.isdigit() or meta.get("ownerReferences"):
          continue  # a warm pool's: its controller looks after it
        over = time.time() > int(expires) + _EXPIRED_SECONDS
        if not over and not orphaned(notes.get(manifests.CONTROLLER, "")):
          counts["kept"] += 1
          continue
        try:
          await api.delete(f"{kind}/{meta['name']}")
          counts["removed"] += 1
        except Refused:
          counts["refused"] += 1
  return counts


def controller() -> str:
  """This process among those of all machines and boots."""
  pid = os.getpid()
  return f"{_machine()}:{pid}:{process_start(pid)}"


def orphaned(text: str) -> bool:
  """Whether the controller `text` is gone; False where this machine can't tell."""
  machine, _, process = text.rpartition(":")[0].rpartition(":")
  started = text.rpartition(":")[2]
  if machine != _machine() or not process.isdigit() or not started.isdigit():
    return False
  return process_start(int(process)) != int(started)


def _machine() -> str:
  """Of this boot and PID namespace; a PID means something only within both."""
  boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
  return f"{boot}:{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"
