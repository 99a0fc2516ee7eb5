"""What else lies in the workspace: the agent's own pages, papers, copies, old versions.

All of it belongs to the one world of the task (its people, company, project
and day), none of it is needed, and nothing in it asks for anything or says
how a request is to be read. No file of it lies in a folder that the work
reads from or writes to. The size has long tails: some ten KB mostly, nothing at
all where a workspace is new, a log of several MB once in some hundred tasks.
"""

from __future__ import annotations

import datetime
from pathlib import PurePosixPath

from data_gen.compose.kinds import KINDS
from data_gen.compose.papers import PAPERS, log_lines
from data_gen.compose.part import Part
from data_gen.compose.personas import Persona, persona
from data_gen.compose.setting import Setting
from data_gen.compose.topics import TOPICS, Topic

_NEW_CHANCE = 0.03  # of a workspace that holds nothing but what the work needs
# Chance of a page in the root of the workspace, and of notes of the last days.
_PAGES = {"AGENTS.md": 0.7, "USER.md": 0.75, "SOUL.md": 0.35, "MEMORY.md": 0.6}
_NOTES_CHANCE = 0.6
# Chances of a log's number of lines; a line has about 60 bytes.
_LOG_LINES = (
    (0.005, 30_000, 85_000),
    (0.03, 3_000, 14_000),
    (0.15, 500, 2_000),
    (1.0, 12, 120),
)
_LOG_CHANCE = 0.5
_STALE_CHANCE, _COPY_CHANCE = 0.4, 0.25
_LINED = {".csv": 1, ".tsv": 1, ".jsonl": 0, ".log": 0}  # suffix -> lines of header
_COPIED = (*_LINED, ".json", ".xml", ".html", ".db", ".xlsx", ".docx", ".ics", ".vcf")
_LARGEST_COPY = 200_000  # bytes
_TABLE_KINDS = (
    "csv", "csv", "csv", "tsv", "json", "jsonl", "markdown", "xml", "html", "yaml",
    "sqlite", "xlsx", "docx", "pdf", "ics", "vcard", "mbox", "zip",
)  # fmt: skip


def surroundings(setting: Setting, topic: Topic, work: Part) -> Part:
  """The files beside those of `work`, whose records are of `topic`."""
  if setting.beside("new workspace").coin(_NEW_CHANCE):
    return Part("", [], {}, {}, "")
  draw = setting.beside("surroundings")
  claimed = {path.split("/")[0] for path in _paths(work)}
  files = _pages(draw, persona(setting, topic))
  if draw.coin(_NOTES_CHANCE):
    files |= _daily_notes(draw)
  folders = [f for f in draw.words("side_folder", 5) if f not in claimed][:3]
  for name, data in (
      *_papers(draw),
      *_tables(setting, draw, topic),
      *_copies(setting, draw, work),
  ):
    files.setdefault(f"{draw.rng.choice(folders)}/{name}", data)
  kept = {p: files[p] for p in sorted(files) if p.split("/")[0] not in claimed}
  return Part("", [], kept, {}, "")


def _paths(work: Part) -> set[str]:
  """The paths of the work's inputs and results."""
  paths = {*work.workspace, *work.leaves}
  for spec in work.deliverables.values():
    paths |= {spec.get("path", ""), *spec.get("files", ())}
  return paths


def _pages(draw: Setting, who: Persona) -> dict[str, bytes]:
  """The pages that a Claw agent keeps in the root of its workspace."""
  texts = {
      "AGENTS.md": (
          f"# Working for {who.name}\n\n"
          "- What the user asks for comes first.\n"
          "- Look at a file before changing it.\n"
          "- Scratch files belong in /tmp, not here.\n"
          "- `memory/` has the notes of the last days, if there are any.\n"
      ),
      "USER.md": (
          f"# About {who.name}\n\n"
          f"- Call them {draw.first}.\n"
          f"- {who.occupation.capitalize()} at {who.company}, {who.city},"
          f" {who.country}.\n"
          f"- Time zone {who.time_zone}, language {who.locale}; writes to you in"
          " English.\n"
          f"- One who {who.habits[0]} and {who.habits[1]}.\n"
          f"- Works with {who.tools[0]} and {who.tools[1]}.\n"
      ),
      "SOUL.md": (
          "# Tone\n\n"
          f"Be {draw.word('tone_word')} and {draw.word('tone_word')}. Say what was"
          " done, then stop.\n"
      ),
      "MEMORY.md": (
          "# Memory\n\n"
          f"- {draw.first} {who.context}.\n"
          f"- {draw.colleagues[0]} leads {draw.project}; {draw.colleagues[1]} covers"
          " the phone.\n"
          f"- Mail of the company ends in @{draw.domain}.\n"
          f"- {draw.colleagues[2]} {draw.word('persona_habit')}.\n"
      ),
  }
  return {
      path: text.encode() for path, text in texts.items() if draw.coin(_PAGES[path])
  }


def _daily_notes(draw: Setting) -> dict[str, bytes]:
  """Notes of some of the last days, one a file."""
  files = {}
  for back in sorted(draw.rng.sample(range(1, 9), draw.rng.randint(1, 4))):
    day = (draw.today - datetime.timedelta(days=back)).isoformat()
    lines = [
        f"- {draw.rng.choice(draw.colleagues)}: {draw.pool('note_work')}"
        f" {draw.pool('about_work')}"
        for _ in range(draw.rng.randint(1, 3))
    ]
    lines.append(f"- Small talk: {draw.pool('small_talk')}")
    files[f"memory/{day}.md"] = "\n".join([f"# {day}", "", *lines, ""]).encode()
  return files


def _papers(draw: Setting) -> list[tuple[str, bytes]]:
  names = draw.rng.sample(sorted(PAPERS), draw.rng.randint(3, 7))
  papers = [PAPERS[name](draw) for name in names]
  if draw.coin(_LOG_CHANCE):
    chance = draw.rng.random()
    low, high = next((a, b) for limit, a, b in _LOG_LINES if chance < limit)
    papers.append(log_lines(draw, draw.rng.randint(low, high)))
  return [(name, text.encode()) for name, text in papers]


def _tables(
    setting: Setting, draw: Setting, topic: Topic
) -> list[tuple[str, bytes]]:
  """Records of other topics, the same trade's more often than not."""
  others = [TOPICS[name] for name in sorted(TOPICS) if name != topic.name]
  near = [t for t in others if t.scenario == topic.scenario]
  found = []
  for number in range(draw.rng.choice((0, 1, 1, 2, 2, 3))):
    other = draw.rng.choice(near if draw.coin(0.6) else others)
    kind = KINDS[draw.rng.choice(_TABLE_KINDS)]
    name = f"{draw.rng.choice(other.stems)}{kind.suffix}"
    table = other.draw(setting.beside(f"table {number}"), draw.rng.randint(8, 40))
    if kind.fits(table):
      found.extend(kind.write(kind.order(table), name).items())
  return found


def _copies(setting: Setting, draw: Setting, work: Part) -> list[tuple[str, bytes]]:
  """An old version of one record file, and one once more; never of a file that
  the work changes, nor of settings, notes and mails, which may be part of it."""
  inputs = work.workspace
  small = [
      path
      for path in sorted(inputs)
      if path.endswith(_COPIED)
      and path not in work.changed
      and len(inputs[path]) <= _LARGEST_COPY
  ]
  stale, copy = draw.coin(_STALE_CHANCE), draw.coin(_COPY_CHANCE)
  found = []
  lined = [p for p in small if PurePosixPath(p).suffix in _LINED]
  if stale and lined:
    path = PurePosixPath(draw.rng.choice(lined))
    day = draw.today - datetime.timedelta(days=draw.rng.randint(20, 200))
    old = _older(setting.beside("stale"), inputs[str(path)], path.suffix)
    found.append((f"{path.stem}-{day.isoformat()}{path.suffix}", old))
  if copy and small:
    path = PurePosixPath(draw.rng.choice(small))
    found.append((f"copy-of-{path.name}", inputs[str(path)]))
  return found


def _older(draw: Setting, data: bytes, suffix: str) -> bytes:
  """Lines dropped here and there; all where a line may not be a record."""
  if b"\0" in data or (b'"' in data and suffix in (".csv", ".tsv")):
    return data
  lines = data.splitlines(keepends=True)
  header = _LINED[suffix]
  kept = [line for line in lines[header:] if draw.coin(0.65)]
  return b"".join([*lines[:header], *kept])
