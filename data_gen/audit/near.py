"""How like another each task of a set is: MinHash over its request.

A request is the set of its runs of three words and has a signature; two tasks
of one category that share a band of it are compared. What two
signatures agree in estimates the Jaccard similarity of the sets.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from data_gen.audit.provenance import words

SIZE = 128
_BAND = 2  # values; two sets of similarity 0.2 then meet in nine of ten cases
MOST = 0.95  # of two requests; more is a duplicate
_MOST_COMPARED = 50  # looked at of those that share a band: common phrases join thousands
_RNG = np.random.Generator(np.random.PCG64(20260105))
_FACTORS = _RNG.integers(1, 1 << 63, SIZE, dtype=np.uint64) | np.uint64(1)
_SHIFTS = _RNG.integers(0, 1 << 63, SIZE, dtype=np.uint64)


def signature(text: str) -> np.ndarray:
  """The least of each hash over all runs of three words."""
  said = words(text)
  runs = {" ".join(said[i : i + 3]) for i in range(max(1, len(said) - 2))}
  hashes = np.array([zlib.crc32(r.encode()) for r in runs], np.uint64)
  mixed = hashes[:, None] * _FACTORS + _SHIFTS  # modulo 2^64, which is meant
  return (mixed >> np.uint64(32)).min(axis=0)


def nearest(
    texts: Mapping[str, tuple[str, str]],
    others: Mapping[str, tuple[str, str]] = {},
    most: float = MOST,
) -> dict[str, tuple[float, str]]:
  """For each name of `texts`, category and request by name: the highest similarity
  to a name before it that stays, in sorted order, or to one of `others`, and that
  name. One that is more than `most` like another does not stay.

  Where nothing comes near, 0.0 and "".
  """
  names: list[str] = []
  signatures = np.zeros((len(texts) + len(others), SIZE), np.uint64)
  bands: dict[tuple, list[int]] = defaultdict(list)
  found = {}
  for given, judged in ((others, False), (texts, True)):
    for name, (category, text) in sorted(given.items()):
      signed = signature(text)
      bytes_, width = signed.tobytes(), _BAND * signed.itemsize
      keys = [
          (category, start, bytes_[start : start + width])
          for start in range(0, len(bytes_), width)
      ]
      near = sorted({i for key in keys for i in bands[key][:_MOST_COMPARED]}) if judged else []
      if judged:
        found[name] = (0.0, "")
      if near:
        like = (signatures[near] == signed).mean(axis=1)
        best = int(like.argmax())
        found[name] = (round(float(like[best]), 3), names[near[best]])
      if judged and found[name][0] > most:
        continue
      signatures[len(names)] = signed
      for key in keys:
        bands[key].append(len(names))
      names.append(name)
  return found
