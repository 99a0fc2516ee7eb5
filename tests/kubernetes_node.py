"""The node of the stand-in of the Kubernetes API: pods are processes of bubblewrap."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

from aiohttp import WSMsgType

from sandbox.backends import bubblewrap

PROCESSES: dict[str, int] = {}  # pod -> id of its bwrap, of every stand-in here


def now():
  return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Pod:
  """The node's side of a pod: its process, its streams, its state."""

  def __init__(self, api, item: dict):
    self.api, self.item, self.name = api, item, item["metadata"]["name"]
    self.process, self.socket, self.log = None, None, b""
    self.cause, self.reason, self.message = None, "Error", ""
    self.running = asyncio.ensure_future(self._run())

  def alive(self):
    return self.process is not None and self.process.returncode is None

  async def kill(self, cause=None, reason="Error", message=""):
    """Kills the container; `cause` is the pod's, `reason` the container's."""
    self.cause, self.reason, self.message = cause, reason, message
    if self.process is None:
      self.running.cancel()
    elif self.process.returncode is None:
      await self._end()
    await asyncio.gather(self.running, return_exceptions=True)

  async def _end(self):
    """Kills bwrap and what it started, which may not be tied to it yet."""
    await bubblewrap.stop_booting(self.process.pid)
    bubblewrap.kill_children(self.process.pid)
    with contextlib.suppress(ProcessLookupError):
      os.kill(self.process.pid, signal.SIGKILL)

  async def _run(self):
    spec, container = self.item["spec"], self.item["spec"]["containers"][0]
    if self.api.unschedulable:
      return self._state("Pending", conditions=[{
          "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
          "message": "0/3 nodes are available: 3 Insufficient memory.",
      }])  # fmt: skip
    if self.api.image_missing or self.api.start_error:
      reason = "ImagePullBackOff" if self.api.image_missing else "RunContainerError"
      waiting = {"reason": reason, "message": f"of {container['image']}"}
      return self._state("Pending", {"waiting": waiting})
    await asyncio.sleep(self.api.start_seconds)
    folder = Path(tempfile.mkdtemp(dir=self.api.folder))
    try:
      self.process = await asyncio.create_subprocess_exec(
          *_command(spec, self.api, folder),
          stdin=asyncio.subprocess.PIPE,
          stdout=asyncio.subprocess.PIPE,
          stderr=asyncio.subprocess.PIPE,
          env={},
          start_new_session=True,
      )
      PROCESSES[self.name] = self.process.pid
      self._state("Running", {"running": {"startedAt": now()}}, conditions=[
          {"type": "Ready", "status": "True"}
      ])  # fmt: skip
      pumps = [
          asyncio.ensure_future(self._pump(1, self.process.stdout)),
          asyncio.ensure_future(self._pump(2, self.process.stderr)),
      ]
      seconds = spec.get("activeDeadlineSeconds", 1e6) / self.api.hurry
      try:
        await asyncio.wait_for(asyncio.shield(self.process.wait()), seconds)
      except TimeoutError:
        self.cause = "DeadlineExceeded"
        await self._end()
      code = await self.process.wait()
      await asyncio.gather(*pumps)
    finally:
      shutil.rmtree(folder, ignore_errors=True)
    ended = {"exitCode": code if code >= 0 else 128 - code, "reason": self.reason}
    if code == 0:
      ended["reason"] = "Completed"
    self._state(
        "Succeeded" if code == 0 else "Failed", {"terminated": ended}, reason=self.cause
    )
    if self.socket is not None:  # whoever listens; the pod's end waits for nobody
      self.leaving = asyncio.ensure_future(self._goodbye(self.socket))

  async def _goodbye(self, socket):
    with contextlib.suppress(ConnectionError):
      await socket.send_bytes(b'\x03{"status": "Success"}')
      await socket.close()

  def _state(self, phase, container=None, *, conditions=(), reason=None):
    status = {"phase": phase, "conditions": list(conditions)}
    if reason:
      status |= {"reason": reason, "message": self.message}
    if container:
      status["containerStatuses"] = [
          {"name": "sandbox", "restartCount": 0, "state": container}
      ]
    self.item["status"] = status
    self.api.changed("pods", self.name)

  async def _pump(self, channel, stream):
    """What nobody is attached to hear is in the log alone."""
    while data := await stream.read(1 << 16):
      self.log = (self.log + data)[-(1 << 16) :]
      while self.api.node_lost and self.alive():
        await asyncio.sleep(0.05)
      if self.socket is not None:
        with contextlib.suppress(ConnectionError):
          await self.socket.send_bytes(bytes([channel]) + data)

  async def attached(self, socket):
    self.socket = socket
    async for message in socket:
      if message.type == WSMsgType.BINARY and message.data[:1] == b"\0":
        if self.api.node_lost:
          continue
        with contextlib.suppress(ConnectionError):
          self.process.stdin.write(message.data[1:])
          await self.process.stdin.drain()
    self.process.stdin.close()  # stdinOnce
    self.socket = None


def _command(spec, api, folder):
  """bwrap for the pod: what its security context and volumes say, and no more."""
  container = spec["containers"][0]
  context, user = container["securityContext"], spec["securityContext"]["runAsUser"]
  assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
  assert context["readOnlyRootFilesystem"]
  assert context["capabilities"] == {"drop": ["ALL"]}
  args = ["bwrap"]
  if os.geteuid() == 0:
    ids = ("--reuid", str(user), "--regid", str(user), "--clear-groups")
    args = ["setpriv", *ids, "--no-new-privs", "--", *args]
  args += [
      "--unshare-all", "--as-pid-1", "--die-with-parent", "--new-session",
      "--unshare-user", "--disable-userns",  # as the runtime's seccomp profile does
      "--uid", str(user), "--gid", str(user), "--hostname", spec["hostname"],
      "--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev",
      "--dir", "/etc",
  ]  # fmt: skip
  if api.network:
    args.append("--share-net")
  for name in ("bin", "sbin", "lib", "lib64"):
    if os.path.islink(f"/{name}"):
      args += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
  for path in ("/etc/alternatives", "/etc/ld.so.cache"):
    args += ["--ro-bind-try", path, path]
  if api.server_file:  # the image has it
    args += ["--ro-bind", str(api.server_file), "/image/server"]
  volumes = {volume["name"]: volume for volume in spec["volumes"]}
  for mount in container["volumeMounts"]:
    volume, path = volumes[mount["name"]], mount["mountPath"]
    # A volume mounted twice is two here: bwrap knows no better.
    if "emptyDir" in volume:
      assert volume["emptyDir"]["medium"] == "Memory"
      size = volume["emptyDir"]["sizeLimit"]
      args += ["--size", size, "--perms", "0777", "--tmpfs", path]
    else:
      files = api.objects["configmaps"][volume["configMap"]["name"]]
      data = {n: base64.b64decode(t) for n, t in files.get("binaryData", {}).items()}
      data |= {n: t.encode() for n, t in files.get("data", {}).items()}
      staged = folder / mount["name"]
      staged.mkdir(exist_ok=True)
      for name, content in data.items():
        (staged / name).write_bytes(content)
        (staged / name).chmod(volume["configMap"]["defaultMode"])
      staged.chmod(0o755)
      folder.chmod(0o755)
      args += ["--ro-bind", str(staged / mount.get("subPath", "")), path]
  args += ["--remount-ro", "/dev", "--remount-ro", "/"]
  return [*args, "--chdir", container["workingDir"], "--", *container["command"]]
