"""Sandboxes of Kubernetes, against a stand-in of its API whose pods are real
processes. What every backend promises is in test_contract.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import kubernetes.aio  # its second must not be one of a sandbox's start
import kubernetes_validate
import pytest

from clawgym_jax.contracts.errors import UserError
from sandbox.backends import Bounds, SandboxError, SandboxLost, with_options
from sandbox.backends.kubernetes import (
    OPTIONS,
    Cluster,
    KubernetesSandbox,
    check,
    reap_pods,
)
from sandbox.backends.kubernetes import manifests, owners, sandbox as backend
from tests import docs, kubernetes_node
from tests.conftest import ROOT

BOUNDS = Bounds(boot_seconds=20.0, grace_seconds=3.0, lifetime_seconds=60.0)
QUICK = Cluster(boot_seconds=20.0, probe_network=False)
VERSIONS = sorted(
    path.name.removeprefix("v").removesuffix("-local")
    for path in Path(kubernetes_validate.__file__).parent.glob("*/v*-local")
)


@pytest.fixture
def api(kubernetes, monkeypatch):
  monkeypatch.setattr("sandbox.backends.kubernetes.api._PAUSE_SECONDS", 0.02)
  return kubernetes


def run(body, files=None, cluster=QUICK, bounds=BOUNDS, **settings):
  settings |= dict(cluster=cluster, bounds=bounds)

  async def whole():
    async with KubernetesSandbox(**settings) as sandbox:
      await sandbox.start(files or {})
      return await body(sandbox)

  return asyncio.run(whole())


async def nothing(sandbox):
  pass


async def echo(sandbox):
  assert (await sandbox.exec("echo hi", 5)).output == "hi\n"


def the_pod(api):
  (pod,) = api.objects["pods"].values()
  return pod


def wanted_pod(cluster=QUICK, folders=("/checks",), user=20_001):
  server, expires = manifests.Server(b"server"), 1_800_000_000
  meta = manifests.metadata("sandbox-1", "run 1/ü", owners.controller(), expires)
  return manifests.pod(backend.spec(cluster, BOUNDS, folders, user, server), meta)


# What is asked of a cluster.


@pytest.mark.parametrize(
    "version",
    [v if i % 4 == 0 else pytest.param(v, marks=pytest.mark.slow)
     for i, v in enumerate(VERSIONS)],
)  # fmt: skip
def test_manifests_are_valid(version):
  clusters = (
      QUICK,
      Cluster(runtime_class="kata", node_pids_limit=256, server="/bin/server"),
      Cluster(user_namespaces=True, node_selector={"pool": "sandboxes"}),
  )
  found = [wanted_pod(cluster) for cluster in clusters]
  found += [manifests.no_network(), manifests.role()]
  found += [manifests.Server(b"x" * 1000).config_map()]
  for manifest in found:
    if "hostUsers" in manifest.get("spec", {}) and version < "1.26":
      continue
    kubernetes_validate.validate(manifest, version, strict=True)
  broken = wanted_pod()
  broken["spec"]["automountServiceAccountToken"] = "no"
  with pytest.raises(kubernetes_validate.ValidationError):
    kubernetes_validate.validate(broken, version, strict=True)


def test_a_pod_can_do_nothing_that_it_need_not(api):
  async def body(sandbox):
    spec = the_pod(api)["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "privileged": False,
        "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    context = spec["securityContext"]
    assert context["runAsNonRoot"] and context["runAsUser"] >= 20_000
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not spec["automountServiceAccountToken"] and not spec["enableServiceLinks"]
    assert spec["restartPolicy"] == "Never"
    assert spec["terminationGracePeriodSeconds"] == 0
    assert spec["activeDeadlineSeconds"] == 60 + 20  # life and boot
    assert container["stdin"] and container["stdinOnce"]
    resources = container["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"].keys() == {"cpu", "memory", "ephemeral-storage"}
    tmpfs = [v["emptyDir"] for v in spec["volumes"] if "emptyDir" in v]
    assert all(v["medium"] == "Memory" and int(v["sizeLimit"]) > 0 for v in tmpfs)
    files = sum(int(v["sizeLimit"]) for v in tmpfs)
    assert int(resources["limits"]["memory"]) > files + BOUNDS.memory
    policy = api.objects["networkpolicies"][manifests.POLICY]
    chosen = policy["spec"]["podSelector"]["matchLabels"].items()
    assert chosen <= the_pod(api)["metadata"]["labels"].items()
    assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    assert not {"ingress", "egress"} & policy["spec"].keys()
    said = await sandbox.exec(
        "touch /x /usr/x; id -u; grep CapEff /proc/self/status", 5
    )
    assert said.output.count("Read-only") == 2
    assert f"{context['runAsUser']}\nCapEff:\t0000000000000000" in said.output
    assert sandbox.limits["processes"] and sandbox.limits["inodes"].startswith("none")

  run(body, run_id="run-7")


def test_a_run_is_on_its_pods(api):
  async def body(sandbox):
    meta = the_pod(api)["metadata"]
    assert meta["labels"][manifests.RUN] == "run-7"
    assert not owners.orphaned(meta["annotations"][manifests.CONTROLLER])
    life = int(meta["annotations"][manifests.EXPIRES]) - time.time()
    assert 60 < life <= 80
    assert api.token not in str(api.objects)
    seen = await sandbox.exec("env; cat /proc/*/environ /proc/*/cmdline; ls -R /run", 5)
    assert api.token not in seen.output

  run(body, run_id="run-7")


def test_it_refuses_where_nothing_bounds_a_fork_bomb():
  for cluster in (
      Cluster(runtime_class="gvisor"), Cluster(user=1000), Cluster(warm_pool="pool"),
  ):  # fmt: skip
    with pytest.raises(UserError, match="fork bomb.*podPidsLimit.*node_pids_limit"):
      KubernetesSandbox(cluster=cluster)
  KubernetesSandbox(cluster=Cluster(runtime_class="gvisor", node_pids_limit=256))
  KubernetesSandbox(cluster=Cluster(user=1000, user_namespaces=True))


def test_pods_that_share_a_user_are_not_counted_together():
  """Else one sandbox's processes would be missing to another's."""

  def counted(**options):
    cluster = Cluster(node_pids_limit=256, **options)
    (container,) = wanted_pod(cluster)["spec"]["containers"]
    return any(a.startswith("--limit=nproc=") for a in container["command"])

  assert counted() and counted(user=1000, user_namespaces=True)
  assert not counted(user=1000) and not counted(warm_pool="pool")
  users = {KubernetesSandbox(cluster=QUICK)._user() for _ in range(100)}
  assert len(users) == 100


def test_options_come_as_text():
  options = {
      "namespace": "n", "node_pids_limit": "256", "boot_seconds": "90",
      "probe_network": "false", "node_selector": "a=b,c/d=e",
  }  # fmt: skip
  assert Cluster.parse(options) == Cluster(
      namespace="n", node_pids_limit=256, boot_seconds=90.0, probe_network=False,
      node_selector={"a": "b", "c/d": "e"},
  )  # fmt: skip
  for name, value in (("node_pids_limit", "many"), ("probe_network", "maybe")):
    with pytest.raises(UserError, match=f"{name}.*{value}.*write it as"):
      Cluster.parse({name: value})
  for value in ("nan", "inf", "-1"):
    with pytest.raises(UserError, match=f"boot_seconds .* can't be {value}"):
      Cluster.parse({"boot_seconds": value})
  with_options("kubernetes", **dict.fromkeys(OPTIONS, "1"))  # a flag takes them all


# Life and death.


def test_starts_work_and_leave_nothing(api):
  async def body(sandbox):
    result = await sandbox.exec("cat in; pwd; sleep 100 &", 5)
    assert result.output == "1/workspace\n"
    async with await sandbox.fork() as other:
      await other.write("two", b"2")
      assert await other.diff() == {"two": "added"}
    assert len(api.objects["pods"]) == 1

  run(body, {"in": b"1"})
  assert api.objects["pods"] == {} and api.living() == []
  made = [path for method, path in api.calls if method == "POST"]
  assert sum("networkpolicies" in path for path in made) == 1
  assert sum("configmaps" in path for path in made) == 2


def test_the_server_may_be_in_the_image(api):
  api.server_file = api.folder / "server"
  shutil.copy(backend.build.server_binary(), api.server_file)
  run(echo, cluster=Cluster(server="/image/server", probe_network=False))
  assert not any("server" in name for name in api.objects["configmaps"])


def test_a_lifetime_ends_the_pod_and_says_so(api):
  async def body(sandbox):
    with contextlib.suppress(SandboxLost):
      await sandbox.exec("sleep 30", 20)
    with pytest.raises(SandboxLost, match="ended"):
      await sandbox.exec("echo", 5)

  run(body, bounds=Bounds(lifetime_seconds=1, grace_seconds=2))


@pytest.mark.parametrize("how", ["killed", "hung"])
def test_p36_a_dead_client_leaves_nothing_running(api, how):
  """By the stream's end; where the server does not see that, by the deadline."""
  api.hurry = 160.0 if how == "hung" else 1.0  # 4 seconds of 640
  program = (
      "import asyncio\n"
      "import kubernetes.aio\n"
      "from sandbox.backends import Bounds, open_sandbox\n"
      "async def main():\n"
      "  bounds = Bounds(boot_seconds=40, lifetime_seconds=600)\n"
      "  backend = 'kubernetes?boot_seconds=40&probe_network=false'\n"
      "  s = open_sandbox(backend, bounds=bounds)\n"
      "  await s.start({'a': b'1'})\n"
      "  await s.exec('setsid sleep 1000 &')\n"
      "  print('up', flush=True)\n"
      "  await asyncio.sleep(600)\n"
      "asyncio.run(main())\n"
  )
  client = subprocess.Popen(
      [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
  )
  try:
    assert client.stdout.readline() == "up\n"
    (name,) = api.living()
    if how == "hung":
      os.killpg(kubernetes_node.PROCESSES[name], signal.SIGSTOP)
      (server,) = children(kubernetes_node.PROCESSES[name])
      os.kill(server, signal.SIGSTOP)
    client.kill()
    api.wait_until_empty()
    reason = the_pod(api)["status"].get("reason")
    assert reason == ("DeadlineExceeded" if how == "hung" else None)
  finally:
    client.kill()
    client.wait()
  assert asyncio.run(reap_pods(QUICK))["removed"] == 1
  api.wait_until_deleted()


def children(pid):
  return map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def test_reaping_leaves_others_alone(api):
  async def body(sandbox):
    other = "0a1b:4026531836:1:1"  # of another machine
    gone = owners.controller().rpartition(":")[0] + ":1"  # a process that was here
    for name, controller, life in (
        ("theirs", other, 100), ("theirs-over", other, -1000), ("dead", gone, 100),
        ("mine-over", owners.controller(), -1000),
    ):  # fmt: skip
      meta = manifests.metadata(name, "run", controller, int(time.time() + life))
      api.put("pods", {"metadata": meta, "spec": {}})
    api.put("pods", {"metadata": {"name": "someone"}, "spec": {}})
    assert await reap_pods(QUICK) == {"removed": 3, "kept": 2, "refused": 0}
    assert {"theirs", "someone"} <= api.objects["pods"].keys()
    await echo(sandbox)

  run(body)


@pytest.mark.parametrize("phase", ["starting", "running"])
def test_a_start_can_be_cancelled_at_any_point(api, phase):
  api.start_seconds = 0.2 if phase == "starting" else 0.0

  async def one(delay):
    async with KubernetesSandbox(cluster=QUICK, bounds=BOUNDS) as sandbox:
      starting = asyncio.create_task(sandbox.start({"a": b"1"}))
      await asyncio.sleep(delay)
      starting.cancel()
      done, _ = await asyncio.wait([starting], timeout=10)
      assert done

  async def whole():
    await asyncio.gather(*(one(step * 0.01) for step in range(24)))

  asyncio.run(whole())
  assert api.objects["pods"] == {} and api.living() == []


def test_p34_a_lost_node_ends_the_sandbox_within_its_bound(api, monkeypatch):
  monkeypatch.setattr(backend, "_FORCE_SECONDS", 0.5)

  async def body(sandbox):
    api.node_lost = True
    started = time.monotonic()
    with pytest.raises(SandboxLost, match="did not answer"):
      await sandbox.exec("echo", 0.5)
    with pytest.raises(SandboxLost):
      await sandbox.exec("echo", 0.5)
    assert time.monotonic() - started < 5

  run(body, bounds=Bounds(grace_seconds=1.0))
  assert api.objects["pods"] == {}  # forced: its node will not confirm


@pytest.mark.parametrize(
    "pod, message, container, error",
    [
        ("Evicted", "the node was low on memory", "Error", SandboxLost),
        ("Preempting", "", "Error", SandboxLost),
        (None, "", "OOMKilled", SandboxError),
        ("Evicted", "ephemeral local storage usage exceeds", "Error", SandboxError),
    ],
)
def test_p47_an_end_is_the_platform_s_or_of_what_is_inside(
    api, pod, message, container, error
):
  async def body(sandbox):
    name = the_pod(api)["metadata"]["name"]
    api.run(api.pods[name].kill(pod, container, message))
    says = f"is Failed, {pod}" if error is SandboxLost else "out of memory"
    for _ in range(2):
      with pytest.raises(error, match=says):
        await sandbox.exec("echo", 5)

  run(body)


@pytest.mark.parametrize(
    "trouble, error, says",
    [
        ("unschedulable", SandboxLost, "did not run within.*Insufficient memory"),
        ("image_missing", UserError, "can't get the image python:3.12-slim.*image="),
        ("start_error", SandboxLost, "can't start .RunContainerError"),
    ],
)
def test_a_start_that_fails_says_why(api, trouble, error, says):
  setattr(api, trouble, True)
  boot = 2.0 if trouble == "unschedulable" else 20.0
  cluster = Cluster(boot_seconds=boot, probe_network=False)
  with pytest.raises(error, match=says):
    run(nothing, cluster=cluster, bounds=Bounds(boot_seconds=boot))
  assert api.objects["pods"] == {}


# The API's own trouble.


@pytest.mark.parametrize(
    "method, part, what",
    [
        ("POST", "/pods", 503), ("POST", "/pods", "drop"), ("POST", "/pods", "lose"),
        ("GET", "watch=true", "drop"), ("GET", "watch=true", 500),
        ("DELETE", "/pods/", 429), ("DELETE", "/pods/", "lose"),
        ("GET", "networkpolicies", 500), ("GET", "/attach", 500),
        ("GET", "/attach", "drop"),
    ],
)  # fmt: skip
def test_passing_trouble_is_passed_over_and_makes_one_pod(api, method, part, what):
  api.start_seconds = 0.1
  times = 1 if what == "lose" else 2
  api.faults.append([method, part, what, times])
  run(echo)
  assert api.faults[0][3] < times, "the fault did not come up"
  assert api.most == 1 and api.objects["pods"] == {}


def test_p33_a_silent_api_server_is_lost_within_its_bound(api, monkeypatch):
  monkeypatch.setattr("sandbox.backends.kubernetes.api._TRY_SECONDS", 0.3)
  api.faults.append(["POST", "/pods", "hang", 100])
  started = time.monotonic()
  with pytest.raises(SandboxLost, match="did not answer POST|did not start"):
    run(nothing)
  assert time.monotonic() - started < 19


def test_a_watch_that_hangs_or_ends_is_taken_up_again(api, monkeypatch):
  monkeypatch.setattr("sandbox.backends.kubernetes.api._TRY_SECONDS", 0.3)
  api.start_seconds = 0.5
  api.faults.append(["GET", "watch=true", "hang", 1])
  run(echo)
  api.faults.append(["GET", "watch=true", 200, 1000])  # an end without an event
  started, before = time.monotonic(), len(api.calls)
  run(echo)
  asked = sum(path.endswith("/pods") for _, path in api.calls[before:])
  assert asked < 5 + (time.monotonic() - started) / 0.02, "it pauses between"


def test_a_login_that_hangs_is_said(api, monkeypatch):
  monkeypatch.setattr("sandbox.backends.kubernetes.api._LOGIN_SECONDS", 0.3)
  config = json.loads(api.kubeconfig.read_text())
  plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sleep"}
  config["users"][0]["user"] = {"exec": {**plugin, "args": ["20"]}}
  api.kubeconfig.write_text(json.dumps(config))
  with pytest.raises(UserError, match="login to the cluster.*took more than 0.3 s"):
    check()


def test_lasting_trouble_has_a_cause(api):
  api.faults.append(["POST", "/pods", 500, 100])
  with pytest.raises(SandboxLost, match="etcd leader"):
    run(nothing)
  assert 100 - api.faults.pop()[3] == 5, "tries are bounded"
  for fault, says in (
      (["POST", "/pods", 403, 1], "Give us the Role of docs/kubernetes.md"),
      (["GET", "/attach", 403, 1], "Role of docs"),
      (["POST", "/pods", 422, 1], "Change the options"),
  ):
    api.faults[:] = [fault]
    with pytest.raises(UserError, match=says):
      run(nothing)
  with pytest.raises(UserError, match="kubectl create namespace"):
    run(nothing, cluster=Cluster(namespace="nowhere"))
  assert api.objects["pods"] == {}


def test_a_stop_never_raises(api, monkeypatch):
  monkeypatch.setattr(backend, "_END_SECONDS", 0.5)

  async def body(sandbox):
    api.faults.append(["DELETE", "/pods/", 500, 100])

  run(body)
  (pod,) = api.objects["pods"].values()
  assert pod["status"]["phase"] in ("Succeeded", "Failed"), "its stream ended it"


def test_check_says_what_to_do(api, monkeypatch):
  check()
  api.write_kubeconfig("another-token")
  with pytest.raises(UserError, match="renew the credentials") as error:
    check()
  assert "another-token" not in str(error.value)
  monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
  with pytest.raises(UserError, match="no Kubernetes cluster is known.*KUBECONFIG"):
    check()


def test_credentials_are_renewed(api):
  async def body(sandbox):
    api.token = "another-token"
    api.write_kubeconfig(api.token)

  run(body)
  assert api.objects["pods"] == {}


# The guide.


@pytest.mark.slow
def test_the_guide_s_commands(api, tmp_path):
  once, running, pools = docs.blocks("kubernetes.md")
  docs.run_block(once, tmp_path)
  docs.run_block(running, tmp_path)
  summary = json.loads((tmp_path / "runs/oracle/summary.json").read_text())
  assert summary["mean_reward"] == 1.0
  made = [path for method, path in api.calls if method == "POST"]
  assert sum(path.endswith("/pods") for path in made) == 2, "one to act, one to judge"
  docs.run_block(pools, tmp_path)
  names = {}
  for file in ("sandboxes.json", "pool.json"):
    for item in json.loads((tmp_path / file).read_text())["items"]:
      names[item["kind"]] = item
      if "agents.x-k8s.io" not in item["apiVersion"]:
        kubernetes_validate.validate(item, VERSIONS[-1], strict=True)
  assert names["SandboxWarmPool"]["spec"]["replicas"] == 8
  template = names["SandboxTemplate"]["spec"]
  assert template["networkPolicyManagement"] == "Unmanaged"
  mounts = template["podTemplate"]["spec"]["containers"][0]["volumeMounts"]
  assert "/checks" in {mount["mountPath"] for mount in mounts}
  # What pods of today's code need is what the administrator was given.
  policy, server = names["NetworkPolicy"], backend.server_of(QUICK).config_map()
  assert policy["spec"] == manifests.no_network()["spec"]
  assert names["ConfigMap"]["metadata"]["name"] == server["metadata"]["name"]
