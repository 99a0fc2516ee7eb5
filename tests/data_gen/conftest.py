"""A model that writes tasks, for the tests of `--generator=llm`."""

from __future__ import annotations

import functools

import pytest

from data_gen import audit
from data_gen.llm import run
from data_gen.llm.endpoint import Endpoint
from tests.data_gen.fake_llm import Fake


@pytest.fixture
def fake():
  return Fake()


@pytest.fixture
def quick(monkeypatch):
  """The endpoint's waits are short."""
  patient = functools.partial(Endpoint, first_wait=0.01, reply_seconds=2.0)
  monkeypatch.setattr(run, "Endpoint", patient)


@pytest.fixture
def sound(monkeypatch):
  """The audit finds nothing, for tests of what comes before it."""

  async def judge(task, backend):
    return audit.Findings()

  monkeypatch.setattr(audit, "judge", judge)
