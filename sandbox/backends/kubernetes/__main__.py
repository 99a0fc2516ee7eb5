"""Prints what an administrator gives a cluster once, for `kubectl apply -f -`.

  python -m sandbox.backends.kubernetes "--backend=kubernetes?namespace=clawgym"

The namespace, the Role that the controller needs, and what sandboxes share; with
the option warm_pool also the template and the pool that claims are served from.
"""

from __future__ import annotations

import json

from absl import flags

from clawgym_jax import cli
from clawgym_jax.contracts.errors import UserError
from sandbox.backends import Bounds, split
from sandbox.backends.flags import backend
from sandbox.backends.kubernetes import manifests
from sandbox.backends.kubernetes.manifests import Cluster, Manifest
from sandbox.backends.kubernetes.sandbox import POOL_USER, server_of, spec

_REPLICAS = flags.DEFINE_integer("replicas", 4, "Sandboxes kept warm.", 1)
_FOLDERS = flags.DEFINE_list(
    "folders", [], "Writable directories of warm sandboxes besides the usual ones."
)
_FORWARD = flags.DEFINE_list(
    "forward", [], "Ports inside warm sandboxes that lead to the gateway."
)
_BOUNDS = flags.DEFINE_list(
    "bounds", [], "Bounds of warm sandboxes that aren't the default, name=value."
)
_HOURS = flags.DEFINE_float("hours", 24.0, "How long a warm sandbox may wait.", 0.1)


def everything(cluster: Cluster) -> list[Manifest]:
  """All manifests, in the order in which they are needed."""
  server = server_of(cluster)
  found = [manifests.namespace(cluster.namespace)]
  parts = [manifests.role(), manifests.no_network(), manifests.names(cluster.user)]
  if not server.path:
    parts.append(server.config_map())
  if cluster.warm_pool:
    cluster.require_bounded_processes()
    pod = spec(
        cluster,
        _bounds(),
        tuple(_FOLDERS.value),
        cluster.user or POOL_USER,
        server,
        forward=_ports(),
    )
    parts += manifests.warm_pool(cluster.warm_pool, _REPLICAS.value, pod)
  for part in parts:
    part["metadata"]["namespace"] = cluster.namespace
  return found + parts


def _ports() -> tuple[int, ...]:
  try:
    return tuple(int(port) for port in _FORWARD.value)
  except ValueError:
    raise UserError(
        f"--forward={','.join(_FORWARD.value)}: give ports, as --forward=8080,8081"
    ) from None


def _bounds() -> Bounds:
  try:
    given = {n: int(v) for n, v in (part.split("=") for part in _BOUNDS.value)}
    return Bounds(**given, lifetime_seconds=3600.0 * _HOURS.value)
  except (TypeError, ValueError):
    raise UserError(
        f"--bounds={','.join(_BOUNDS.value)}: write --bounds=memory=1610612736,…,"
        " with fields of sandbox.backends.Bounds that count"
    ) from None


def main() -> None:
  name, options = split(backend())
  if name != "kubernetes":
    raise UserError("say which cluster: --backend=kubernetes?namespace=NAME")
  items = everything(Cluster.parse(options))
  print(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1))


if __name__ == "__main__":
  cli.run(main)
