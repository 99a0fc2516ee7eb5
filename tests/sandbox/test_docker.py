"""What is docker's own: its containers, its daemon's troubles, what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from clawgym_jax.contracts.errors import UserError
from sandbox.backends import (
    Bounds,
    SandboxLost,
    check_backend,
    docker,
    docker_image,
    labels,
    open_sandbox,
    with_options,
)
from tests import docs
from tests.conftest import ROOT

# Opens sandboxes, says so, and waits for its death.
_CONTROLLER = """
import asyncio, sys
from sandbox.backends import open_sandbox

async def one(run_id):
  sandbox = open_sandbox("docker", run_id=run_id)
  await sandbox.start()
  await sandbox.spawn("setsid sleep 1000")
  return sandbox

async def main():
  held = await asyncio.gather(*(one(sys.argv[1]) for _ in range(int(sys.argv[2]))))
  print(len(held), flush=True)
  await asyncio.sleep(1000)

asyncio.run(main())
"""


def test_a_container_has_no_more_than_it_needs(docker_host):
  async def whole():
    async with open_sandbox(
        "docker", bounds=Bounds(memory=256 << 20, processes=20), run_id="r1"
    ) as sandbox:
      await sandbox.start()
      found = docker_host.client.inspect_container(sandbox.name)
      inside = await sandbox.exec("cat /sys/fs/cgroup/memory/memory.limit_in_bytes", 5)
      return sandbox.limits, found, inside.output

  limits, found, memory = asyncio.run(whole())
  host = found["HostConfig"]
  assert host["NetworkMode"] == "none" and host["IpcMode"] == "none"
  assert host["ReadonlyRootfs"] and not host["Privileged"]
  assert host["CapDrop"] == ["ALL"] and not host["CapAdd"]
  assert host["SecurityOpt"] == ["no-new-privileges"]
  assert host["PidsLimit"] == 21 and host["NanoCpus"] == 1_000_000_000
  assert host["Memory"] == host["MemorySwap"] < 1 << 30
  assert limits["memory"].startswith("cgroup v")
  if limits["memory"] == "cgroup v1":
    assert int(memory) == host["Memory"]
  assert host["LogConfig"]["Type"] == "none"  # the stream would fill the disk
  assert found["Config"]["User"].split(":")[0] not in ("", "0", "1000")
  assert all(mount["RW"] is False for mount in found["Mounts"])
  mark = labels.Label.parse(found["Config"]["Labels"][docker.LABEL])
  assert (mark.run_id, mark.pid) == ("r1", os.getpid())


def test_sandboxes_use_no_networks(docker_host):  # P31
  before = {network["Name"] for network in docker_host.client.networks()}

  async def one():
    async with open_sandbox("docker") as sandbox:
      await sandbox.start()
      seen = await sandbox.exec("cat /proc/net/dev | grep -c :; cat /proc/net/route", 5)
      during = {network["Name"] for network in docker_host.client.networks()}
      return seen.output.splitlines(), during

  async def whole(count):
    return await asyncio.gather(*(one() for _ in range(count)))

  for (interfaces, *routes), during in asyncio.run(whole(6)):
    assert during == before and routes[1:] == []
    assert int(interfaces) == 1  # lo


@pytest.mark.slow
def test_64_at_once(docker_host):  # P31
  async def one():
    async with open_sandbox("docker", bounds=Bounds(boot_seconds=240)) as sandbox:
      await sandbox.start({"n": b"1"})
      return (await sandbox.exec("cat n", 60)).output

  async def whole():
    return await asyncio.gather(*(one() for _ in range(64)))

  assert asyncio.run(whole()) == ["1"] * 64


def test_volumes_of_an_image_are_bounded_and_go(docker_host, tmp_path):
  client = docker_host.client
  (tmp_path / "Dockerfile").write_text(
      f"FROM {docker.DEFAULT_IMAGE}\nENV OF_THE_IMAGE=1\nVOLUME /data\nUSER 0\n"
      'WORKDIR /etc\nENTRYPOINT ["/bin/false"]\nHEALTHCHECK CMD /bin/false\n'
  )
  said = b"".join(client.build(path=str(tmp_path), tag="volumes:1", rm=True))
  assert b"Successfully" in said, said

  async def whole():
    async with open_sandbox("docker?image=volumes:1", bounds=Bounds(disk=8 << 20)) as s:
      await s.start()
      assert len(client.volumes()["Volumes"] or []) == 0
      return await s.exec(
          "id -un; pwd; head -c 20M /dev/zero > /data/f || echo full; env", 10
      )

  result = asyncio.run(whole())
  assert result.output.startswith("user\n/workspace\n") and "full" in result.output
  assert "OF_THE_IMAGE" not in result.output
  client.remove_image("volumes:1")


def _controller(run_id, count):
  return subprocess.Popen(
      [sys.executable, "-c", _CONTROLLER, run_id, str(count)],
      cwd=ROOT, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)},
  )  # fmt: skip


def test_kill_9_of_the_controller_leaves_nothing(docker_host):  # P30, P36
  with _controller("dies", 3) as dies, _controller("lives", 1) as lives:
    try:
      assert dies.stdout.readline() == b"3\n" and lives.stdout.readline() == b"1\n"
      assert len(docker_host.containers()) == 4
      dies.kill()
      dies.wait()
      _until(lambda: len(docker_host.containers()) == 1)
      assert docker.reap_containers() == {"removed": 0, "kept": 1, "refused": 0}
    finally:
      dies.kill()
      lives.kill()
  _until(lambda: not docker_host.containers())


@pytest.mark.parametrize("moment", [0.1, 0.5])
def test_kill_9_while_sandboxes_start(docker_host, moment):
  """A container that was made and never started ends by nobody's stdin."""
  with _controller("dies", 4) as dies:
    _until(docker_host.containers)
    time.sleep(moment)
    dies.kill()

  def reaped():
    docker.reap_containers()
    return not docker_host.containers()

  _until(reaped)
  time.sleep(0.3)  # for what the daemon was still asked to make
  _until(reaped)


def test_reaping_removes_what_is_over_and_nothing_else(docker_host, monkeypatch):
  client = docker_host.client
  mine = labels.label("mine", 3600)
  dead = mine.replace(f":{os.getpid()}:", ":4194399:")
  elsewhere = mine.replace(mine.split(":")[2], "1")
  late = elsewhere.rpartition(":")[0] + f":{int(time.time()) - 200}"
  texts = dict(mine=mine, dead=dead, elsewhere=elsewhere, late=late, odd="x:y")
  for name, text in texts.items():
    client.create_container_from_config(
        {
            "Image": docker.DEFAULT_IMAGE,
            "Cmd": ["sleep", "1000"],
            "Labels": {docker.LABEL: text},
            "Volumes": {"/data": {}},
            "HostConfig": {"NetworkMode": "none"},
        },
        name,
    )
  client.create_container_from_config(
      {"Image": docker.DEFAULT_IMAGE, "Cmd": ["true"]}, "not-ours"
  )
  client.start("dead")
  try:
    assert docker.reap_containers() == {"removed": 2, "kept": 3, "refused": 0}
    assert set(docker_host.containers()) == {"mine", "elsewhere", "odd", "not-ours"}
    assert len(client.volumes()["Volumes"]) == 3
    # The first start of a process reaps, too.
    client.create_container_from_config(
        {
            "Image": docker.DEFAULT_IMAGE,
            "Cmd": ["true"],
            "Labels": {docker.LABEL: dead},
        },
        "dead",
    )
    code = "import asyncio; from sandbox.backends import open_sandbox as o\n"
    code += "async def f():\n  async with o('docker') as s: await s.start()\n"
    code += "asyncio.run(f())"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    assert "dead" not in docker_host.containers()
  finally:
    for name in docker_host.containers():
      client.remove_container(name, v=True, force=True)
  monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
  assert sum(docker.reap_containers().values()) == 0


def test_a_full_disk_is_no_fault_of_the_agent(docker_host, monkeypatch):  # P30
  async def start():
    async with open_sandbox("docker") as sandbox:
      await sandbox.start()

  asyncio.run(start())
  fill = docker_host.folder / "data" / "fill"
  with open(fill, "wb") as file, contextlib.suppress(OSError):
    while True:
      file.write(bytes(1 << 20))
  try:
    with pytest.raises(UserError, match="MiB left, .*docker system prune"):
      check_backend("docker")
    with pytest.raises(SandboxLost, match="MiB left"):
      asyncio.run(start())
    monkeypatch.setattr(docker, "_FREE_DISK", 0)
    with pytest.raises(SandboxLost, match="no space left on device"):
      asyncio.run(start())
  finally:
    fill.unlink()


def test_a_daemon_that_hangs_or_dies_is_lost_within_its_bound(docker_host):
  bounds = Bounds(boot_seconds=1.5, grace_seconds=1)
  daemon = docker_host.process

  async def whole():
    async with open_sandbox("docker", bounds=Bounds(grace_seconds=1)) as sandbox:
      await sandbox.start()
      pid = docker_host.client.inspect_container(sandbox.name)["State"]["Pid"]
      running = asyncio.create_task(sandbox.exec("sleep 1000", 1000))
      await asyncio.sleep(0.2)
      daemon.send_signal(signal.SIGSTOP)
      async with _within(10), open_sandbox("docker", bounds=bounds) as other:
        with pytest.raises(SandboxLost, match="did not start within"):
          await other.start()
      async with _within(10):
        with pytest.raises(SandboxLost, match="in time"):
          await sandbox.exec("true", 0.5)
      daemon.send_signal(signal.SIGCONT)
      daemon.kill()
      async with _within(10):
        with pytest.raises(SandboxLost):
          await running
      async with _within(10), open_sandbox("docker", bounds=bounds) as other:
        with pytest.raises(SandboxLost, match="did not start the sandbox"):
          await other.start()
    assert os.path.exists(f"/proc/{pid}")  # nobody is there to end it

  try:
    asyncio.run(whole())
    docker._daemon.cache_clear()
    with pytest.raises(UserError, match="no docker daemon answers"):
      check_backend("docker")
  finally:
    daemon.kill()
    daemon.wait()
    docker_host.start()
  _until(lambda: not docker_host.containers())  # the daemon's, which finds it again


@contextlib.asynccontextmanager
async def _within(seconds):
  started = time.monotonic()
  yield
  assert time.monotonic() - started < seconds


def test_check_says_what_to_do(docker_host, monkeypatch):
  check_backend("docker")
  for backend, message in (
      ("docker?image=nothing:1", "docker pull nothing:1"),
      ("docker?runtime=runsc", "no runtime 'runsc', only .*runc"),
      ("docker?cpus=0", "at least 0.01"),
      ("docker?images=x", "no option 'images', only image, runtime, cpus"),
      ("bubblewrap?image=x", "bubblewrap has no option 'image'"),
      ("lxc", "there is no backend 'lxc'"),
  ):
    with pytest.raises(UserError, match=message):
      check_backend(backend)
  docker_host.client.tag(docker.DEFAULT_IMAGE, "kept", "1")
  docker_host.client.remove_image(docker.DEFAULT_IMAGE)
  docker._daemon.cache_clear()
  with pytest.raises(UserError, match="python -m sandbox.backends.docker_image"):
    check_backend("docker")
  docker_host.client.tag("kept:1", *docker.DEFAULT_IMAGE.split(":"))
  docker_host.client.remove_image("kept:1")
  monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
  with pytest.raises(UserError, match="may be another machine"):
    check_backend("docker")
  monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
  with pytest.raises(UserError, match="apt install docker.io"):
    check_backend("docker")


def test_options_are_part_of_a_backend_s_name():
  assert with_options("docker", image="", runtime="") == "docker"
  image = "registry.example:5000/team/claw:1"
  backend = with_options("docker", image=image, runtime="runsc")
  assert backend == f"docker?image={image}&runtime=runsc"
  sandbox = open_sandbox(backend, run_id="r")
  assert sandbox._settings["image"] == image
  assert sandbox._settings["runtime"] == "runsc"
  with pytest.raises(UserError, match="no option 'image'"):
    with_options("bubblewrap", image="x")


def test_an_image_of_packages_that_are_not_here():
  found = docker_image.closure(["python3"])
  assert {"bash", "coreutils", "libc6", "python3"} <= set(found)
  with pytest.raises(UserError, match="apt install no-such-package"):
    docker_image.closure(["no-such-package"])


@pytest.mark.slow
def test_the_guide(docker_host, tmp_path):
  for block in docs.blocks("sandboxes.md"):
    docs.run_block(block, tmp_path)
  for backend in ("bubblewrap", "docker"):
    summary = json.loads((tmp_path / "runs" / backend / "summary.json").read_text())
    assert summary["scored"] == 2 and summary["mean_reward"] == 1.0


@pytest.mark.slow
def test_one_command_measures_both_backends(dockerd):
  """Without DOCKER_HOST it runs a daemon of its own, and ends it."""
  env = {n: v for n, v in os.environ.items() if n != "DOCKER_HOST"}
  said = subprocess.check_output(
      [
          sys.executable, "-m", "benchmarks.sandbox", "--backends=bubblewrap,docker",
          "--samples=5", "--seconds=.2", "--concurrency=1", "--alive=8", "--json",
      ],
      cwd=ROOT, env=env, text=True, timeout=200,
  )  # fmt: skip
  figures = json.loads(said.splitlines()[-1])
  assert figures["docker / bubblewrap"]["first p50 ms"] > 1
  assert dockerd.containers() == []


def _until(true, seconds=30):
  end = time.monotonic() + seconds
  while not true():
    assert time.monotonic() < end
    time.sleep(0.05)
