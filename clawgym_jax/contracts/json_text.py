"""JSON of whatever comes: names of files, words of models, files of strangers.

`dump` gives text that UTF-8 can hold: half of a surrogate pair, as a file's
name or a model can make it, stays an escape and is itself again when read.
`parse` fails with ValueError alone, however deep its input is nested.
"""

from __future__ import annotations

import json
from typing import Any


def dump(value: Any, *, indent: int | None = None) -> str:
  """One line, or readable with `indent`.

  ValueError for NaN and infinities, and for what is nested beyond reason.
  """
  settings = {
      "allow_nan": False,
      "indent": indent,
      "separators": (",", ":") if indent is None else None,
  }
  try:
    text = json.dumps(value, ensure_ascii=False, **settings)
    text.encode()
  except UnicodeEncodeError:
    return json.dumps(value, ensure_ascii=True, **settings)
  except RecursionError:
    raise ValueError("nested too deeply") from None
  return text


def parse(text: str | bytes) -> Any:
  """The value; ValueError where `text` is no JSON, or nested beyond reason."""
  try:
    return json.loads(text)
  except RecursionError:
    raise ValueError("nested too deeply") from None

