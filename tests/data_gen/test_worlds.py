"""Worlds of composed tasks: the same for the same key, whole, and of one piece."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import os
import re
import statistics
import subprocess
import sys
from collections import Counter

import pytest

from data_gen import taxonomy
from data_gen.compose.chores import CHORES
from data_gen.compose.kinds import EVERY, KINDS
from data_gen.compose.operations import OPERATIONS
from data_gen.compose.part import Part, joined
from data_gen.compose.personas import STYLES, combinations, persona
from data_gen.compose.setting import Setting
from data_gen.compose.sinks import SINKS
from data_gen.compose.surroundings import surroundings
from data_gen.compose.topics import TOPICS, Topic, topic_of
from data_gen.compose.turns import PATTERNS
from data_gen.compose.voices import speak
from data_gen.compose.words import WORDS
from data_gen.pools import POOLS

SPLITS = ("train", "heldout")
# Columns that a topic has at least, so that every operation finds something to do.
LEAST = {"id": 1, "date": 1, "money": 1, "integer": 1, "category": 2}
SAID = (
    "From the CSV file data/orders.csv: keep only the rows whose status is packed."
    " Save the result as CSV in out/bamboo.csv.\n"
    'Set port to 412 in config/mailer.ini to the letter "{x}".'
)


def _work(setting: Setting, topic: Topic) -> Part:
  table = topic.draw(setting, 40)
  return Part(
      said="",
      calls=[],
      workspace=KINDS["csv"].write(table, "misc/input.csv"),
      deliverables={
          "result": {"path": "attic/result.csv"},
          "moved": {"files": {"old/x.txt": {}}},
      },
      done="",
  )


def _surrounded(key: str, split: str, reseed: int = 0) -> tuple[Part, Part]:
  setting = Setting(key, split, reseed)
  topic = topic_of(setting)
  work = _work(setting, topic)
  return work, surroundings(setting, topic, work)


def digest() -> str:
  """Of everything that some keys draw."""
  seen = hashlib.sha256()
  for split in SPLITS:
    for number in range(8):
      setting = Setting(f"d{number}", split)
      who = persona(setting)
      seen.update(f"{who}{speak(setting, who, SAID)}".encode())
      for path, data in joined(_surrounded(f"d{number}", split)).workspace.items():
        seen.update(path.encode() + data)
  return seen.hexdigest()


def test_the_taxonomy_is_whole():
  for categories, count, members in (
      (taxonomy.SCENARIOS, 9, 43),
      (taxonomy.OPERATIONS, 7, 26),
  ):
    assert len(categories) == count
    names = [name for c in categories.values() for name in c.members]
    said = [text for c in categories.values() for text in c.members.values()]
    said += [c.definition for c in categories.values()]
    assert len(names) == len(set(names)) >= members
    assert len(set(said)) == len(said) and all(s.endswith(".") for s in said)
  assert {c.macro for c in taxonomy.SCENARIOS.values()} == set(taxonomy.MACROS)


def test_what_a_module_does_is_in_the_taxonomy():
  named = {a for m in (*EVERY.values(), *PATTERNS.values()) for a in m.atomics}
  assert named <= taxonomy.CATEGORY_OF.keys()
  for modules in (OPERATIONS, SINKS, CHORES):
    unknown = {m.name for m in modules.values() if m.atomic not in taxonomy.CATEGORY_OF}
    assert not unknown


def test_every_subcategory_has_a_topic():
  assert {t.subcategory for t in TOPICS.values()} == set(taxonomy.SCENARIO_OF)
  assert min(Counter(t.scenario for t in TOPICS.values()).values()) >= 4
  assert len(TOPICS) >= 43


def test_no_scenario_is_drawn_more_often_than_others():
  drawn = [topic_of(Setting(f"n{number}", "train")) for number in range(900)]
  assert max(Counter(topic.scenario for topic in drawn).values()) <= 135
  assert {topic.name for topic in drawn} == set(TOPICS)


@pytest.mark.parametrize("split", SPLITS)
def test_topics_draw_what_operations_need(split):
  for topic in TOPICS.values():
    setting = Setting(f"t {topic.name}", split)
    table = topic.draw(setting, 60)
    other = topic.draw(setting.reseeded(1), 60)
    assert table.columns == other.columns and table.rows != other.rows
    assert table.rows == topic.draw(setting.reseeded(0), 60).rows
    for kind, least in LEAST.items():
      assert len(table.of_type(kind)) >= least, (topic.name, kind)
    for column in table.columns:
      values = table.column(column.name)
      if column.type == "id":
        assert len(set(values)) == len(values), topic.name
      elif column.type == "category":
        assert set(values) == set(column.words), (topic.name, column.name)
      elif column.type == "integer":
        assert len(set(values)) >= 8, (topic.name, column.name)
      elif column.type == "text":
        assert column.form, (topic.name, column.name)
    for cell in (c for row in table.cells() for c in row):
      assert cell and cell == cell.strip() and not set(cell) & set(',;"|<>&\n'), cell


def test_words_keep_to_their_side():
  """That the two sides of all pools are disjoint is tested with the pools."""
  for words in (words for kind in WORDS for words in POOLS[kind]):
    assert len(set(words)) == len(words) >= 2, words
    assert not any(set(",;\"'|<>&") & set(word) for word in words), words
  named: dict[str, set[str]] = {split: set() for split in SPLITS}
  for split in SPLITS:
    for topic in TOPICS.values():
      columns = topic.draw(Setting(f"s {topic.name}", split), 9).columns
      named[split].update(word for column in columns for word in column.words)
  assert named["train"].isdisjoint(named["heldout"])


def test_there_are_a_million_personas():
  for split in SPLITS:
    assert combinations(split) >= 10**6
    drawn = [persona(Setting(f"p{n}", split)) for n in range(300)]
    ways = {(p.occupation, p.context, p.tools, p.habits, p.style) for p in drawn}
    assert len(ways) >= 299
    assert {p.style for p in drawn} == set(STYLES)
    assert {p.city for p in drawn} == set(POOLS["city"][split == "heldout"])


def test_a_persona_is_of_its_world_and_stays():
  setting = Setting("k", "train")
  who = persona(setting)
  setting.words("client", 3)
  assert persona(setting) == who == persona(setting.reseeded(5))
  assert (who.name, who.company, who.city) == (
      setting.name, setting.company, setting.city,
  )  # fmt: skip
  assert all(isinstance(value, str) for value in who.record().values())
  topic = topic_of(setting)
  assert persona(setting, topic) == who
  other = next(t for t in TOPICS.values() if t.scenario != topic.scenario)
  elsewhere = persona(setting, other)
  assert elsewhere.occupation != who.occupation and elsewhere.habits == who.habits


def test_every_voice_keeps_the_request_whole():
  heard = Counter()
  for number in range(150):
    setting = Setting(f"v{number}", SPLITS[number % 2])
    who = persona(setting)
    told = speak(setting, who, SAID)
    assert told == speak(setting.reseeded(2), who, SAID)
    assert "{" not in told.replace('"{x}"', "")
    if who.style == "bulleted":
      assert "\n".join(f"- {line}" for line in SAID.split("\n")) in told
    else:
      assert f"\n{SAID}\n" in f"\n{told}\n"
    heard[who.style] += 1
    assert speak(setting, who, SAID, turn=1) != told or who.style == "terse"
  assert set(heard) == set(STYLES)


def test_a_text_to_be_copied_gets_no_dashes():
  said = "Write these lines to a.txt:\nfirst line\n  second line"
  for number in range(40):
    setting = Setting(f"c{number}", "train")
    assert said in speak(setting, persona(setting), said)


def test_surroundings_are_many_small_and_sometimes_large():
  drawn = [joined(_surrounded(f"w{n}", SPLITS[n % 2])).workspace for n in range(250)]
  sizes = [sum(map(len, files.values())) for files in drawn]
  assert statistics.median(map(len, drawn)) >= 8
  assert 2_000 <= min(sizes) < 4_000 and max(sizes) <= 5_500_000
  assert min(map(len, drawn)) < 4, "no workspace is new"
  assert max(sizes) >= 20 * statistics.median(sizes)
  suffixes = {path.rpartition("/")[2].rpartition(".")[2] for f in drawn for path in f}
  assert len(suffixes) >= 12


def test_surroundings_keep_out_of_the_folders_of_the_work():
  for number in range(40):
    work, beside = _surrounded(f"o{number}", SPLITS[number % 2])
    tops = {path.split("/")[0] for path in beside.workspace}
    assert tops.isdisjoint({"misc", "attic", "old"})
    assert not beside.calls and not beside.said and not beside.deliverables


def test_other_records_change_only_the_copies():
  copies = 0
  for number in range(30):
    _, one = _surrounded(f"r{number}", "train")
    work, other = _surrounded(f"r{number}", "train", reseed=1)
    assert one.workspace.keys() == other.workspace.keys()
    copies += sum("input" in path for path in other.workspace)
    lines = set(work.workspace["misc/input.csv"].splitlines())
    for path, data in other.workspace.items():
      if data != one.workspace[path]:
        assert "input" in path and set(data.splitlines()) <= lines
  assert copies


def test_no_copy_of_a_file_that_the_work_changes():
  for number in range(40):
    setting = Setting(f"u{number}", "train")
    work, _ = _surrounded(f"u{number}", "train")
    changed = dataclasses.replace(work, changed=frozenset(work.workspace))
    beside = surroundings(setting, topic_of(setting), changed)
    assert not any("input" in path for path in beside.workspace)


def test_it_is_one_world():
  for number in range(60):
    split = SPLITS[number % 2]
    setting = Setting(f"o{number}", split)
    who = persona(setting)
    _, beside = _surrounded(f"o{number}", split)
    for path, data in beside.workspace.items():
      mails = re.findall(rb"[a-z]+\.[a-z]+@" + setting.domain.encode(), data)
      for email in mails if b"\0" not in data else ():
        known = {setting.email(p) for p in (*setting.colleagues, setting.name)}
        assert email.decode() in known, path
      if path.startswith("memory/"):
        assert datetime.date.fromisoformat(path[7:17]) < setting.today
    if user := beside.workspace.get("USER.md", b"").decode():
      assert who.name in user and who.time_zone in user and who.habits[0] in user


def test_another_process_draws_the_same_bytes():
  code = "from tests.data_gen.test_worlds import digest; print(digest())"
  run = subprocess.run(
      [sys.executable, "-c", code],
      capture_output=True,
      text=True,
      timeout=120,
      check=True,
      env={**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "LC_ALL": "C"},
  )
  assert run.stdout.strip() == digest()
