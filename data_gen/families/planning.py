"""Markdown lists and calendars (ICS)."""

from __future__ import annotations

import datetime

from data_gen.draft import (
    Draft,
    edit_call,
    exec_call,
    family,
    number,
    read_call,
    text,
    write_call,
)
from data_gen.world import World

_PLANNING = {
    "category": "planning and knowledge organisation",
    "macro": "Planning & Knowledge",
}


def _todo(chores: list[str], done: set[str]) -> list[str]:
  return [f"- [{'x' if chore in done else ' '}] {chore}" for chore in chores]


@family(
    **_PLANNING,
    operations="markdown file_write",
    calls=1,
    templates=(
        "Copy the open items, lines with - [ ], from {source} to {result}.",
        "Which to-dos in {source} are still open (- [ ])? Save those lines as {result}.",
        "Put all unchecked - [ ] lines of {source} into {result}.",
        "I want only what's left to do from {source}, the - [ ] lines, in {result}.",
        "Please collect the open - [ ] entries of {source} in {result}.",
        "{result} should list the lines of {source} that are still - [ ].",
    ),
    goal="Save the open to-do lines, those with - [ ], to a file.",
    bullets=(("to-do list", "source"), ("open lines go to", "result")),
    vocabulary="grep",
)
def open_items(world: World) -> Draft:
  topic = world.word("topic")
  chores = world.words("chore", world.rng.randint(5, 7))
  done = set(world.rng.sample(chores, 2))
  source = f"notes/{topic}.md"
  result = f"{world.word('target')}/{topic}.md"
  lines = _todo(chores, done)
  return Draft(
      facts={"source": source, "result": result},
      workspace={
          source: f"# To do for {world.project}\n\n" + "\n".join(lines) + "\n",
          f"{result.split('/')[0]}/README.md": f"Lists for {world.project}.\n",
      },
      calls=[exec_call(f"grep -F -e '- [ ]' {source} > {result}")],
      deliverables={
          "open": text(result, "\n".join(f"- [ ] {c}" for c in chores if c not in done))
      },
      final_message=f"Done, the open items are in {result}.",
  )


@family(
    **_PLANNING,
    operations="markdown file_edit",
    calls=1,
    templates=(
        "Tick off [ ] {chore} in {source}; make it [x].",
        "'{chore}' is done. In {source}, turn its [ ] into [x].",
        "In {source}, mark the item [ ] {chore} as [x].",
        "Please check the box of '{chore}' in {source}, from [ ] to [x].",
        "We finished this one: '{chore}'. Its [ ] in {source} should be [x].",
        "Edit {source} so that '{chore}' is ticked, [x] instead of [ ].",
    ),
    goal="Tick one to-do item, [ ] becomes [x].",
    bullets=(("to-do list", "source"), ("item", "chore")),
    vocabulary="",
)
def tick_item(world: World) -> Draft:
  topic = world.word("topic")
  chores = world.words("chore", world.rng.randint(4, 6))
  done, chore = {chores[0]}, world.rng.choice(chores[1:])
  source = f"notes/{topic}.md"
  head = f"# To do for {world.project}\n\n"
  return Draft(
      facts={"source": source, "chore": chore},
      workspace={
          source: head + "\n".join(_todo(chores, done)) + "\n",
          f"notes/{world.word('topic')}.md": f"# Ideas\n\n- [ ] {chores[0]}\n",
      },
      calls=[edit_call(source, f"[ ] {chore}", f"[x] {chore}")],
      deliverables={
          "list": text(source, head + "\n".join(_todo(chores, {*done, chore})))
      },
      changed=frozenset({source}),
      final_message=f"Done, {chore} is ticked in {source}.",
  )


def _calendar(world: World, titles: list[str]) -> tuple[str, dict[str, str]]:
  """An ICS file with one event a title, and the room of each."""
  rooms = dict(zip(titles, world.words("room", len(titles)), strict=True))
  events = []
  for i, title in enumerate(titles):
    day = world.today + datetime.timedelta(days=i)
    events.append(
        "BEGIN:VEVENT\n"
        f"DTSTART:{day:%Y%m%d}T{world.rng.randint(8, 17):02d}0000\n"
        f"SUMMARY:{title}\n"
        f"LOCATION:Room {rooms[title]}\n"
        "END:VEVENT\n"
    )
  body = "".join(events)
  return f"BEGIN:VCALENDAR\nVERSION:2.0\n{body}END:VCALENDAR\n", rooms


@family(
    **_PLANNING,
    operations="calendar file_write",
    calls=1,
    templates=(
        "Count the events (BEGIN:VEVENT) in {source} and write the number to {result}.",
        "How many BEGIN:VEVENT entries does {source} have? The number goes in {result}.",
        "Please put the number of events, BEGIN:VEVENT lines, of {source} in {result}.",
        "{result} should say how many BEGIN:VEVENT blocks are in {source}.",
        "Check my calendar {source}: count each BEGIN:VEVENT and save the count as"
        " {result}.",
        "I need to know how full {source} is. Write its BEGIN:VEVENT count to {result}.",
    ),
    goal="Count the events (BEGIN:VEVENT) of a calendar.",
    bullets=(("calendar", "source"), ("number goes to", "result")),
    vocabulary="grep",
)
def count_events(world: World) -> Draft:
  topic, other = world.words("topic", 2)
  titles = world.words("meeting", world.rng.randint(2, 5))
  source = f"calendar/{topic}.ics"
  result = f"{world.word('target')}/{topic}.txt"
  return Draft(
      facts={"source": source, "result": result},
      workspace={
          source: _calendar(world, titles)[0],
          f"calendar/{other}.ics": "BEGIN:VCALENDAR\nVERSION:2.0\nEND:VCALENDAR\n",
          f"{result.split('/')[0]}/README.md": f"For {world.project}.\n",
      },
      calls=[exec_call(f"grep -c BEGIN:VEVENT {source} > {result}")],
      deliverables={"count": number(result, len(titles))},
      final_message=f"Done, the number of events is in {result}.",
  )


@family(
    **_PLANNING,
    operations="calendar text_reading file_write",
    calls=2,
    templates=(
        "Where is the {title}? Look in {source} and write the location to {result}.",
        "Read {source} and save the location of the {title} in {result}.",
        "I forgot the room of the {title}. It's in {source}; put it in {result}.",
        "Please find the LOCATION of the {title} in {source} and write it to {result}.",
        "{result} should name the location of the {title}, see {source}.",
        "Check {source} for the {title} and note its location in {result}.",
    ),
    goal="Find where a meeting takes place and write the location to a file.",
    bullets=(("meeting", "title"), ("calendar", "source"), ("write to", "result")),
    vocabulary="",
)
def event_room(world: World) -> Draft:
  topic = world.word("topic")
  titles = world.words("meeting", 3)
  title = world.rng.choice(titles)
  source = f"calendar/{topic}.ics"
  result = f"{world.word('target')}/{topic}.txt"
  calendar, rooms = _calendar(world, titles)
  room = f"Room {rooms[title]}"
  return Draft(
      facts={"source": source, "title": title, "result": result},
      workspace={
          source: calendar,
          f"{result.split('/')[0]}/README.md": f"For {world.project}.\n",
      },
      calls=[read_call(source), write_call(result, room)],
      deliverables={"room": text(result, room)},
      final_message=f"Done, the {title} is in {room}.",
  )
