"""Tasks of several user turns, and with hazards, in the formats of others."""

from __future__ import annotations

import tomllib

import pytest

from data_gen.convert import convert
from data_gen.convert.contents import read
from sandbox.backends.base import gather
from tests.data_gen.test_convert import ENDS, FOREIGN
from tests.sandbox.small_task import ADD, TURNS, make_hazard_task, make_turns_task


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory):
  """A task of three user turns, and one with a hazard."""
  tasks = tmp_path_factory.mktemp("lived_in") / "tasks"
  make_turns_task(tasks / "turns")
  make_hazard_task(tasks / "hazard", ADD, "echo done > pwned.txt")
  return tasks


@pytest.mark.parametrize("form", ENDS)
def test_turns_and_hazards_come_along_or_are_missed_by_name(lived_in, tmp_path, form):
  there, back = tmp_path / ENDS[form], tmp_path / "back"
  summary, losses = convert(lived_in, there, form)
  said_once = "the user speaks several times in it, and there only once"
  assert losses.left_out == ({said_once: ["turns"]} if form in FOREIGN else {})
  unsaid = [what for what in losses.parts if "hazard" in what]
  assert len(unsaid) == (form in FOREIGN and form != "harbor")
  convert(there, back)
  kept = gather(lived_in)
  if form in FOREIGN:
    kept = {path: data for path, data in kept.items() if path.startswith("hazard/")}
  assert gather(back) == kept
  if form == "harbor":
    told = tomllib.loads((there / "hazard" / "task.toml").read_text())
    assert told["metadata"]["hazard"] == "planted_instruction"


def test_the_card_and_tfds_know_all_that_the_user_says(lived_in, tmp_path):
  convert(lived_in, tmp_path / "card" / "README.md")
  text = (tmp_path / "card" / "README.md").read_text()
  assert "| user turns | 1 | 2 | 2.0 | 3 |" in text
  assert "| planted_instruction | 1 |" in text
  words = sum(len(said.split()) for said in TURNS)
  assert f"| {words} |" in next(li for li in text.splitlines() if "words of" in li)
  from data_gen.convert.tfds import _example  # seconds to import

  assert _example(read(lived_in / "turns"))["instruction"] == list(TURNS)
