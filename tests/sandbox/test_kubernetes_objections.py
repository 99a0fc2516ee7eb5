"""A cluster that does not make what was asked for is refused: weakened pods, an open
network, another program in the server's place."""

from __future__ import annotations

import pytest

from clawgym_jax.contracts.errors import UserError
from sandbox.backends.kubernetes import Cluster, manifests, sandbox as backend
from sandbox.backends.kubernetes.objections import objections
from tests.sandbox.test_kubernetes import (  # noqa: F401
    QUICK,
    api,
    nothing,
    run,
    wanted_pod,
)


def security(spec):
  return spec["containers"][0]["securityContext"]


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda s: s.update(hostNetwork=True), "hostNetwork is on"),
        (lambda s: s.update(automountServiceAccountToken=True), "automount"),
        (lambda s: security(s).pop("capabilities"), "capabilities is None"),
        (lambda s: security(s).update(runAsUser=0), "runAsUser is 0"),
        (lambda s: security(s).update(procMount="Unmasked"), "procMount is"),
        (lambda s: security(s)["capabilities"].update(add=["ALL"]), "add is"),
        (lambda s: s["containers"][0].update(lifecycle={}), "lifecycle is"),
        (lambda s: s["containers"][0]["command"].pop(), "its server lacks"),
        (lambda s: s["containers"].append({"name": "mesh"}), "2 containers"),
        (lambda s: s["volumes"][0]["emptyDir"].pop("sizeLimit"), "/workspace is"),
        (lambda s: s["volumes"][0].update(emptyDir={}), "/workspace is a volume"),
    ],
)  # fmt: skip
def test_a_pool_or_webhook_that_weakens_a_pod_is_refused(api, change, says):
  made = wanted_pod()
  made["status"] = {"phase": "Running"}
  # As a real API server and its node fill it in.
  made["spec"] |= {"nodeName": "n", "tolerations": [], "schedulerName": "default"}
  made["spec"]["containers"][0]["terminationMessagePath"] = "/dev/termination-log"
  security(made["spec"])["procMount"] = "Default"
  made["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] = "64Mi"
  assert objections(made, wanted_pod()) == []
  change(made["spec"])
  assert any(says in text for text in objections(made, wanted_pod()))


def test_a_webhook_that_weakens_pods_is_said(api):
  api.mutate = lambda pod: pod["spec"].update(enableServiceLinks=True)
  with pytest.raises(UserError, match="another pod than the one asked for.*Links"):
    run(nothing)
  assert api.objects["pods"] == {}


def test_a_network_that_nothing_shuts_is_refused(api, monkeypatch):
  monkeypatch.setattr(backend, "_probed", set())
  monkeypatch.setattr(backend, "_PROBE_PAUSE", 0.01)
  cluster = Cluster(boot_seconds=10.0)

  async def body(sandbox):
    assert sandbox.limits["network"] == "NetworkPolicy, tried"

  run(body, cluster=cluster)
  backend._probed.clear()
  api.network = True
  with pytest.raises(UserError, match="does not enforce NetworkPolicy"):
    run(nothing, cluster=cluster)
  assert api.objects["pods"] == {}


def test_a_widened_policy_is_refused(api):
  policy = manifests.no_network()
  policy["spec"]["egress"] = [{}]
  api.put("networkpolicies", policy)
  with pytest.raises(UserError, match="NetworkPolicy .* delete it"):
    run(nothing)


def test_another_program_in_our_place_is_refused(api):
  other = backend.server_of(QUICK).config_map()
  other["binaryData"] = {"server": "aGFjaw=="}
  api.put("configmaps", other)
  with pytest.raises(UserError, match="ConfigMap .* holds something else"):
    run(nothing)
