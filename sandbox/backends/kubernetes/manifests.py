"""What is asked of a cluster, as plain manifests, and what a pod must still have.

A pod is one sandbox: process 1 of its only container is the sandbox's server,
its root is read-only, all it can write is tmpfs of a size, and nothing of the
cluster (token, service names, DNS) is inside. `objections` compares with this what the
cluster really made.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import platform
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

from clawgym_jax.contracts.errors import UserError
from sandbox.backends.base import WORKSPACE, Bounds

Manifest = dict[str, Any]

CONTAINER = "sandbox"
MARK = "clawgym-jax/sandbox"  # label of every pod of ours
RUN = "clawgym-jax/run"  # label; of a claim's pod an annotation
CONTROLLER = "clawgym-jax/controller"  # annotation
EXPIRES = "clawgym-jax/expires"  # annotation, unix seconds
POLICY = "clawgym-sandboxes-no-network"
CLAIMS = ("extensions.agents.x-k8s.io", "v1beta1", "sandboxclaims")
SANDBOXES = ("agents.x-k8s.io", "v1beta1", "sandboxes")
CLAIM_UID = "agents.x-k8s.io/claim-uid"  # label that its controller gives the pod
POD_NAME = "agents.x-k8s.io/pod-name"  # annotation of a Sandbox

# Of pods: below 65,536, as user namespaces map no more.
FIRST_USER, USERS = 20_000, 8192

_SERVER_FOLDER = "/opt/clawgym"
_REPORTS = "/run/sandbox"
_REPORTS_SIZE = 1 << 20
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MODES = ("enforce", "audit", "warn")
_MAX_STAGED = 1 << 20  # of a ConfigMap
_INODE = 1 << 10  # bytes of kernel memory, about, of a file in tmpfs
# What a core can fill between two looks of the server at memory, and its own.
_SPARE = 256 << 20
_LOGS = 256 << 20  # what the node may keep of the stream in the container's log


@dataclass(frozen=True)
class Cluster:
  """Where sandboxes run and how: the options of --backend=kubernetes?….

  Attributes:
    namespace: of its own, best: its quota bounds the sandboxes.
    context: of the kubeconfig; empty is the current one, or in a pod its own.
    image: has a shell at /bin/bash or /bin/sh, and what tasks use.
    server: the sandbox server's path in the image; empty stages this one's own
      in a ConfigMap.
    runtime_class: such as gvisor or kata; empty is the cluster's default.
    node_pids_limit: the kubelet's podPidsLimit, where its nodes have one.
    user: user id inside; 0 gives each pod one of its own.
    user_namespaces: pods get their own (hostUsers: false).
    warm_pool: SandboxWarmPool of agent-sandbox to claim from; empty makes pods.
    cpu: cores, as Kubernetes writes quantities.
    node_selector: labels of the nodes to use.
    boot_seconds: a pod's start may take as long; pulling an image is part of it.
    probe_network: try once whether the network really is shut.
  """

  namespace: str = "clawgym"
  context: str = ""
  image: str = "python:3.12-slim"
  server: str = ""
  runtime_class: str = ""
  node_pids_limit: int = 0
  user: int = 0
  user_namespaces: bool = False
  warm_pool: str = ""
  cpu: str = "1"
  node_selector: dict[str, str] = field(default_factory=dict, hash=False)
  boot_seconds: float = 120.0
  probe_network: bool = True

  @classmethod
  def parse(cls, options: dict[str, Any]) -> Self:
    """From the options of a --backend flag, which are text; `UserError` if wrong."""
    values: dict[str, Any] = {}
    for name, value in options.items():
      kind = type(getattr(cls(), name))
      try:
        values[name] = _READ[kind](value) if isinstance(value, str) else value
      except (KeyError, ValueError):
        raise UserError(
            f"the option {name} of the backend kubernetes is {value!r};"
            f" write it as {_EXAMPLES[kind]}"
        ) from None
      number = values[name] if kind in (int, float) else 0
      if not (0 <= number < math.inf):
        raise UserError(f"the option {name} of the backend kubernetes can't be {value}")
    return cls(**values)

  @property
  def counted_alone(self) -> bool:
    """Whether the kernel, which counts processes by user, counts one pod's alone."""
    return self.user_namespaces or not (self.user or self.warm_pool)

  def require_bounded_processes(self) -> None:
    """Raises `UserError` where nothing would bound a fork bomb.

    A pod spec can't. The server's RLIMIT_NPROC does where the pod is counted
    alone, on a Linux kernel. Else it takes the node's podPidsLimit, which only
    its administrator knows.
    """
    if self.node_pids_limit > 0 or self.counted_alone and not self.runtime_class:
      return
    if self.runtime_class:
      why = f"runtime class {self.runtime_class!r} may not count processes by user"
    elif self.warm_pool:
      why = "the pods of a warm pool share a user"
    else:
      why = f"every pod would be user {self.user}"
    raise UserError(
        f"nothing bounds a fork bomb in such a pod: {why}. Set podPidsLimit in the"
        " kubelet's configuration of the nodes and say its value with"
        " node_pids_limit"
    )


def _labels(text: str) -> dict[str, str]:
  return dict(part.split("=", 1) for part in text.split(","))


_READ = {
    str: str,
    int: int,
    float: float,
    bool: {"true": True, "false": False}.__getitem__,
    dict: _labels,
}
_EXAMPLES = {
    int: "256",
    float: "120",
    bool: "true or false",
    dict: "label=value,label=value",
}


@dataclass(frozen=True)
class Server:
  """The server's program and where a pod finds it."""

  program: bytes
  path: str = ""  # in the image; empty: staged

  @property
  def name(self) -> str:
    """Of the ConfigMap: another program has another name."""
    return f"clawgym-sandbox-server-{hashlib.sha256(self.program).hexdigest()[:16]}"

  @property
  def command(self) -> str:
    return self.path or f"{_SERVER_FOLDER}/server"

  def config_map(self) -> Manifest:
    if len(self.program) > _MAX_STAGED:
      raise UserError(
          f"the sandbox server has {len(self.program)} bytes and a ConfigMap takes"
          f" {_MAX_STAGED}: put it into the image and say where with the option server"
      )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": self.name, "labels": {MARK: "true"}},
        "binaryData": {"server": base64.b64encode(self.program).decode()},
        "immutable": True,
    }


def names(user: int) -> Manifest:
  """A ConfigMap of /etc/passwd and /etc/group: whoever a pod is, is called user.

  `user` is one more that a pod may be, 0 for none.
  """
  passwd, group, digest = _users(user)
  return {
      "apiVersion": "v1",
      "kind": "ConfigMap",
      "metadata": {"name": f"clawgym-sandbox-users-{digest}", "labels": {MARK: "true"}},
      "data": {"passwd": passwd, "group": group},
      "immutable": True,
  }


@cache
def _users(user: int) -> tuple[str, str, str]:
  """The two files, of thousands of lines, and a hash of both."""
  ids = sorted({*range(FIRST_USER, FIRST_USER + USERS), user} - {0})
  passwd = "".join(f"user:x:{n}:{n}::/tmp/home:/bin/sh\n" for n in ids)
  group = "".join(f"user:x:{n}:\n" for n in ids)
  files = f"root:x:0:0::/:/bin/sh\n{passwd}", f"root:x:0:\n{group}"
  return *files, hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16]


def label_value(text: str) -> str:
  """`text` as the value of a label."""
  return re.sub(r"[^A-Za-z0-9_.-]", "_", text)[:63].strip("_.-") or "run"


def metadata(name: str, run_id: str, controller: str, expires: int) -> Manifest:
  return {
      "name": name,
      "labels": {MARK: "true", RUN: label_value(run_id)},
      "annotations": {CONTROLLER: controller, EXPIRES: str(expires)},
  }


def pod(spec: Manifest, meta: Manifest) -> Manifest:
  """One sandbox as a pod."""
  return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def pod_spec(
    cluster: Cluster,
    bounds: Bounds,
    paths: tuple[str, ...],
    user: int,
    server: Server,
    arguments: list[str],
) -> Manifest:
  """What a pod or a SandboxTemplate runs; `paths` are what it can write."""
  volumes, mounts = [], []
  for number, path in enumerate(paths):
    name = f"folder-{number}"
    size = _REPORTS_SIZE if path == _REPORTS else bounds.disk
    volumes.append(
        {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}}
    )
    mounts.append({"name": name, "mountPath": path})
    if path == "/tmp":  # else it would have a size of its own
      mounts.append({"name": name, "mountPath": "/dev/shm"})
  users = {"name": names(cluster.user)["metadata"]["name"], "defaultMode": 0o444}
  volumes.append({"name": "users", "configMap": users})
  for file in ("passwd", "group"):
    path = f"/etc/{file}"
    mounts.append(
        {"name": "users", "mountPath": path, "subPath": file, "readOnly": True}
    )
  selector = dict(cluster.node_selector)
  if not server.path:
    volumes.append({
        "name": "server", "configMap": {"name": server.name, "defaultMode": 0o555}
    })  # fmt: skip
    mounts.append({
        "name": "server", "mountPath": _SERVER_FOLDER, "readOnly": True
    })  # fmt: skip
    machine = platform.machine()
    selector["kubernetes.io/arch"] = _ARCHITECTURES.get(machine, machine)
  resources = {
      "cpu": cluster.cpu,
      "memory": str(memory(bounds, len(paths))),
      "ephemeral-storage": str(_LOGS),
  }
  spec: Manifest = {
      "restartPolicy": "Never",
      # The server ends after its lifetime; this, where it does not. The node
      # counts from before the image is there.
      "activeDeadlineSeconds": math.ceil(
          bounds.boot_seconds + bounds.lifetime_seconds
      ),
      "terminationGracePeriodSeconds": 0,
      "automountServiceAccountToken": False,
      "enableServiceLinks": False,
      "hostname": "sandbox",
      "dnsPolicy": "None",  # no name of the cluster is in resolv.conf
      "dnsConfig": {"nameservers": ["127.0.0.1"]},
      "nodeSelector": selector,
      "securityContext": {
          "runAsNonRoot": True,
          "runAsUser": user,
          "runAsGroup": user,
          "seccompProfile": {"type": "RuntimeDefault"},
      },
      "containers": [{
          "name": CONTAINER,
          "image": cluster.image,
          "imagePullPolicy": "IfNotPresent",
          "command": [server.command, *arguments],
          "workingDir": WORKSPACE,
          "stdin": True,
          "stdinOnce": True,  # the stream's end is the server's end
          "securityContext": {
              "allowPrivilegeEscalation": False,
              "privileged": False,
              "readOnlyRootFilesystem": True,
              "capabilities": {"drop": ["ALL"]},
          },
          "resources": {"requests": resources, "limits": dict(resources)},
          "volumeMounts": mounts,
      }],
      "volumes": volumes,
  }
  if cluster.runtime_class:
    spec["runtimeClassName"] = cluster.runtime_class
  if cluster.user_namespaces:
    spec["hostUsers"] = False
  return spec


def memory(bounds: Bounds, paths: int) -> int:
  """Bytes of the pod: its processes, all its tmpfs full, and room above both.

  The server kills what passes `bounds.memory`; the kernel, which would kill
  the server too, comes only after it.
  """
  return bounds.memory + paths * (bounds.disk + _INODE * bounds.inodes) + _SPARE


def no_network() -> Manifest:
  """Nothing in and nothing out, for every sandbox of the namespace."""
  return {
      "apiVersion": "networking.k8s.io/v1",
      "kind": "NetworkPolicy",
      "metadata": {"name": POLICY, "labels": {MARK: "true"}},
      "spec": {
          "podSelector": {"matchLabels": {MARK: "true"}},
          "policyTypes": ["Ingress", "Egress"],
      },
  }


def claim(cluster: Cluster, meta: Manifest, ends: str) -> Manifest:
  """A claim on the warm pool that its controller ends at `ends`, RFC 3339.

  It sets no environment: that would start a cold pod. It gives the pod no label:
  only those of domains that the claims' controller was told of may be given.
  """
  notes = {**meta["annotations"], RUN: meta["labels"][RUN]}
  return {
      "apiVersion": f"{CLAIMS[0]}/{CLAIMS[1]}",
      "kind": "SandboxClaim",
      "metadata": meta,
      "spec": {
          "warmPoolRef": {"name": cluster.warm_pool},
          "lifecycle": {"shutdownTime": ends, "shutdownPolicy": "Delete"},
          "additionalPodMetadata": {"annotations": notes},
      },
  }


def warm_pool(name: str, replicas: int, spec: Manifest) -> list[Manifest]:
  """The template and the pool that claims with `warm_pool=name` are served from.

  Its controller's own network policy would allow the internet: ours stands alone.
  """
  group = f"{CLAIMS[0]}/{CLAIMS[1]}"
  return [
      {
          "apiVersion": group,
          "kind": "SandboxTemplate",
          "metadata": {"name": name},
          "spec": {
              "networkPolicyManagement": "Unmanaged",
              "service": False,
              "podTemplate": {"metadata": {"labels": {MARK: "true"}}, "spec": spec},
          },
      },
      {
          "apiVersion": group,
          "kind": "SandboxWarmPool",
          "metadata": {"name": name},
          "spec": {"replicas": replicas, "sandboxTemplateRef": {"name": name}},
      },
  ]


def namespace(name: str) -> Manifest:
  """It admits no pod that could do more than ours."""
  level = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in _MODES}
  return {
      "apiVersion": "v1",
      "kind": "Namespace",
      "metadata": {"name": name, "labels": level},
  }


def role() -> Manifest:
  """What the controller may do in its namespace; nothing else is needed."""
  own, extensions, networking = "", CLAIMS[0], "networking.k8s.io"
  rules = [
      (own, "pods", "create get list watch delete"),
      # A websocket is authorised as get, and since Kubernetes 1.35 as create too.
      (own, "pods/attach", "get create"),
      (own, "configmaps", "create get"),
      (networking, "networkpolicies", "create get"),
      (extensions, "sandboxclaims", "create get list watch delete"),
      (SANDBOXES[0], "sandboxes", "get"),
  ]
  return {
      "apiVersion": "rbac.authorization.k8s.io/v1",
      "kind": "Role",
      "metadata": {"name": "clawgym-sandboxes"},
      "rules": [
          {"apiGroups": [group], "resources": [kind], "verbs": verbs.split()}
          for group, kind, verbs in rules
      ],
  }
