"""Trees keep every trained token once, in its own context; packing keeps all."""

import numpy as np
import pytest

from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.contracts.row import predecessors
from clawgym_jax.data.batch import capacity, collate
from clawgym_jax.data.packing import plan
from clawgym_jax.data.sequence import supervised
from clawgym_jax.data.tree import Tree


def sequence(text: str):
  """Capitals are trained."""
  return supervised([ord(c.lower()) for c in text], [c.isupper() for c in text])


def contexts(row) -> list[tuple[str, str]]:
  """(path before, token) of every trained token of a row."""
  before = predecessors(row.end)
  found = []
  for t in np.flatnonzero(row.loss_weight):
    path, at = [], before[t]
    while at >= 0:
      path.append(chr(row.tokens[at]))
      assert row.positions[at] == row.positions[t] - len(path)
      at = before[at]
    found.append(("".join(reversed(path)), chr(row.tokens[t])))
  return sorted(found)


def flat_contexts(texts):
  return sorted(
      (text[:i].lower(), text[i].lower())
      for text in texts
      for i in range(len(text))
      if text[i].isupper()
  )


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize(
    "texts, size",
    [
        (["abcXY", "abcXZ"], 7),  # trained tokens are never merged
        (["abcX", "abdX", "qX"], 4 + 2 + 2),
        (["abXcdY", "abxcdeY"], 4 + 1 + 1 + 2),  # untrained copy joins the trained
        (["abxceY", "abXcdY"], 6 + 2),  # and the other way round
        (["abX", "abX", "abX"], 5),
        (["abXcd", "ab"], 5),
    ],
)
def test_each_trained_token_stays_once_in_its_context(texts, size, share):
  tree = Tree([sequence(t) for t in texts], share=share)
  row = tree.row(32)
  assert tree.size == (size if share else sum(map(len, texts)))
  assert contexts(row) == flat_contexts(texts)
  assert (row.end[tree.size :] == np.arange(tree.size + 1, 33)).all()
  assert not row.loss_weight[tree.size :].any()


def test_random_trees_match_flat_sequences():
  rng = np.random.default_rng(0)
  for _ in range(50):
    texts = [
        "a" + "".join(rng.choice(list("abAB"), size=rng.integers(1, 12)))
        for _ in range(6)
    ]
    sequences = [sequence(t) for t in texts]
    tree = Tree()
    for item in sequences:
      before = tree.size
      cost = tree.cost(item)
      tree.add(item)
      assert tree.size - before == cost
    assert contexts(tree.row(128)) == flat_contexts(texts)


def test_plan_uses_every_sequence_once_and_prefers_shared_prefixes():
  rng = np.random.default_rng(1)
  texts = [
      prefix + "A" * int(rng.integers(1, 6))
      for prefix in ("systemone", "systemtwo", "other")
      for _ in range(20)
  ]
  sequences = [sequence(t) for t in texts]
  rows = plan(sequences, 32)
  assert sorted(i for row in rows for i in row) == list(range(len(texts)))
  assert all(Tree(sequences[i] for i in row).size <= 32 for row in rows)
  assert len(rows) < len(plan(sequences, 32, share=False))
  assert plan(sequences, 32) == rows


def test_too_long_is_an_error_not_a_cut():
  with pytest.raises(RecordError, match="longer than a row"):
    plan([sequence("a" * 40)], 32)


def test_collate_gathers_trained_positions_and_pads_rows():
  rows = [Tree([sequence("abCD"), sequence("abEF")]).row(8)]
  batch = collate(rows, 5, total_rows=2)
  assert batch["tokens"].shape == (2, 8) and batch["targets"].shape == (2, 5)
  assert [chr(t) for t in batch["targets"][0][:4]] == list("cdef")
  assert batch["before"][0][:4].tolist() == [1, 2, 1, 4]
  assert batch["weight"].sum() == 4
  assert batch["weight"][1].sum() == 0


def test_capacity_is_one_of_a_few():
  assert {capacity(n, 1024) for n in range(1025)} == {64, 128, 256, 384, 512, 768, 1024}
  with pytest.raises(RecordError):
    collate([Tree([sequence("abCD")]).row(8)], 1)
