"""Criteria for the tests of what carries, checks and judges them."""

from __future__ import annotations

from typing import Any

from clawgym_jax.contracts.rubric import LEVELS, Criterion


def criterion(name: str = "tone", **fields: Any) -> Criterion:
  """A criterion of the final message, unless `fields` say otherwise."""
  given = {
      "file_path": "",
      "criterion": "Is it polite?",
      "scores": {level: f"polite to {level}" for level in LEVELS},
  }
  return Criterion(name, **{**given, **fields})
