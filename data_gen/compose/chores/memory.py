"""What a personal agent keeps for its user: memory, notes, lists, cards, dates."""

from __future__ import annotations

import datetime

from data_gen.compose.chores.registry import chore, kin, lines, text
from data_gen.compose.part import Part
from data_gen.compose.setting import Setting
from data_gen.draft import exec_call, read_call, write_call


def _phone(setting: Setting) -> str:
  return f"555-{setting.rng.randint(100, 999)}-{setting.number(1000, 9999)}"


@chore("memory keeping")
def remember(setting: Setting) -> Part:
  """One fact of MEMORY.md is no longer true."""
  facts = dict.fromkeys(("Parking space", "Door code", "Locker", "Desk", "Bus line"))
  facts = {fact: str(setting.integer(2, 900)) for fact in facts}
  fact, new = setting.rng.choice(sorted(facts)), str(setting.number(910, 1900))
  before = ["# Memory", "", *(f"- {f}: {v}" for f, v in facts.items())]
  after = [f"- {fact}: {new}" if b.startswith(f"- {fact}:") else b for b in before]
  said = setting.rng.choice((
      f"Remember for later: {fact.lower()} is {new} now. Correct MEMORY.md, whose line"
      " has the old one.",
      f"{fact} has changed to {new}; bring MEMORY.md up to date in its own line.",
      f"In MEMORY.md, put {new} for {fact.lower()}, in place of what it says.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          read_call("MEMORY.md"),
          exec_call(f"sed -i 's/^- {fact}: .*/- {fact}: {new}/' MEMORY.md"),
          read_call("MEMORY.md"),
      ],
      workspace={"MEMORY.md": text(before)},
      deliverables={"remember": lines("MEMORY.md", after)},
      done="MEMORY.md is up to date",
      changed=frozenset({"MEMORY.md"}),
  )


@chore("memory keeping")
def daily_note(setting: Setting) -> Part:
  """A line goes to the end of the day's note, which has some already."""
  day = setting.today.isoformat()
  path, who = f"memory/{day}.md", setting.colleagues[0]
  line = f"- {who}: {setting.word('chore')}, room {setting.number(10, 900)}"
  before = [f"# {day}", "", f"- Read {setting.integer(2, 90)} mails", "- Tidied up"]
  said = setting.rng.choice((
      f"Add the line \"{line}\" to the end of today's note {path}.",
      f"Note in {path}, as its last line: \"{line}\"",
      f"Put this at the end of {path} and leave what is there: \"{line}\"",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          read_call(path),
          exec_call(f"cat >> {path} <<'EOF'\n{line}\nEOF"),
          read_call(path),
      ],
      workspace={path: text(before)},
      deliverables={"daily_note": lines(path, [*before, line])},
      done=f"it is in {path}",
      changed=frozenset({path}),
  )


@chore("memory recall")
def recall(setting: Setting) -> Part:
  """A fact stands in one of many daily notes; later ones outweigh earlier ones."""
  project, path = setting.word("project"), f"answers/{setting.word('topic')}.txt"
  days = [setting.today - datetime.timedelta(days=back) for back in (24, 19, 15, 11, 6)]
  told = sorted(setting.data.sample(range(5), 2))
  files, answer = {}, ""
  for number, day in enumerate(days):
    body = [f"# {day}", "", f"- Read {setting.integer(2, 90)} mails"]
    if number in told:
      answer = str(setting.integer(100, 900))
      body.append(f"- Budget of {project}: {answer}")
    files[f"memory/{day}.md"] = text([*body, f"- Walked {setting.integer(2, 20)} km"])
  said = setting.rng.choice((
      f"The notes in memory/ say what the budget of {project} is; write the latest"
      f" figure, only the number, to {path}.",
      f"Look up the newest budget of {project} in the daily notes (memory/) and save"
      f" the number alone in {path}.",
      f"What was the last budget of {project} that I noted in memory/? Put just the"
      f" number into {path}.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"grep -rn {project} memory/ | sort"),
          exec_call(
              f"mkdir -p answers && grep -h 'Budget of {project}:' memory/*.md | tail"
              f" -n 1 | sed 's/.*: //' > {path}"
          ),
          read_call(path),
      ],
      workspace=files,
      deliverables={"recall": lines(path, [answer])},
      done=f"the budget is in {path}",
  )


@chore("memory keeping")
def tick_off(setting: Setting) -> Part:
  path = f"lists/{setting.word('topic')}.md"
  chores = setting.words("chore", 5)
  done = setting.rng.sample(chores, 2)
  before = ["# To do", ""]
  for task in chores:
    before.append(f"- [ ] {task} ({setting.integer(5, 90)} minutes)")
  after = [
      b.replace("[ ]", "[x]") if any(task in b for task in done) else b for b in before
  ]
  said = setting.rng.choice((
      f"\"{done[0]}\" and \"{done[1]}\" are done: tick them off in {path} ([x]).",
      f"In {path}, mark \"{done[0]}\" and \"{done[1]}\" with [x]; the others are open.",
      f"Tick \"{done[0]}\" and \"{done[1]}\" in {path}, that is [x] for [ ], no"
      " others.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          read_call(path),
          *(exec_call(f"sed -i 's/^- \\[ \\] {d} /- [x] {d} /' {path}") for d in done),
          read_call(path),
      ],
      workspace={path: text(before)},
      deliverables={"tick_off": lines(path, after)},
      done="both are ticked off",
      changed=frozenset({path}),
  )


@chore("contact keeping")
def new_phone(setting: Setting) -> Part:
  """One person's number in an address book."""
  path = f"contacts/{setting.word('topic')}.vcf"
  people = [setting.person() for _ in range(4)]
  who, new = setting.rng.choice(people), _phone(setting)
  before, after = [], []
  for person in people:
    card = ["BEGIN:VCARD", "VERSION:4.0", f"FN:{person}"]
    number = f"TEL:555-{setting.integer(100, 999)}-{setting.integer(1000, 9999)}"
    before += [*card, number, "END:VCARD"]
    after += [*card, f"TEL:{new}" if person == who else number, "END:VCARD"]
  said = setting.rng.choice((
      f"{who} has a new phone number, {new}: correct the card in {path}.",
      f"Change the TEL of {who} in {path} to {new} and no other card.",
      f"In the address book {path}, {who} is now reached at {new}; fix that.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"grep -n -A 1 'FN:{who}' {path}"),
          exec_call(f"sed -i '/^FN:{who}$/,/^END/ s/^TEL:.*/TEL:{new}/' {path}"),
          exec_call(f"grep -n -A 1 'FN:{who}' {path}"),
      ],
      workspace={path: text(before)},
      deliverables={"new_phone": lines(path, after)},
      done=f"{who} has the new number",
      changed=frozenset({path}),
  )


@chore("calendar keeping")
def move_event(setting: Setting) -> Part:
  """One event of a calendar file goes to another day."""
  path = f"calendar/{setting.word('topic')}.ics"
  titles = kin(setting, "meeting", 4, " ")
  title, day = setting.rng.choice(titles), setting.date()
  before, after = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//desk//EN"], []
  after += before
  for number, name in enumerate(titles, 1):
    old = setting.today + datetime.timedelta(days=setting.integer(1, 80))
    head = ["BEGIN:VEVENT", f"UID:{number}", f"SUMMARY:{name}"]
    kept = day if name == title else old
    before += [*head, f"DTSTART;VALUE=DATE:{old:%Y%m%d}", "END:VEVENT"]
    after += [*head, f"DTSTART;VALUE=DATE:{kept:%Y%m%d}", "END:VEVENT"]
  before.append("END:VCALENDAR")
  after.append("END:VCALENDAR")
  form = f"{day:%Y%m%d}"
  said = setting.rng.choice((
      f"Move \"{title}\" in {path} to {day} ({form} as the file writes it).",
      f"\"{title}\" is on {day} now, {form}: change its DTSTART in {path} and no"
      " other.",
      f"In {path}, the event \"{title}\" has to start on {day} ({form}); leave the"
      " rest.",
  ))  # fmt: skip
  start = "DTSTART;VALUE=DATE:"
  command = f"sed -i '/^SUMMARY:{title}$/,/^END/ s/^{start}.*/{start}{form}/' {path}"
  return Part(
      said=said,
      calls=[read_call(path), exec_call(command), read_call(path)],
      workspace={path: text(before)},
      deliverables={"move_event": lines(path, after)},
      done=f"\"{title}\" is on {day}",
      changed=frozenset({path}),
  )


@chore("file writing")
def minutes(setting: Setting) -> Part:
  """A new page of given parts."""
  title, room = setting.word("meeting"), setting.word("room")
  path = f"minutes/{setting.word('topic')}.md"
  people, tasks = setting.colleagues[:3], setting.words("chore", 2)
  body = [
      f"# {title}", "", f"Room: {room}", f"Date: {setting.today}", "", "## Present", "",
      *(f"- {person}" for person in people), "", "## Tasks", "",
      *(f"- {person}: {task}" for person, task in zip(people, tasks)),
  ]  # fmt: skip
  order = "title, then Room and Date, then the lists Present and Tasks"
  facts = (
      f"title \"{title}\", Room: {room}, Date: {setting.today}; Present: "
      f"{', '.join(people)}; Tasks: {people[0]}: {tasks[0]}, {people[1]}: {tasks[1]}"
  )
  template = "minutes/template.md"
  said = setting.rng.choice((
      f"Write {path} after {template} ({order}) with {facts}.",
      f"Fill in {template} as {path}: {facts}.",
      f"Make the minutes {path} in exactly the form of {template}: {facts}.",
  ))  # fmt: skip
  form = [
      "# TITLE", "", "Room: ROOM", "Date: DATE", "", "## Present", "", "- NAME", "",
      "## Tasks", "", "- NAME: TASK",
  ]  # fmt: skip
  return Part(
      said=said,
      calls=[
          read_call(template),
          write_call(path, text(body).decode()),
          read_call(path),
      ],
      workspace={template: text(form)},
      deliverables={"minutes": lines(path, body)},
      done=f"the minutes are {path}",
  )
