"""The Kubernetes API as sandboxes use it: every call ends, and says why it failed.

The official client (its asyncio side) finds the cluster, its TLS and its
credentials, and builds each request; objects stay the plain JSON they are. A
call that fails for a passing reason is made again, a few times within its
seconds; names are ours, so making something twice makes it once. The stream to
a pod is the websocket of an attach: a byte says the channel, the rest is data.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import aiohttp

from clawgym_jax.contracts.errors import UserError
from sandbox.backends.base import SandboxLost
from sandbox.backends.kubernetes.manifests import CONTAINER, Cluster, Manifest

_CALL_SECONDS = 30.0
_TRY_SECONDS = 10.0
_LOGIN_SECONDS = 30.0
_TRIES = 5
_PAUSE_SECONDS = 0.2  # before the second try, then doubled
_PASSING = {408, 409, 429, 500, 502, 503, 504}
_HEARTBEAT_SECONDS = 60.0  # idle streams must look alive to what lies between
_CHUNK = 1 << 16
_HIGH = 1 << 20  # bytes that may wait to be sent
_CHANNELS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _STATUS = range(4)
_CLOSED = (
    aiohttp.WSMsgType.CLOSE,
    aiohttp.WSMsgType.CLOSING,
    aiohttp.WSMsgType.CLOSED,
    aiohttp.WSMsgType.ERROR,
)


class Refused(Exception):
  """The API refused a call: HTTP status, its reason and what it said.

  Status 0: it could not be reached.
  """

  def __init__(self, status: int, reason: str, message: str):
    super().__init__(message)
    self.status, self.reason = status, reason

  def explained(self, doing: str) -> SandboxLost | UserError:
    """The error for the caller: whose fault it is, and what to do."""
    text = f"{doing}: {self}"
    if self.status == 403 and "exceeded quota" in str(self):
      return SandboxLost(
          f"{text}. The namespace's quota is used up: raise it, or lower --concurrency"
      )
    if self.status == 401:
      return UserError(f"{text}. The cluster does not know us: renew the credentials")
    if self.status == 403:
      return UserError(f"{text}. Give us the Role of docs/kubernetes.md")
    if self.status == 404 and "namespaces" in str(self):
      return UserError(f"{text}. Make it: kubectl create namespace NAME")
    if self.status == 404 and "could not find the requested resource" in str(self):
      return UserError(f"{text}. Install agent-sandbox, or leave out warm_pool")
    if self.status in (400, 422):
      return UserError(f"{text}. Change the options of --backend=kubernetes?…")
    return SandboxLost(text)


class Api:
  """One cluster, for one event loop; see the module's docstring."""

  def __init__(self, cluster: Cluster, client: Any):
    self.cluster, self._client = cluster, client
    self.users = 0
    self.prepared: asyncio.Task | None = None

  @property
  def host(self) -> tuple[str, int]:
    """Name or address, and port, of the API server."""
    url = urlsplit(self._client.configuration.host)
    return url.hostname, url.port or (443 if url.scheme == "https" else 80)

  def path(self, kind: str, name: str = "") -> str:
    """Of a core object of the namespace, or of all of that kind."""
    return _join(f"/api/v1/namespaces/{self.cluster.namespace}/{kind}", name)

  def custom(self, resource: tuple[str, str, str], name: str = "") -> str:
    """The same of another API group: (group, version, plural)."""
    group, version, kind = resource
    space = self.cluster.namespace
    return _join(f"/apis/{group}/{version}/namespaces/{space}/{kind}", name)

  async def call(
      self,
      method: str,
      path: str,
      body: Manifest | None = None,
      *,
      query: dict[str, str] | None = None,
      seconds: float = _CALL_SECONDS,
  ) -> Manifest:
    """The object that the API answers with, or `Refused`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    wait, last = 0.0, Refused(0, "", "no time was left to ask")
    renewed = False
    for number in range(_TRIES):
      await asyncio.sleep(min(wait, max(0.0, deadline - loop.time())))
      left = deadline - loop.time()
      if left <= 0:
        break
      wait = _PAUSE_SECONDS * 2**number
      try:
        async with asyncio.timeout(min(left, _TRY_SECONDS)):
          response = await self._send(method, path, body, query)
          data = await response.read()
        if response.status < 300:
          return json.loads(data)
        last = _refusal(response.status, data)
        if response.status == 401 and not renewed:  # tokens last an hour or less
          renewed, wait = True, 0.0
          new = await _configuration(self.cluster)
          self._client.configuration.api_key = new.api_key
          continue
        if response.status not in _PASSING or last.reason == "AlreadyExists":
          raise last
        wait = max(wait, _seconds(response.headers.get("Retry-After")))
      except TimeoutError:
        last = Refused(0, "", f"the API server did not answer {method} {path} in time")
      except (aiohttp.ClientError, OSError) as error:
        last = Refused(0, "", f"the API server can't be reached: {error}")
      except ValueError as error:
        last = Refused(0, "", f"the API server's answer is no JSON: {error}")
    raise last

  async def create(self, path: str, body: Manifest) -> Manifest:
    """Makes the object, or gives the one of that name that an earlier try made."""
    try:
      return await self.call("POST", path, body)
    except Refused as error:
      if error.reason != "AlreadyExists":
        raise
      return await self.call("GET", _join(path, body["metadata"]["name"]))

  async def delete(self, path: str, **options: Any) -> None:
    """Deletes the object, unless it is gone already."""
    body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
    try:
      await self.call("DELETE", path, body)
    except Refused as error:
      if error.status != 404:
        raise

  async def exists(self, path: str) -> bool:
    try:
      await self.call("GET", path)
    except Refused as error:
      if error.status == 404:
        return False
      raise
    return True

  async def watch(
      self, path: str, made: Manifest
  ) -> AsyncIterator[tuple[str, Manifest]]:
    """(event, object) for the object `made` below `path`, from now on.

    Begins with its state now. A watch that ends or breaks is taken up again, after
    a pause; where it breaks over and over the last cause is raised. It ends with
    the caller's patience: what does not change says nothing.
    """
    name = made["metadata"]["name"]
    query = {"watch": "true", "fieldSelector": f"metadata.name={name}"}
    failures = 0
    while True:
      try:
        now = await self.call("GET", _join(path, name))
      except Refused as error:
        if error.status != 404:
          raise
        yield "DELETED", made
        return
      yield "MODIFIED", now
      query["resourceVersion"] = now["metadata"]["resourceVersion"]
      try:
        async with asyncio.timeout(_TRY_SECONDS):
          response = await self._send("GET", path, None, query)
        try:
          if response.status >= 300:
            raise _refusal(response.status, await response.read())
          async for line in response.content:
            event = json.loads(line)
            kind = event.get("type")
            if kind in ("ADDED", "MODIFIED", "DELETED"):
              failures = 0
              yield kind, event["object"]
            elif kind != "BOOKMARK":  # an error, such as 410: too old a version
              break
        finally:
          response.close()
      except (aiohttp.ClientError, OSError, ValueError, Refused) as error:
        failures += 1
        if failures >= _TRIES or isinstance(error, Refused) and error.status == 403:
          raise error if isinstance(error, Refused) else Refused(
              0, "", f"the watch broke: {str(error) or type(error).__name__}"
          ) from None
      await asyncio.sleep(_PAUSE_SECONDS * 2**failures)

  async def attach(self, pod: str) -> Stream:
    """The stream to and from process 1 of the pod's container.

    Tried again after passing trouble: had the first attach come to be, its end
    would have ended the pod, and the next one says so.
    """
    for number in range(_TRIES):
      try:
        return await self._attach(pod)
      except Refused as error:
        if number == _TRIES - 1 or error.status not in _PASSING | {0}:
          raise
      await asyncio.sleep(_PAUSE_SECONDS * 2**number)
    raise AssertionError("unreachable")

  async def _attach(self, pod: str) -> Stream:
    options = {"container": CONTAINER, "stdin": "true", "stdout": "true"}
    options["stderr"] = "true"
    try:
      async with asyncio.timeout(_TRY_SECONDS):
        _, url, headers, *_ = await self._request(
            "GET", self.path("pods", f"{pod}/attach"), None, options
        )
        configuration = self._client.configuration
        socket = await self._session().ws_connect(
            url,
            headers={k: v for k, v in headers.items() if k != "Content-Type"},
            protocols=_CHANNELS,
            heartbeat=_HEARTBEAT_SECONDS,
            max_msg_size=0,  # what the server may say is bounded where it is asked
            server_hostname=configuration.tls_server_name or None,
            proxy=configuration.proxy or None,
        )
    except aiohttp.WSServerHandshakeError as error:
      # 400 is of a container that ended, and no fault of the options.
      status = 0 if error.status == 400 else error.status
      raise Refused(status, "", f"attach: HTTP {error.status}") from None
    except TimeoutError:
      raise Refused(0, "", f"attaching to {pod} took too long") from None
    except (aiohttp.ClientError, OSError) as error:
      raise Refused(0, "", f"attach: {error}") from None
    if socket.protocol not in _CHANNELS:
      await socket.close()
      raise Refused(0, "", f"attach: the API server speaks {socket.protocol!r}")
    return Stream(socket)

  async def close(self) -> None:
    if self.prepared is not None:
      self.prepared.cancel()
      await asyncio.gather(self.prepared, return_exceptions=True)
    await self._client.close()

  def _session(self) -> aiohttp.ClientSession:
    rest = self._client.rest_client
    if rest.pool_manager is None:
      rest.pool_manager = rest._create_pool_manager()  # as its own stream module does
    return rest.pool_manager

  async def _request(
      self, method: str, path: str, body: Manifest | None, query: dict | None
  ) -> tuple:
    return await self._client.param_serialize(
        method,
        path,
        query_params=list((query or {}).items()),
        header_params={"Accept": "application/json"},
        body=body,
        auth_settings=["BearerToken"],
    )

  async def _send(
      self, method: str, path: str, body: Manifest | None, query: dict | None
  ) -> aiohttp.ClientResponse:
    request = await self._request(method, path, body, query)
    answer = await self._client.call_api(*request, _request_timeout=3600.0)
    return answer.response


class Stream:
  """An attached pod as the two halves that a `ServedSandbox` speaks over."""

  def __init__(self, socket: aiohttp.ClientWebSocketResponse):
    self._socket = socket
    self._data = bytearray()
    self._outgoing = bytearray()
    self._more, self._room = asyncio.Event(), asyncio.Event()
    self._sending = asyncio.create_task(self._send())
    self.said = b""  # the end of its standard error
    self.status = ""  # what the cluster says of its end

  async def readexactly(self, count: int) -> bytes:
    while len(self._data) < count:
      message = await self._socket.receive()
      if message.type in _CLOSED:
        raise asyncio.IncompleteReadError(bytes(self._data), count)
      if message.type != aiohttp.WSMsgType.BINARY or not message.data:
        continue
      channel, data = message.data[0], message.data[1:]
      if channel == _STDOUT:
        self._data += data
      elif channel == _STDERR:
        self.said = (self.said + data)[-4096:]
      elif channel == _STATUS:
        self.status = _status(data)
    taken = bytes(self._data[:count])
    del self._data[:count]
    return taken

  def write(self, data: bytes) -> None:
    self._outgoing += data
    self._more.set()

  async def drain(self) -> None:
    while len(self._outgoing) > _HIGH:
      if self._sending.done():
        raise ConnectionError("the stream to the pod is closed")
      self._room.clear()
      await self._room.wait()

  async def close(self) -> None:
    self._sending.cancel()
    await asyncio.gather(self._sending, return_exceptions=True)
    try:
      async with asyncio.timeout(1.0):
        await self._socket.close()
    except TimeoutError:
      pass

  async def _send(self) -> None:
    try:
      while True:
        await self._more.wait()
        self._more.clear()
        while self._outgoing:
          chunk = bytes([_STDIN]) + self._outgoing[:_CHUNK]
          del self._outgoing[:_CHUNK]
          await self._socket.send_bytes(chunk)
          self._room.set()
    except (OSError, aiohttp.ClientError):
      pass  # whoever reads the stream sees its end
    finally:
      self._room.set()


_open: WeakKeyDictionary[Any, dict[Cluster, Api]] = WeakKeyDictionary()


async def acquire(cluster: Cluster) -> Api:
  """The loop's `Api` of the cluster; as many `release` must follow."""
  apis = _open.setdefault(asyncio.get_running_loop(), {})
  if cluster not in apis:
    client = await _client(cluster)
    apis.setdefault(cluster, Api(cluster, client))
    if apis[cluster]._client is not client:  # another was quicker
      await client.close()
  apis[cluster].users += 1
  return apis[cluster]


async def release(api: Api) -> None:
  api.users -= 1
  if api.users == 0:
    del _open[asyncio.get_running_loop()][api.cluster]
    await api.close()


@asynccontextmanager
async def connected(cluster: Cluster) -> AsyncIterator[Api]:
  api = await acquire(cluster)
  try:
    yield api
  finally:
    await release(api)


async def _client(cluster: Cluster) -> Any:
  configuration = await _configuration(cluster)
  from kubernetes.aio import client

  configuration.connection_pool_maxsize = 0  # each sandbox holds one connection
  configuration.retries = None  # `call` knows what may be asked again
  return client.ApiClient(configuration)


async def _configuration(cluster: Cluster) -> Any:
  """The official client's: where the cluster is and who we are."""
  try:
    from kubernetes.aio import client, config
  except ImportError:
    raise UserError(
        "the kubernetes backend needs the package kubernetes; install with:"
        ' python3 -m pip --python .venv/bin/python install -e ".[kubernetes]"'
    ) from None
  configuration = client.Configuration()
  file = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
  try:
    if not cluster.context and not Path(file).exists() and _in_cluster():
      config.load_incluster_config(configuration)
    else:
      async with asyncio.timeout(_LOGIN_SECONDS):  # it may run a plugin that logs in
        await config.load_kube_config(
            file, cluster.context or None, configuration, persist_config=False
        )
  except TimeoutError:
    raise UserError(
        f"the login to the cluster of {file} took more than {_LOGIN_SECONDS:g} s: run"
        " kubectl get pods, which asks for the same"
    ) from None
  except Exception as error:  # of YAML, of plugins, of its own: no common class
    raise UserError(
        f"no Kubernetes cluster is known here ({file}: {error}); set KUBECONFIG, or"
        " run in a pod with a service account"
    ) from None
  return configuration


def _in_cluster() -> bool:
  return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def _join(path: str, name: str) -> str:
  return f"{path}/{name}" if name else path


def _refusal(status: int, data: bytes) -> Refused:
  try:
    said = json.loads(data)
    return Refused(status, said.get("reason", ""), said.get("message", str(status)))
  except (ValueError, AttributeError):
    return Refused(status, "", f"HTTP {status}: {data[:200].decode(errors='replace')}")


def _status(data: bytes) -> str:
  """The last message of a stream, a Status; its text, or nothing on success."""
  try:
    status = json.loads(data)
  except ValueError:
    return data[:200].decode(errors="replace")
  return "" if status.get("status") == "Success" else status.get("message", "")


def _seconds(text: str | None) -> float:
  return min(float(text), _CALL_SECONDS) if text and text.isdigit() else 0.0


def condition(item: Manifest, kind: str) -> Manifest:
  """The condition of that type in an object's status, or an empty one."""
  conditions: Iterable[Manifest] = item.get("status", {}).get("conditions", ())
  return next((c for c in conditions if c["type"] == kind), {})
