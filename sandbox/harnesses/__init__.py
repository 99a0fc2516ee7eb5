"""Agents: who works in the sandbox, with a model or without.

`load(name)` gives a harness; names that aren't built in yet are refused.
"""

from __future__ import annotations

import difflib

from clawgym_jax.contracts.errors import UserError
from sandbox.harnesses.adversaries import (
    Adversary,
    Constants,
    CopyInput,
    EchoInputs,
    EmptyFiles,
    Flood,
    HuntChecks,
    PastePrompt,
    PlantedVerdict,
    Skeletons,
    Tamper,
    asked_of,
)
from sandbox.harnesses.base import Harness, HarnessContext, HarnessResult
from sandbox.harnesses.claw import Claw
from sandbox.harnesses.reference import Null, Oracle

__all__ = [
    "ADVERSARIES", "Adversary", "Harness", "HarnessContext", "HarnessResult",
    "asked_of", "load",
]  # fmt: skip

_ADVERSARIES = (
    EmptyFiles, PastePrompt, EchoInputs, CopyInput, Constants, Skeletons,
    PlantedVerdict, Flood, HuntChecks, Tamper,
)  # fmt: skip
ADVERSARIES = tuple(adversary.name for adversary in _ADVERSARIES)

_BUILT_IN = {
    harness.name: harness
    for harness in (Claw, Oracle, Null, *_ADVERSARIES)
}
_NOT_YET = ("openclaw", "pi", "nanobot", "mini_swe_agent")


def load(name: str) -> Harness:
  """The harness `name`, or `UserError` naming those there are."""
  if name in _BUILT_IN:
    return _BUILT_IN[name]()
  if name in _NOT_YET:
    raise UserError(f"harness {name!r} isn't built in yet; use --harness=claw")
  near = difflib.get_close_matches(name, _BUILT_IN, 1)
  hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(_BUILT_IN)}"
  raise UserError(f"no harness {name!r}; {hint}")
