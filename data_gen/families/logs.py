"""Logs and plain text: count, filter, sort, replace. One shell command each."""

from __future__ import annotations

import datetime

from data_gen.draft import Draft, exec_call, family, number, text
from data_gen.world import World

_EVENTS = (
    "request served",
    "connection opened",
    "queue drained",
    "session closed",
    "index rebuilt",
    "snapshot stored",
    "token renewed",
)
_SYSTEMS = {"category": "systems and infrastructure", "macro": "Systems & Automation"}


def _log(world: World, lines: int) -> tuple[list[str], list[str]]:
  """Timestamps and messages of `lines` log lines."""
  clock = datetime.datetime.combine(world.today, datetime.time(6, 0))
  stamps, messages = [], []
  for _ in range(lines):
    clock += datetime.timedelta(seconds=world.rng.randint(5, 400))
    stamps.append(clock.isoformat(sep=" "))
    messages.append(world.rng.choice(_EVENTS))
  return stamps, messages


@family(
    **_SYSTEMS,
    operations="log_analysis file_write",
    calls=1,
    templates=(
        "How many lines of {log} contain {word}? Put just the number in {result}.",
        "Count the lines with {word} in {log} and write the count to {result}.",
        "I need a {word} count: go through {log} and save the number as {result}.",
        "In {result}, write how many {word} lines there are in {log}.",
        "Please count the {word} lines in {log}; only the number goes into {result}.",
        "Check {log} for {word}. The number of lines that have it belongs in {result}.",
        "{log} has some {word} lines. Count them, and store the count in {result}.",
    ),
    goal="Count the log lines with a word and write the number to a file.",
    bullets=(("log", "log"), ("word", "word"), ("number goes to", "result")),
    vocabulary="grep",
)
def log_count(world: World) -> Draft:
  service, other = world.words("service", 2)
  word = world.word("level")
  levels = [word] * world.rng.randint(2, 9) + ["INFO"] * world.rng.randint(6, 12)
  levels += [world.word("level")] * world.rng.randint(1, 4)
  world.rng.shuffle(levels)
  rows = zip(*_log(world, len(levels)), levels, strict=True)
  log = f"logs/{service}.log"
  result = f"{world.word('target')}/{word.lower()}.txt"
  return Draft(
      facts={"log": log, "word": word, "result": result},
      workspace={
          log: "".join(f"{stamp} {level} {m}\n" for stamp, m, level in rows),
          f"logs/{other}.log": _info_log(world),
          f"{result.split('/')[0]}/README.md": f"Results for {world.project}.\n",
      },
      calls=[exec_call(f"grep -c {word} {log} > {result}")],
      deliverables={"count": number(result, levels.count(word))},
      final_message=f"Done, the count is in {result}.",
  )


@family(
    **_SYSTEMS,
    operations="log_analysis file_write",
    calls=1,
    templates=(
        "Copy every line of {log} that mentions {word} into {result}.",
        "Filter {log}: the lines with {word} should end up in {result}.",
        "Find all lines about {word} in {log} and save them, unchanged, as {result}.",
        "I want {result} to hold just the lines of {log} with {word} in them.",
        "Please pull the {word} lines out of {log} into {result}.",
        "{log} is long. Put only its lines that contain {word} into {result}.",
        "Make {result} from {log}: keep the lines mentioning {word}, nothing else.",
    ),
    goal="Save the log lines that mention an id to a file, unchanged.",
    bullets=(("log", "log"), ("id", "word"), ("save to", "result")),
    vocabulary="grep",
)
def log_trace(world: World) -> Draft:
  service, other = world.words("service", 2)
  ids = [f"req-{world.number(100, 999)}" for _ in range(4)]
  count = world.rng.randint(14, 20)
  owners = [ids[i % 4] for i in range(count)]
  world.rng.shuffle(owners)
  rows = zip(*_log(world, count), owners, strict=True)
  lines = [(owner, f"{stamp} {owner} {message}\n") for stamp, message, owner in rows]
  log, word = f"logs/{service}.log", ids[0]
  result = f"{world.word('target')}/{world.word('topic')}.log"
  return Draft(
      facts={"log": log, "word": word, "result": result},
      workspace={
          log: "".join(line for _, line in lines),
          f"logs/{other}.log": _info_log(world),
          f"{result.split('/')[0]}/README.md": f"Traces for {world.project}.\n",
      },
      calls=[exec_call(f"grep {word} {log} > {result}")],
      deliverables={
          "lines": text(result, "".join(line for owner, line in lines if owner == word))
      },
      final_message=f"Done, the lines are in {result}.",
  )


@family(
    category="office and daily tasks",
    macro="Productivity & Collaboration",
    operations="text_processing file_write",
    calls=1,
    templates=(
        "Sort {source} and drop the duplicate lines; the clean list goes to {result}.",
        "{source} has duplicates. Write a sorted list without them to {result}.",
        "Make {result}: the lines of {source}, sorted, each one only once.",
        "Please deduplicate {source}, sort it, and save it as {result}.",
        "I need each line of {source} once, in alphabetical order, in {result}.",
        "Clean up {source} into {result}: alphabetical, no line twice.",
        "Take {source}, remove repeated lines, sort the rest, and store that in {result}.",
    ),
    goal="Sort a list and remove duplicate lines.",
    bullets=(("list", "source"), ("clean list goes to", "result")),
    vocabulary="sort",
)
def list_dedupe(world: World) -> Draft:
  topic, other = world.words("topic", 2)
  names = [world.word("last") for _ in range(world.rng.randint(6, 9))]
  lines = names + world.rng.sample(names, 3)
  world.rng.shuffle(lines)
  folder = world.word("folder")
  source = f"{folder}/{topic}.txt"
  result = f"{world.word('target')}/{topic}.txt"
  return Draft(
      facts={"source": source, "result": result},
      workspace={
          source: "\n".join(lines) + "\n",
          f"{folder}/{other}.txt": "\n".join(world.words("item", 5)) + "\n",
          f"{result.split('/')[0]}/README.md": f"Lists for {world.project}.\n",
      },
      calls=[exec_call(f"sort -u {source} > {result}")],
      deliverables={"list": text(result, "\n".join(sorted(names)))},
      final_message=f"Done, the clean list is in {result}.",
  )


@family(
    category="professional domain support",
    macro="Content & Domain",
    operations="text_processing file_edit",
    calls=1,
    templates=(
        "{old} is now called {new}. Replace every {old} in {source}.",
        "In {source}, change all mentions of {old} to {new}.",
        "Please replace {old} with {new} everywhere in {source}.",
        "{source} still says {old}. It has to say {new} throughout.",
        "Swap the name {old} for {new} in {source}, every time it appears.",
        "Update {source}: {old} was renamed, so each {old} becomes {new}.",
        "Edit {source} so that {new} stands wherever {old} stands now.",
    ),
    goal="Replace a name everywhere in one document.",
    bullets=(("document", "source"), ("old name", "old"), ("new name", "new")),
    vocabulary="sed",
)
def replace_name(world: World) -> Draft:
  old, new, third = world.words("client", 3)
  topic, other = world.words("topic", 2)
  source = f"docs/{topic}.md"

  def page(name: str) -> str:
    return (
        f"# Agreement with {name}\n\n"
        f"{name} and {world.company} work together on {world.project}.\n"
        f"{third} delivers to {world.city}; {name} pays within 30 days.\n"
        f"Contact at {name}: {person}.\n"
    )

  person = world.person()
  return Draft(
      facts={"source": source, "old": old, "new": new},
      workspace={
          source: page(old),
          f"docs/{other}.md": f"# Older offer\n\n{old} declined in {world.city}.\n",
      },
      calls=[exec_call(f"sed -i 's/{old}/{new}/g' {source}")],
      deliverables={"document": text(source, page(new))},
      changed=frozenset({source}),
      final_message=f"Done, {source} now says {new} throughout.",
  )


@family(
    category="office and daily tasks",
    macro="Productivity & Collaboration",
    operations="text_processing file_write",
    calls=1,
    templates=(
        "Join {first} and {second}, in this order, into {result}.",
        "Put {first} followed by {second} together in one file, {result}.",
        "{result} should be {first} first, then {second} right after it.",
        "Please combine {first} and then {second} as {result}.",
        "Append {second} to {first}, but save the whole as {result}, not in place.",
        "Merge two files for me: {first}, then {second}. The merged one is {result}.",
        "I'd like {first} and below it {second}, all in {result}.",
    ),
    goal="Join two files into a new one, in this order.",
    bullets=(("first", "first"), ("second", "second"), ("joined file", "result")),
    vocabulary="cat",
)
def join_files(world: World) -> Draft:
  one, two, other, name = world.words("topic", 4)
  folder = world.word("folder")
  first, second = f"{folder}/{one}.txt", f"{folder}/{two}.txt"
  result = f"{world.word('target')}/{name}.txt"
  parts = [
      f"{topic}, seen {world.date().isoformat()}\n"
      + "".join(f"{item}: {world.number(2, 90)}\n" for item in world.words("item", 3))
      for topic in (one, two, other)
  ]
  return Draft(
      facts={"first": first, "second": second, "result": result},
      workspace={
          first: parts[0],
          second: parts[1],
          f"{folder}/{other}.txt": parts[2],
          f"{result.split('/')[0]}/README.md": f"For {world.project}.\n",
      },
      calls=[exec_call(f"cat {first} {second} > {result}")],
      deliverables={"joined": text(result, parts[0] + parts[1])},
      final_message=f"Done, both are together in {result}.",
  )


def _info_log(world: World) -> str:
  stamps, messages = _log(world, 6)
  return "".join(f"{s} INFO {m}\n" for s, m in zip(stamps, messages, strict=True))
