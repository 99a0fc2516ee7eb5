"""A local stand-in of the Kubernetes API, whose pods are real processes.

It takes what the real client sends: objects of any kind made, read, listed,
watched and deleted, a quota of pods, attach websockets with the channels of
v5.channel.k8s.io. A pod runs its container's command under bubblewrap, with no
capability, no network, a read-only root, its emptyDirs as tmpfs of their size,
its config maps as files, and its deadline. What a real cluster does otherwise
(scheduling, images, cgroups) is not there. Faults are asked for by name.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import shutil
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from pathlib import Path

from aiohttp import web

from tests.kubernetes_node import Pod, now

CLAIM_UID = "agents.x-k8s.io/claim-uid"
POD_NAME = "agents.x-k8s.io/pod-name"


class KubernetesApi:
  """Use as a context manager; `kubeconfig` is a file that leads to it.

  Attributes:
    server_file: what images have as /image/server, if any.
    token: the bearer token that it wants.
    quota: pods that may be there at once.
    faults: [method, part of the path, what, times]: what is an HTTP status,
      "hang", "drop" (nothing is done) or "lose" (only the answer is).
    said: what a fault says.
    calls: every request so far, (method, path).
    most: pods that were there at once, at the most.
    image_missing, unschedulable, start_error: pods made now stay so.
    network: whether pods reach the host's network.
    hurry: how much faster the clock of nodes goes that ends pods.
    mutate: changes the spec of each pod before it is kept.
    claim_uid: the claim that pods of pools say they are of; empty is the truth.
    pool_lies: claims turn ready though their pod is already gone.
  """

  def __init__(self):
    self.server_file = ""
    self.token, self.quota = "canary-token-7c1e", 1000
    self.faults: list[list] = []
    self.calls: list[tuple[str, str]] = []
    self.most = 0
    self.image_missing = self.unschedulable = self.network = False
    self.start_error = self.pool_lies = self.node_lost = False
    self.mutate, self.claim_uid = None, ""
    self.said = "an etcd leader is being elected"
    self.start_seconds, self.hurry = 0.0, 1.0
    self.objects: dict[str, dict[str, dict]] = defaultdict(dict)  # kind -> name
    self.pods: dict[str, Pod] = {}
    self.pools: dict[str, list[dict]] = {}  # template spec of each pool
    self._versions = itertools.count(1)
    self._watches: list[tuple[str, asyncio.Queue]] = []

  def __enter__(self):
    self.folder = Path(tempfile.mkdtemp(prefix="kubernetes-"))
    self.folder.chmod(0o755)  # pods are of users of their own
    started = threading.Event()
    self._thread = threading.Thread(target=self._serve, args=(started,), daemon=True)
    self._thread.start()
    assert started.wait(20)
    self.kubeconfig = self.folder / "kubeconfig"
    self.write_kubeconfig(self.token)
    return self

  def write_kubeconfig(self, token: str) -> None:
    entry = {"name": "local"}
    self.kubeconfig.write_text(
        json.dumps({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {**entry, "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
            ],
            "users": [{**entry, "user": {"token": token}}],
            "contexts": [{**entry, "context": {"cluster": "local", "user": "local"}}],
            "current-context": "local",
        })
    )

  def __exit__(self, *exception):
    self._loop.call_soon_threadsafe(self._end.set)
    self._thread.join(20)
    assert not self._thread.is_alive()
    shutil.rmtree(self.folder)

  def run(self, coroutine):
    """Runs `coroutine` in the API's own loop."""
    return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

  def put(self, kind, item):
    """Adds an object, from another thread; a pod of it has no process."""

    async def add():
      self.add(kind, item)

    self.run(add())

  def make_pool(self, name, spec, replicas):
    """A warm pool of that many pods, from another thread; waits until they run."""

    async def add():
      self.add_pool(name, spec, replicas)
      while not all(pod.get("status") for pod in self.pools[name]):
        await asyncio.sleep(0.02)

    self.run(add())

  def wait_until_empty(self, seconds=10.0):
    """Until no process lives and the node has said so of every pod."""
    end = time.monotonic() + seconds
    while self.living() or self._running():
      assert time.monotonic() < end, f"still running: {self.living()}"
      time.sleep(0.02)

  def wait_until_deleted(self, seconds=10.0):
    """Until the node has confirmed every deletion."""
    end = time.monotonic() + seconds
    while self.objects["pods"]:
      assert time.monotonic() < end, f"still there: {list(self.objects['pods'])}"
      time.sleep(0.02)

  def _running(self) -> list[str]:
    pods = list(self.objects["pods"].items())
    return [name for name, pod in pods if pod.get("status", {}).get("phase") == "Running"]

  def living(self) -> list[str]:
    """Names of pods whose processes live."""
    return [name for name, pod in list(self.pods.items()) if pod.alive()]

  def _serve(self, started):
    async def main():
      self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
      app = web.Application(client_max_size=8 << 20)
      app.router.add_route("*", "/{path:.*}", self._handle)
      runner = web.AppRunner(app, shutdown_timeout=0.1)
      await runner.setup()
      site = web.TCPSite(runner, "127.0.0.1", 0)
      await site.start()
      self.port = site._server.sockets[0].getsockname()[1]
      started.set()
      await self._end.wait()
      for pod in list(self.pods.values()):
        await pod.kill()
      await runner.cleanup()

    asyncio.run(main())

  # Requests.

  async def _handle(self, request):
    self.calls.append((request.method, request.path))
    for fault in self.faults:
      method, part, what, times = fault
      if times and request.method == method and part in request.path_qs:
        fault[3] -= 1
        if what == "hang":
          await asyncio.sleep(3600)
        if what == "drop":
          request.transport.abort()
          return web.Response()
        if what == "lose":  # it is done, and the answer never comes
          await self._answer(request)
          request.transport.abort()
          return web.Response()
        return _status(what, "InternalError", self.said)
    return await self._answer(request)

  async def _answer(self, request):
    if request.headers.get("Authorization") != f"Bearer {self.token}":
      return _status(401, "Unauthorized", "Unauthorized")
    parts = request.path.strip("/").split("/")
    assert "namespaces" in parts, request.path
    at = parts.index("namespaces")
    space, kind, *rest = parts[at + 1 :]
    if space != "clawgym":
      return _status(404, "NotFound", f'namespaces "{space}" not found')
    if request.method == "POST":
      return await self._create(kind, await request.json())
    if not rest:
      if request.query.get("watch") == "true":
        return await self._watch(kind, request)
      return self._list(kind, request)
    if rest[1:] == ["attach"]:
      return await self._attach(rest[0], request)
    if rest[0] not in self.objects[kind]:
      return _status(404, "NotFound", f'{kind} "{rest[0]}" not found')
    if request.method == "DELETE":
      return await self._delete(kind, rest[0], await request.json())
    return web.json_response(self.objects[kind][rest[0]])

  def _list(self, kind, request):
    selector = request.query.get("labelSelector", "")
    wanted = dict(part.split("=") for part in selector.split(",") if part)
    items = [
        o for o in self.objects[kind].values()
        if wanted.items() <= o["metadata"].get("labels", {}).items()
    ]  # fmt: skip
    return web.json_response({"kind": "List", "items": items, "metadata": {}})

  async def _watch(self, kind, request):
    name = request.query["fieldSelector"].removeprefix("metadata.name=")
    since = int(request.query["resourceVersion"])
    queue = asyncio.Queue()
    self._watches.append((kind, queue))
    there = self.objects[kind].get(name)
    if there and int(there["metadata"]["resourceVersion"]) > since:
      queue.put_nowait(("MODIFIED", copy.deepcopy(there)))
    response = web.StreamResponse()
    response.content_type = "application/json"
    await response.prepare(request)
    try:
      while True:
        event, item = await queue.get()
        if item["metadata"]["name"] == name:
          line = json.dumps({"type": event, "object": item}) + "\n"
          await response.write(line.encode())
    except ConnectionError:  # it has seen enough
      return response
    finally:
      self._watches.remove((kind, queue))

  async def _create(self, kind, item):
    name = item["metadata"]["name"]
    if name in self.objects[kind]:
      return _status(409, "AlreadyExists", f'{kind} "{name}" already exists')
    if kind == "pods":
      if len(self.objects[kind]) >= self.quota:
        return _status(
            403, "Forbidden",
            f'pods "{name}" is forbidden: exceeded quota: pods, requested: pods=1,'
            f" used: pods={len(self.objects[kind])}, limited: pods={self.quota}",
        )  # fmt: skip
      if self.mutate:
        self.mutate(item)
    self.add(kind, item)
    if kind == "pods":
      self.most = max(self.most, len(self.objects[kind]))
      self.pods[name] = Pod(self, item)
    if kind == "sandboxclaims":
      await self._claim(item)
    return web.json_response(item, status=201)

  async def _delete(self, kind, name, options):
    item = self.objects[kind][name]
    if kind == "sandboxclaims":
      bound = item.get("status", {}).get("sandbox", {}).get("name")
      self._remove(kind, name)
      if bound:
        self._remove("sandboxes", bound)
        await self._delete("pods", bound, {}) if bound in self.objects["pods"] else None
    elif kind == "pods" and options.get("gracePeriodSeconds") != 0:
      item["metadata"]["deletionTimestamp"] = now()
      self.changed(kind, name)
      if not self.node_lost:
        asyncio.ensure_future(self._finish(name))
    else:
      self._remove(kind, name)
      if name in self.pods:  # forced: nobody waits for the node
        asyncio.ensure_future(self.pods[name].kill())
    return web.json_response(item)

  async def _finish(self, name):
    if name in self.pods:
      await self.pods[name].kill()
    self._remove("pods", name)

  # Objects.

  def add(self, kind, item):
    item["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
    self.objects[kind][item["metadata"]["name"]] = item
    self.changed(kind, item["metadata"]["name"], "ADDED")

  def changed(self, kind, name, event="MODIFIED"):
    item = self.objects[kind].get(name)
    if item is None:
      return
    item["metadata"]["resourceVersion"] = str(next(self._versions))
    for wanted, queue in self._watches:
      if wanted == kind:
        queue.put_nowait((event, copy.deepcopy(item)))

  def _remove(self, kind, name):
    self.changed(kind, name, "DELETED")
    self.objects[kind].pop(name, None)

  # Warm pools.

  def add_pool(self, name, spec, replicas):
    self.pools[name] = []
    for number in range(replicas):
      pod = {
          "metadata": {
              "name": f"{name}-{number}",
              "labels": {"clawgym-jax/sandbox": "true"},
              "ownerReferences": [{"kind": "Sandbox", "name": f"{name}-{number}"}],
          },
          "spec": copy.deepcopy(spec),
      }
      self.add("pods", pod)
      self.pods[f"{name}-{number}"] = Pod(self, pod)
      self.pools[name].append(pod)

  async def _claim(self, item):
    name = item["metadata"]["name"]
    pool = self.pools.get(item["spec"]["warmPoolRef"]["name"])
    if not pool:
      reason = "WarmPoolNotFound" if pool is None else "SandboxNotReady"
      self._condition(item, "False", reason)
      return
    pod = pool.pop(0)
    bound = pod["metadata"]["name"]
    uid = self.claim_uid or item["metadata"]["uid"]
    pod["metadata"]["labels"][CLAIM_UID] = uid
    more = item["spec"]["additionalPodMetadata"]
    assert "labels" not in more, "of domains that the controller was not told of"
    pod["metadata"].setdefault("annotations", {}).update(more["annotations"])
    self.changed("pods", bound)
    self.add(
        "sandboxes", {"metadata": {"name": bound, "annotations": {POD_NAME: bound}}}
    )
    if self.pool_lies:
      self._remove("pods", bound)
      await self.pods[bound].kill()
    item["status"] = {"sandbox": {"name": bound}}
    self._condition(item, "True", "DependenciesReady")
    self.changed("sandboxclaims", name)

  def _condition(self, item, status, reason):
    item.setdefault("status", {})["conditions"] = [
        {"type": "Ready", "status": status, "reason": reason, "message": "of the pool"}
    ]
    self.changed("sandboxclaims", item["metadata"]["name"])

  # The stream.

  async def _attach(self, name, request):
    pod = self.pods.get(name)
    if pod is None or not pod.alive():
      return _status(400, "BadRequest", f"container of {name} is not running")
    assert request.query["container"] == "sandbox"
    socket = web.WebSocketResponse(
        protocols=("v5.channel.k8s.io", "v4.channel.k8s.io"), max_msg_size=32 << 20
    )
    await socket.prepare(request)
    await pod.attached(socket)
    return socket


def _status(code, reason, message):
  return web.json_response(
      {
          "kind": "Status", "status": "Failure", "code": code, "reason": reason,
          "message": message,
      },
      status=code,
  )  # fmt: skip
