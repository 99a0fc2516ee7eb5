"""P35: sandboxes that fail to start never hold more of a namespace than its bound,
and a claim on a warm pool is believed by what there is, not by what it says."""

from __future__ import annotations

import asyncio

import pytest

from clawgym_jax.contracts.errors import UserError
from sandbox.backends import Bounds, SandboxLost
from sandbox.backends.kubernetes import Cluster, KubernetesSandbox
from sandbox.backends.kubernetes import manifests, sandbox as backend
from tests.sandbox.conftest import kubernetes  # noqa: F401
from tests.sandbox.test_kubernetes import (  # noqa: F401
    BOUNDS,
    QUICK,
    api,
    echo,
    nothing,
    run,
)


def test_the_bound_holds_when_starts_fail(api):
  """Never more pods than the quota and than starts, and none afterwards."""
  api.quota, api.start_error = 4, True

  async def one():
    async with KubernetesSandbox(cluster=QUICK, bounds=BOUNDS) as sandbox:
      await sandbox.start()

  async def whole():
    return await asyncio.gather(*(one() for _ in range(12)), return_exceptions=True)

  errors = asyncio.run(whole())
  assert {type(error) for error in errors} == {SandboxLost}
  refused = [e for e in errors if "exceeded quota" in str(e)]
  assert refused and all("lower --concurrency" in str(e) for e in refused)
  assert api.most <= 4 and api.objects["pods"] == {}
  made = sum(m == "POST" and path.endswith("/pods") for m, path in api.calls)
  assert made == 12, "a refusal is not asked again"
  api.start_error = False
  run(echo)


def pool():
  return Cluster(
      warm_pool="pool", node_pids_limit=256, boot_seconds=2.0, probe_network=False
  )


def pool_spec(api, folders=()):
  server = backend.server_of(pool())
  api.put("configmaps", server.config_map())
  api.put("configmaps", manifests.names(pool().user))
  bounds = Bounds(lifetime_seconds=3600.0)
  return backend.spec(pool(), bounds, folders, backend.POOL_USER, server)


def test_a_claim_is_served_by_a_warm_pod(api):
  api.make_pool("pool", pool_spec(api, ("/other", "/checks")), 2)

  async def body(sandbox):
    (claim,) = api.objects["sandboxclaims"].values()
    assert claim["spec"]["lifecycle"]["shutdownPolicy"] == "Delete"
    assert "env" not in claim["spec"], "that would start a cold pod"
    assert (await sandbox.exec("cat in; echo $CLAWGYM_NOW", 5)).output == "1then\n"
    async with await sandbox.fork() as other:
      await echo(other)

  settings = dict(cluster=pool(), folders=("/checks",), now="then")
  run(body, {"in": b"1"}, **settings)
  assert not api.objects["sandboxclaims"] and not api.objects["pods"]
  assert not any(m == "POST" and path.endswith("/pods") for m, path in api.calls)


def test_an_empty_pool_is_waited_for_within_the_bound(api):
  api.make_pool("pool", pool_spec(api), 0)
  with pytest.raises(SandboxLost, match="did not run within 2 s: claim.*NotReady"):
    run(nothing, cluster=pool(), bounds=Bounds(boot_seconds=2.0))
  assert not api.objects["sandboxclaims"]


def test_a_drained_claim_is_not_ready_whatever_it_says(api):
  api.make_pool("pool", pool_spec(api), 1)
  api.pool_lies = True
  with pytest.raises(SandboxLost, match="says it is ready, but its pod is gone"):
    run(nothing, cluster=pool())
  assert not api.objects["sandboxclaims"]


def test_a_pod_of_another_claim_is_refused(api):
  api.make_pool("pool", pool_spec(api), 1)
  api.claim_uid = "another"
  with pytest.raises(SandboxLost, match="given to the claim another"):
    run(nothing, cluster=pool())


def test_a_cluster_without_agent_sandbox_is_said(api):
  api.faults.append(["POST", "/sandboxclaims", 404, 1])
  api.said = "the server could not find the requested resource"
  with pytest.raises(UserError, match="Install agent-sandbox"):
    run(nothing, cluster=pool())


def test_a_pool_that_is_not_there_is_said(api):
  with pytest.raises(UserError, match="WarmPoolNotFound"):
    run(nothing, cluster=pool())
