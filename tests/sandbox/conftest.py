"""What the backends' tests run against: a docker daemon for all of them, and a
stand-in of the Kubernetes API for each; and what verifiers open is seen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import docker_daemon
from sandbox.verify import many
from tests import kubernetes_api


@pytest.fixture(scope="session")
def dockerd() -> Iterator[docker_daemon.Daemon]:
  """A daemon that has the default image."""
  from sandbox.backends import docker_image  # the docker SDK, for these tests alone

  try:
    with docker_daemon.daemon() as found:
      docker_image.build(found.client)
      yield found
  except docker_daemon.CannotRun as why:
    pytest.skip(str(why))


@pytest.fixture
def docker_host(dockerd, monkeypatch) -> docker_daemon.Daemon:
  """`dockerd`, as the one that DOCKER_HOST names; it is left without containers."""
  monkeypatch.setenv("DOCKER_HOST", dockerd.url)
  yield dockerd
  assert dockerd.containers() == []


@pytest.fixture
def kubernetes(monkeypatch) -> Iterator[kubernetes_api.KubernetesApi]:
  """The API that KUBECONFIG leads to; its pods' processes are gone in the end."""
  with kubernetes_api.KubernetesApi() as api:
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))
    yield api
    api.wait_until_empty()


@pytest.fixture
def opened(monkeypatch) -> list:
  """The shared sandboxes of verifiers, as they are opened."""
  sandboxes = []

  def counted(*arguments):
    sandboxes.append(original(*arguments))
    return sandboxes[-1]

  original = many.open_verifier
  monkeypatch.setattr(many, "open_verifier", counted)
  return sandboxes
