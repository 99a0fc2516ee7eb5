"""P38: an honest solver's work reaches the verifier: oracle 1, null 0, adversaries 0."""

import asyncio

import pytest

from sandbox.fleet import grade_with
from sandbox.harnesses import ADVERSARIES
from tests.sandbox.small_task import make_task


@pytest.mark.parametrize(
    "harness, score", [("oracle", 1.0), ("null", 0.0), *((a, 0.0) for a in ADVERSARIES)]
)
def test_scores(tmp_path, harness, score):
  outcome = asyncio.run(grade_with(make_task(tmp_path / "t"), harness))
  assert (outcome.status, outcome.score) == ("scored", score)
