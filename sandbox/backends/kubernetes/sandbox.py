"""Sandboxes of Kubernetes: one pod each, or one claim on a warm pool.

The sandbox's server is process 1 of the pod, and is spoken to over an attach,
not an exec: what runs in the pod could kill a process that an exec started, but
not process 1. Standard input opens once, so the stream's end, by `stop` or by
the controller's death, is the server's and the pod's end. The pod ends at its
`activeDeadlineSeconds` at the latest, a claim at its `shutdownTime`.

A sandbox makes one pod, under a name chosen before the first try, and a start
that fails is over when its pod is gone: sandboxes that fail to start never
hold more of the namespace than those that do.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import secrets
import shlex
import time
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from clawgym_jax.contracts.errors import UserError
from sandbox.backends import base, build, frames, served
from sandbox.backends.base import SandboxLost
from sandbox.backends.frames import Op
from sandbox.backends.kubernetes import manifests
from sandbox.backends.kubernetes.api import (
    Api,
    Refused,
    Stream,
    acquire,
    condition,
    connected,
    release,
)
from sandbox.backends.kubernetes.manifests import Cluster, Manifest, Server
from sandbox.backends.kubernetes.objections import objections
from sandbox.backends.kubernetes.owners import controller
from sandbox.backends.served import Reader, ServedSandbox, Writer

OPTIONS = tuple(f.name for f in dataclasses.fields(Cluster))
POOL_USER = manifests.FIRST_USER  # of the pods of a warm pool
# One after the other: two pods of this process share none.
_users = itertools.count(secrets.randbelow(manifests.USERS))
_END_SECONDS = 20.0
_FORCE_SECONDS = 10.0  # then the pod's node is taken for lost
_STATUS_SECONDS = 3.0
_LOOKUP_SECONDS = 10.0
_PROBE_PAUSE = 1.0  # seconds
# Of a claim: its controller does not try again.
_FINAL = {
    "ClaimExpired", "EnvVarsInjectionRejected", "InvalidMetadata", "SandboxExpired",
    "TemplateNotFound", "VolumeClaimTemplatesError", "WarmPoolNotFound",
}  # fmt: skip
_NO_IMAGE = {
    "ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName",
}  # fmt: skip
_NO_START = {
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
    "CrashLoopBackOff",
}  # fmt: skip
_probed: set[Cluster] = set()


class KubernetesSandbox(ServedSandbox):
  """See `served.ServedSandbox` and the module's docstring.

  Args:
    cluster: where and how.
    settings: as of `ServedSandbox`, and the fields of `Cluster` in its place.
  """

  def __init__(self, *, cluster: Cluster | None = None, **settings: Any):
    options = {name: settings.pop(name) for name in OPTIONS if name in settings}
    super().__init__(**settings)
    self._cluster = cluster or Cluster.parse(options)
    self._cluster.require_bounded_processes()
    self._settings["cluster"] = self._cluster
    self._bounds = dataclasses.replace(
        self._bounds,
        boot_seconds=max(self._bounds.boot_seconds, self._cluster.boot_seconds),
    )
    now = self._settings["now"]
    # A warm pod was started before anyone knew what time it would be inside.
    self._now = (
        f"export CLAWGYM_NOW={shlex.quote(now)}\n" if self._cluster.warm_pool else ""
    )
    self._name = f"sandbox-{secrets.token_hex(8)}"
    self._api: Api | None = None
    self._making: asyncio.Task | None = None
    self._pod = ""  # its name, once known
    self._stream: Stream | None = None
    self._state = "it was not made yet"
    self._end: Manifest = {}  # the pod, once its stream ended

  @property
  def name(self) -> str:
    """The pod's, or the claim's."""
    return self._name

  async def start(self, files: base.Files | Path = {}) -> Self:
    await super().start(files)
    try:
      await self._prove_network()
    except BaseException:
      await self.stop()
      raise
    self.limits |= self._own_limits()
    return self

  def _own_limits(self) -> dict[str, str]:
    cluster, processes = self._cluster, []
    if cluster.counted_alone:
      processes.append("rlimit of a user of its own")
    if cluster.node_pids_limit:
      processes.append(f"podPidsLimit {cluster.node_pids_limit} of the node")
    return {
        "processes": ", ".join(processes),
        "memory": "cgroup of the pod",
        "disk": "tmpfs",
        "inodes": "none of their own: they count as memory",
        "cpu": "cgroup of the pod",
        "network": f"NetworkPolicy, {'' if cluster in _probed else 'not '}tried",
    }

  async def exec(self, command: str, timeout: float = 60.0) -> base.ExecResult:
    return await super().exec(self._now + command, timeout)

  async def spawn(self, command: str, *, pty: bool = False) -> int:
    return await super().spawn(self._now + command, pty=pty)

  async def _connect(self) -> tuple[Reader, Writer]:
    # Before the bound of `start`, which would not say what the pod waits for.
    deadline = asyncio.get_running_loop().time() + 0.9 * self._bounds.boot_seconds
    self._api = await acquire(self._cluster)
    server = server_of(self._cluster)
    await _prepare(self._api, server)
    wanted = self._wanted(server)
    wait = self._claimed if self._cluster.warm_pool else self._running
    try:
      async with asyncio.timeout_at(deadline):
        # Cancelled half-way a request may still be carried out: it is waited for.
        self._making = asyncio.ensure_future(self._make(wanted))
        pod = await wait(await asyncio.shield(self._making))
      found = objections(pod, self._demands(wanted))
      if found:
        raise UserError(
            f"the cluster made another pod than the one asked for: {'; '.join(found)}."
            " A webhook or the warm pool's template changes it: exempt"
            f" the namespace {self._cluster.namespace} or mend the template"
        )
      self._stream = await self._api.attach(self._pod)
    except Refused as error:
      raise error.explained(f"pod {self._name}") from None
    except TimeoutError:
      raise SandboxLost(
          f"pod {self._name} did not run within"
          f" {self._bounds.boot_seconds:.0f} s: {self._state}"
      ) from None
    # What the server said before the attach nobody heard: it is asked again.
    self._stream.write(frames.pack(0, Op.PROCESSES))
    return self._stream, self._stream

  async def _disconnect(self) -> None:
    if self._stream is not None:
      await self._stream.close()
    if self._api is None:
      return
    api, self._api = self._api, None
    try:
      if self._making is not None:
        async with asyncio.timeout(_END_SECONDS):
          await self._remove(api)
    except (TimeoutError, Refused) as error:
      logging.warning("pod %s is left to its deadline: %s", self._name, error)
    finally:
      await release(api)

  async def _last_words(self) -> str:
    """Why the pod ended, as the cluster knows it, and the server's last output."""
    if self._lost:  # by `stop`: nobody asks why
      return ""
    words = [self._stream.said.decode(errors="replace").strip(), self._stream.status]
    deadline = time.monotonic() + _STATUS_SECONDS
    with contextlib.suppress(Refused):
      while self._api is not None:
        self._end = await self._api.call(
            "GET", self._api.path("pods", self._pod), seconds=_STATUS_SECONDS
        )
        if _ended(self._end) or time.monotonic() > deadline:
          break
        await asyncio.sleep(0.1)  # a node tells what it saw a moment later
    if self._end:
      words.append(_describe(self._end))
    return "; ".join(filter(None, words))

  async def _memory_ran_out(self) -> bool:
    """Of the whole pod, whose end `_last_words` saw; also of its node's disk.

    Only what is inside can use up either.
    """
    status = self._end.get("status", {})
    states = [e.get("state", {}) for e in status.get("containerStatuses", ())]
    reasons = {state.get("terminated", {}).get("reason") for state in states}
    evicted = status.get("reason") == "Evicted"
    return "OOMKilled" in reasons or evicted and "exceed" in status.get("message", "")

  # Making and removing.

  def _wanted(self, server: Server) -> Manifest:
    bounds = self._bounds
    expires = int(time.time() + bounds.boot_seconds + bounds.lifetime_seconds)
    settings = self._settings
    meta = manifests.metadata(self._name, settings["run_id"], controller(), expires)
    return manifests.pod(
        spec(
            self._cluster,
            bounds,
            settings["folders"],
            self._user(),
            server,
            now=settings["now"],
            forward=tuple(settings["forward"]),
        ),
        meta,
    )

  def _user(self) -> int:
    if self._cluster.user or self._cluster.warm_pool:
      return self._cluster.user or POOL_USER
    return manifests.FIRST_USER + next(_users) % manifests.USERS

  async def _make(self, wanted: Manifest) -> Manifest:
    meta, api = wanted["metadata"], self._api
    if self._cluster.warm_pool:
      ends = int(meta["annotations"][manifests.EXPIRES])
      at = datetime.fromtimestamp(ends, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
      claim = manifests.claim(self._cluster, meta, at)
      return await api.create(api.custom(manifests.CLAIMS), claim)
    return await api.create(api.path("pods"), wanted)

  def _demands(self, wanted: Manifest) -> Manifest:
    """`wanted`, without what a warm pool's pod was given before it was claimed."""
    if not self._cluster.warm_pool:
      return wanted
    left_out = ("activeDeadlineSeconds", "nodeSelector")
    rest = {k: v for k, v in wanted["spec"].items() if k not in left_out}
    return {**wanted, "spec": rest}

  async def _running(self, made: Manifest) -> Manifest:
    """Waits for the pod `made` to run."""
    self._pod = made["metadata"]["name"]
    async with aclosing(self._api.watch(self._api.path("pods"), made)) as events:
      async for kind, pod in events:
        self._state = _describe(pod)
        phase = pod.get("status", {}).get("phase")
        if kind == "DELETED" or phase in ("Failed", "Succeeded"):
          raise SandboxLost(f"pod {self._pod} ended before it ran: {self._state}")
        for entry in pod.get("status", {}).get("containerStatuses", ()):
          waiting = entry.get("state", {}).get("waiting", {})
          why = f"{waiting.get('reason')}: {waiting.get('message', '')}"
          if waiting.get("reason") in _NO_IMAGE:
            raise UserError(
                f"the nodes can't get the image {self._cluster.image} ({why}); give"
                " another with --backend=kubernetes?image=NAME"
            )
          if waiting.get("reason") in _NO_START:
            raise SandboxLost(f"pod {self._pod} can't start ({why})")
        if phase == "Running":
          return pod
    raise AssertionError("a watch ends with an event")

  async def _claimed(self, made: Manifest) -> Manifest:
    """Waits for the claim to be served, then looks at what it was given."""
    api, claim = self._api, made
    pool = self._cluster.warm_pool
    async with aclosing(api.watch(api.custom(manifests.CLAIMS), made)) as events:
      async for kind, claim in events:
        if kind == "DELETED":
          raise SandboxLost(f"the claim {self._name} was deleted")
        status = claim.get("status", {})
        ready = condition(claim, "Ready")
        self._state = f"claim: {ready.get('reason')}: {ready.get('message', '')}"
        if ready.get("status") == "True" and status.get("sandbox", {}).get("name"):
          break
        if ready.get("reason") in _FINAL:
          raise UserError(
              f"the warm pool {pool} does not serve claims ({ready['reason']}:"
              f" {ready.get('message', '')}); docs/kubernetes.md says how to make one"
          )
    given = claim["status"]["sandbox"]["name"]
    # Ready is only what the claim's controller saw last: a drained node's pod may
    # be gone by now, and a pod may be another claim's.
    try:
      sandbox = await api.call("GET", api.custom(manifests.SANDBOXES, given))
      noted = sandbox["metadata"].get("annotations", {}).get(manifests.POD_NAME)
      self._pod = noted or given
      pod = await api.call("GET", api.path("pods", self._pod))
    except Refused as error:
      if error.status != 404:
        raise
      raise SandboxLost(
          f"the claim {self._name} says it is ready, but its pod is gone"
      ) from None
    owner = pod["metadata"].get("labels", {}).get(manifests.CLAIM_UID)
    if owner != claim["metadata"]["uid"]:
      raise SandboxLost(f"pod {self._pod} was given to the claim {owner}, not to ours")
    if pod["metadata"].get("deletionTimestamp") or _ended(pod):
      raise SandboxLost(
          f"the claim {self._name} says it is ready, but its pod {_describe(pod)}"
      )
    return pod

  async def _remove(self, api: Api) -> None:
    """Deletes the pod or claim and waits until the node, too, is done with it."""
    await asyncio.wait([self._making])
    if not self._making.cancelled():
      self._making.exception()  # it was raised, or nobody wants it any more
    if self._cluster.warm_pool:
      await api.delete(api.custom(manifests.CLAIMS, self._name))
      paths = [api.custom(manifests.CLAIMS, self._name)]
      paths += [api.path("pods", self._pod)] if self._pod else []
    else:
      paths = [api.path("pods", self._name)]
      # Not 0, with which the API forgets a pod that its node still runs.
      await api.delete(paths[0], gracePeriodSeconds=1)
    started, pause = time.monotonic(), 0.02
    for path in paths:
      while await api.exists(path):
        if time.monotonic() > started + _FORCE_SECONDS and "/pods/" in path:
          await api.delete(path, gracePeriodSeconds=0)
        await asyncio.sleep(pause)
        pause = min(2 * pause, 1.0)

  async def _prove_network(self) -> None:
    """Once a cluster: a NetworkPolicy that nothing enforces is only a wish."""
    if self._cluster in _probed or not self._cluster.probe_network:
      return
    name, port = self._api.host
    try:
      async with asyncio.timeout(_LOOKUP_SECONDS):
        found = await asyncio.get_running_loop().getaddrinfo(name, port)
    except (OSError, TimeoutError) as error:
      raise SandboxLost(f"no address of the API server {name}: {error}") from None
    address = found[0][4][0]
    for attempt in range(3):
      if attempt:  # a policy may come a moment after its pod
        await asyncio.sleep(_PROBE_PAUSE)
      said = await self.exec(_PROBE.format(address=address, port=port), 10.0)
      if "open" not in said.output.split():
        break
    else:
      raise UserError(
          f"a sandbox reached {address}:{port}: this cluster does not enforce"
          " NetworkPolicy. Install a network plugin that does (Calico, Cilium), or"
          " where the network is shut by other means set probe_network to false"
      )
    if "shut" in said.output.split():
      _probed.add(self._cluster)


_PROBE = """
if command -v python3 > /dev/null; then
  python3 -c 'import socket; socket.create_connection(("{address}", {port}), 2)' \
    2> /dev/null && echo open || echo shut
elif command -v bash timeout > /dev/null; then
  timeout 2 bash -c 'exec 3<> /dev/tcp/{address}/{port}' 2> /dev/null && \
    echo open || echo shut
fi"""


def spec(
    cluster: Cluster,
    bounds: base.Bounds,
    folders: tuple[str, ...],
    user: int,
    server: Server,
    *,
    now: str = "",
    forward: tuple[int, ...] = (),
) -> Manifest:
  """The pod's.

  The pod's cgroup bounds memory, but its kernel kills the whole container: the
  server is told to be first, as if it were alone.
  """
  arguments = served.server_arguments(
      bounds, now, folders, mount=False, forward=forward
  )
  if not cluster.counted_alone:  # the pods of a node would be counted together
    arguments = [a for a in arguments if not a.startswith("--limit=nproc=")]
  paths = (base.WORKSPACE, "/tmp", *folders, "/run/sandbox")
  return manifests.pod_spec(cluster, bounds, paths, user, server, arguments)


def check(**options: str) -> None:
  """Raises `UserError` with what to do unless pods can be made there."""
  cluster = Cluster.parse(options)
  cluster.require_bounded_processes()
  server = server_of(cluster)

  async def ask() -> None:
    async with connected(cluster) as api:
      try:
        await _prepare(api, server)
        await api.call("GET", api.path("pods"), query={"limit": "1"})
      except Refused as error:
        why = error.explained("the kubernetes backend can't be used")
        raise why if isinstance(why, UserError) else UserError(str(why)) from None

  asyncio.run(ask())


def server_of(cluster: Cluster) -> Server:
  if cluster.server:
    return Server(b"", cluster.server)
  return Server(build.server_binary().read_bytes())


async def _prepare(api: Api, server: Server) -> None:
  """The network policy and the staged server, once."""
  if api.prepared is None or api.prepared.done() and api.prepared.exception():
    api.prepared = asyncio.ensure_future(_stage(api, server))
  await asyncio.shield(api.prepared)


async def _stage(api: Api, server: Server) -> None:
  policy = manifests.no_network()
  path = api.custom(("networking.k8s.io", "v1", "networkpolicies"))
  try:
    there = await _ensure(api, path, policy)
    if {k: v for k, v in there["spec"].items() if v} != policy["spec"]:
      raise UserError(
          f"the NetworkPolicy {manifests.POLICY} of namespace {api.cluster.namespace}"
          " is not the one that shuts the network; delete it and start again"
      )
    shared = [manifests.names(api.cluster.user)]
    if not server.path:
      shared.append(server.config_map())
    for files in shared:
      there = await _ensure(api, api.path("configmaps"), files)
      if any(there.get(kind) != files.get(kind) for kind in ("data", "binaryData")):
        raise UserError(
            f"the ConfigMap {files['metadata']['name']} of namespace"
            f" {api.cluster.namespace} holds something else; delete it and start again"
        )
  except Refused as error:
    raise error.explained("preparing the namespace") from None


async def _ensure(api: Api, path: str, body: Manifest) -> Manifest:
  """The object of that name, made if it isn't there."""
  try:
    return await api.call("GET", f"{path}/{body['metadata']['name']}")
  except Refused as error:
    if error.status != 404:
      raise
  return await api.create(path, body)


def _ended(pod: Manifest) -> bool:
  return pod.get("status", {}).get("phase") in ("Failed", "Succeeded")


def _describe(pod: Manifest) -> str:
  """What the cluster says of a pod's state, in one line."""
  status = pod.get("status", {})
  words = [f"is {status.get('phase', 'unknown')}"]
  words += [status[name] for name in ("reason", "message") if status.get(name)]
  for kind in ("PodScheduled", "Ready"):
    found = condition(pod, kind)
    if found.get("status") == "False" and found.get("message"):
      words.append(f"{found.get('reason')}: {found['message']}")
  for entry in status.get("containerStatuses", ()):
    for state in ("waiting", "terminated"):
      told = entry.get("state", {}).get(state)
      if told:
        code = f", exit code {told['exitCode']}" if "exitCode" in told else ""
        words.append(f"container {told.get('reason', state)}{code}")
  return ", ".join(words)


