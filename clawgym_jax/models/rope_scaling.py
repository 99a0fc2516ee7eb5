"""RoPE scaling: frequencies changed so that a model reaches past its training length.

Three kinds, each a pure function of the plain frequencies: `linear`
(arXiv:2306.15595), `yarn` (arXiv:2309.00071, as Qwen uses it) and `llama3`
(Llama 3.1's published code). They agree with transformers'
modeling_rope_utils.py. Frequencies do not depend on the length of the input,
so that a cached key never has to be rotated again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from clawgym_jax.contracts.errors import UserError

_FIELDS = {
    "linear": (),
    "yarn": (
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
    ),
    "llama3": (
        "original_max_position_embeddings",
        "low_freq_factor",
        "high_freq_factor",
    ),
}
"""What each kind reads besides its factor."""


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
  """One scaling under Hugging Face's names; a field another kind reads is None.

  Attributes:
    kind: `linear`, `yarn` or `llama3`.
    factor: how many times longer the reach is, >= 1.
    original_max_position_embeddings: the length trained on, in tokens.
    attention_factor: multiplies cosines and sines; None: from `factor`, as
      YaRN's authors do, or from `mscale` and `mscale_all_dim` if both are set.
    beta_fast, beta_slow: rotations over the original length above which a
      frequency stays and below which it is divided by `factor`.
    truncate: whether the dimensions of these bounds are rounded outwards.
    low_freq_factor, high_freq_factor: the same bounds of `llama3`.
  """

  kind: str
  factor: float
  original_max_position_embeddings: int | None = None
  attention_factor: float | None = None
  beta_fast: float | None = None
  beta_slow: float | None = None
  mscale: float | None = None
  mscale_all_dim: float | None = None
  truncate: bool | None = None
  low_freq_factor: float | None = None
  high_freq_factor: float | None = None

  def __post_init__(self) -> None:
    if self.kind not in _FIELDS:
      raise UserError(
          f"the model uses RoPE scaling {self.kind!r}, which is not supported"
          f" yet; {', '.join(_FIELDS)} are"
      )
    for name in ("factor", *_FIELDS[self.kind]):
      value = getattr(self, name)
      if value is not None and not (
          isinstance(value, (int, float)) and abs(value) < math.inf
      ):
        raise UserError(f"RoPE scaling has {name} {value!r}: it must be a number")
    if self.factor < 1:
      raise UserError(f"RoPE scaling has factor {self.factor}; it must be at least 1")
    needed = {
        "linear": (),
        "yarn": ("original_max_position_embeddings", "beta_fast", "beta_slow"),
        "llama3": _FIELDS["llama3"],
    }[self.kind]
    for name in needed:
      if not getattr(self, name):
        raise UserError(f"RoPE scaling {self.kind!r} lacks {name}")
    low, high = {
        "linear": (0, 1),
        "yarn": (self.beta_slow, self.beta_fast),
        "llama3": (self.low_freq_factor, self.high_freq_factor),
    }[self.kind]
    if low >= high:
      raise UserError(f"RoPE scaling {self.kind!r} has bounds {low} >= {high}")

  @classmethod
  def from_hf(
      cls, values: dict[str, Any], max_position_embeddings: int
  ) -> RopeScaling | None:
    """From `rope_parameters` or the older `rope_scaling`; None where plain.

    `max_position_embeddings` stands in where the original length is not given.
    Raises `UserError` on another kind and on a setting that would be ignored, as
    a factor without a kind is.
    """
    kind = values.get("rope_type", values.get("type", "default"))
    given = {
        name: value
        for name, value in values.items()
        if value is not None and name not in ("rope_type", "type", "rope_theta")
    }
    if given.pop("partial_rotary_factor", 1.0) != 1.0:
      raise UserError("the model uses partial_rotary_factor, which is not supported yet")
    if kind == "yarn":
      given["beta_fast"] = given.get("beta_fast") or 32.0
      given["beta_slow"] = given.get("beta_slow") or 1.0
    if kind in ("yarn", "llama3"):
      original = given.get("original_max_position_embeddings", max_position_embeddings)
      given["original_max_position_embeddings"] = original
      given.setdefault("factor", max_position_embeddings / original)
    read = () if kind == "default" else ("factor", *_FIELDS.get(kind, given))
    unknown = sorted(given.keys() - set(read))
    if unknown:
      raise UserError(
          f"RoPE scaling {kind!r} has {', '.join(unknown)}, which this kind does"
          " not read: remove it from config.json, or correct rope_type"
      )
    if kind == "default":
      return None
    if kind in _FIELDS and "factor" not in given:
      raise UserError(f"RoPE scaling {kind!r} lacks factor")
    factor = float(given.pop("factor", 1.0))
    return cls(kind=kind, factor=factor, **(given if kind in _FIELDS else {}))

  def to_hf(self) -> dict[str, Any]:
    """What `from_hf` reads."""
    values = {name: getattr(self, name) for name in ("factor", *_FIELDS[self.kind])}
    values = {name: value for name, value in values.items() if value is not None}
    return {"rope_type": self.kind, **values}

  def scaled(
      self, frequencies: np.ndarray, head_dim: int, theta: float
  ) -> tuple[np.ndarray, float]:
    """Frequencies [head_dim / 2] in radians a token, and what multiplies cos and sin."""
    if self.kind == "linear":
      return frequencies / self.factor, 1.0
    if self.kind == "llama3":
      return self._llama3(frequencies), 1.0
    return self._yarn(frequencies, head_dim, theta), self._yarn_attention()

  def _llama3(self, frequencies: np.ndarray) -> np.ndarray:
    turns = self.original_max_position_embeddings * frequencies / (2 * math.pi)
    low, high = self.low_freq_factor, self.high_freq_factor
    keep = np.clip((turns - low) / (high - low), 0, 1)
    return frequencies * (keep + (1 - keep) / self.factor)

  def _yarn(self, frequencies: np.ndarray, head_dim: int, theta: float) -> np.ndarray:
    def dimension(turns: float) -> float:
      """Of the frequency that turns so often over the original length."""
      length = self.original_max_position_embeddings
      return head_dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(self.beta_fast), dimension(self.beta_slow)
    if self.truncate is not False:
      low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
      high += 0.001  # as transformers: a step in place of a ramp
    divide = np.clip((np.arange(head_dim // 2) - low) / (high - low), 0, 1)
    return frequencies * (1 - divide + divide / self.factor)

  def _yarn_attention(self) -> float:
    def scale(weight: float) -> float:
      return 0.1 * weight * math.log(self.factor) + 1.0

    if self.attention_factor is not None:
      return self.attention_factor
    if self.mscale and self.mscale_all_dim:
      return scale(self.mscale) / scale(self.mscale_all_dim)
    return scale(1.0)
