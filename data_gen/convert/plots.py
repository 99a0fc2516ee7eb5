"""Plots as SVG: the same numbers give the same bytes.

Text is in a font that every viewer has; one colour, readable on white and on
dark, each bar with its number beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

_ROW, _LABEL, _BAR, _NUMBER = 20, 250, 330, 70  # pixels
_TOP = 34
_COLOUR = "#3b7dd8"
_STYLE = (
    "text{font:12px sans-serif;fill:#555}.title{font-size:14px;font-weight:bold}"
    ".label{text-anchor:end}@media(prefers-color-scheme:dark){text{fill:#bbb}}"
)


def bars(title: str, rows: Sequence[tuple[str, int]]) -> str:
  """Horizontal bars, one a row, in the order given."""
  most = max((count for _, count in rows), default=0) or 1
  width = _LABEL + _BAR + _NUMBER
  height = _TOP + _ROW * len(rows) + 10
  lines = [
      f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
      f' viewBox="0 0 {width} {height}" role="img" aria-label="{_text(title)}">',
      f"<style>{_STYLE}</style>",
      f'<text class="title" x="10" y="20">{_text(title)}</text>',
  ]
  for number, (label, count) in enumerate(rows):
    y = _TOP + _ROW * number
    length = round(_BAR * count / most, 1)
    lines += [
        f'<text class="label" x="{_LABEL - 8}" y="{y + 14}">{_text(label)}</text>',
        f'<rect x="{_LABEL}" y="{y + 3}" width="{length}" height="{_ROW - 6}"'
        f' fill="{_COLOUR}"/>',
        f'<text x="{_LABEL + length + 6:g}" y="{y + 14}">{count}</text>',
    ]
  return "\n".join([*lines, "</svg>", ""])


def ranges(values: Sequence[int], edges: Sequence[int]) -> list[tuple[str, int]]:
  """How many values lie from each edge to below the next; the last is open.

  `edges` ascends and starts at or below the least value. Empty ranges at the
  ends are left out.
  """
  counts = [0] * len(edges)
  for value in values:
    counts[sum(edge <= value for edge in edges) - 1] += 1
  rows = []
  for number, low in enumerate(edges):
    last = number + 1 == len(edges)
    high = None if last else edges[number + 1] - 1
    label = f"≥ {low:,}" if last else f"{low:,}" if high == low else f"{low:,}–{high:,}"
    rows.append((label, counts[number]))
  filled = [number for number, (_, count) in enumerate(rows) if count]
  return rows[filled[0] : filled[-1] + 1] if filled else []


def _text(text: str) -> str:
  return escape(text, {'"': "&quot;"})
