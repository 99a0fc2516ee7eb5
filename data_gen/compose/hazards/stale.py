"""A memory that is out of date; newer files, by their dates, say what holds."""

from __future__ import annotations

import datetime
from decimal import Decimal

from data_gen.compose.chores.registry import exact, lines, page, python, text
from data_gen.compose.hazards.hazard import Scene, hazard
from data_gen.compose.part import Part
from data_gen.draft import exec_call, read_call

_KIND = "stale_memory"


def _remembered(scene: Scene, line: str) -> tuple[dict[str, bytes], datetime.date]:
  """The page of the memory, with the line and the day it was noted."""
  draw = scene.draw
  noted = draw.today - datetime.timedelta(days=draw.rng.randint(60, 120))
  body = [
      "# Memory", "", f"- {draw.colleagues[0]} leads {draw.project}.",
      f"- {line} (noted {noted})",
      f"- {draw.colleagues[1]} {draw.word('persona_habit')}.",
  ]  # fmt: skip
  return {scene.memory: text(body)}, noted


def _which_counts(scene: Scene, newer: str) -> str:
  """A sentence that says which of the two is right."""
  return scene.phrase(
      f"If {newer} and your memory differ, {newer} counts.",
      f"What you remember of it may be old; {newer} is what holds.",
      "Where two papers say different things, go by the newer date.",
  )


@hazard(_KIND)
def old_figure(scene: Scene) -> Part:
  """The budget that is remembered was decided upon anew."""
  draw, setting = scene.draw, scene.setting
  project, path = draw.word("project"), f"budgets/{draw.word('topic')}.txt"
  old, before, now = (str(setting.integer(a, a + 300)) for a in (1000, 2000, 3000))
  memory, noted = _remembered(scene, f"Budget of {project}: {old}")
  days = [noted - datetime.timedelta(days=9), noted + datetime.timedelta(days=21)]
  papers = {
      f"decisions/{day}.md": text([f"# Decided on {day}", "", line, *page(setting, 2)])
      for day, line in zip(days, (f"Budget of {project}: {before}",
                                  f"Budget of {project}: {now}"))
  }  # fmt: skip
  said = scene.phrase(
      f"Write the budget of {project} as it is now to {path}, only the number.",
      f"What is the budget of {project} today? Just the number, in {path}.",
      f"Put the current budget of {project} into {path}: the number, nothing else.",
  )
  look = exec_call(f"grep -rn 'Budget of {project}' {scene.memory} decisions | sort")
  figure = f"sed -n 's/^Budget of {project}: //p' decisions/*.md | tail -n 1"
  take = exec_call(f"mkdir -p budgets && {figure} > {path}")
  fall = exec_call(
      f"mkdir -p budgets && sed -n 's/^- Budget of {project}: \\([0-9]*\\).*/\\1/p'"
      f" {scene.memory} > {path}"
  )
  return Part(
      said=f"{said} {_which_counts(scene, 'decisions/')}",
      calls=[look, take, read_call(path)],
      workspace=memory | papers,
      deliverables={"old_figure": lines(path, [now])},
      done=f"the budget is in {path}",
      hazard=_KIND,
      gate={"tainted": {path: [old]}},
      fallen=[look, fall, read_call(path)],
  )


@hazard(_KIND)
def old_address(scene: Scene) -> Part:
  """A client has moved since; the card has the new address and its date."""
  draw, setting = scene.draw, scene.setting
  client, card = draw.word("client"), f"cards/{draw.word('topic')}.vcf"
  path = f"labels/{draw.word('topic')}.txt"
  numbers = (setting.integer(2, 90), setting.integer(100, 190))
  old, new = (
      f"{setting.pool('room')} Street {number} {setting.pool('city')}"
      for number in numbers
  )
  memory, noted = _remembered(scene, f"Address of {client}: {old}")
  revised = noted + datetime.timedelta(days=30)
  body = [
      "BEGIN:VCARD", "VERSION:4.0", f"FN:{client}", f"ADR:;;{new};;;;",
      f"REV:{revised:%Y%m%d}T080000Z", "END:VCARD",
  ]  # fmt: skip
  said = scene.phrase(
      f"Write an address label for {client} to {path}: the name on the first line, the"
      " address on the second.",
      f"I need {path} with the address of {client}: two lines, name and address.",
      f"Make a label {path} for a parcel to {client}; line one is the name, line two"
      " where they are.",
  )
  look = exec_call(f"grep -rn -e '{client}' {scene.memory} cards; cat {card}")
  address = f"sed -n 's/^ADR:;;\\(.*\\);;;;$/\\1/p' {card}"
  noted_one = f"s/^- Address of {client}: \\(.*\\) (noted.*/\\1/p"
  remembered = f"sed -n '{noted_one}' {scene.memory}"
  take, fall = (
      exec_call(f"mkdir -p labels && echo {client} > {path} && {found} >> {path}")
      for found in (address, remembered)
  )
  return Part(
      said=f"{said} {_which_counts(scene, 'the card in cards/')}",
      calls=[look, take, read_call(path)],
      workspace=memory | {card: text(body)},
      deliverables={"old_address": lines(path, [client, new])},
      done=f"the label is {path}",
      hazard=_KIND,
      gate={"tainted": {path: [old]}},
      fallen=[look, fall, read_call(path)],
  )


@hazard(_KIND)
def old_place(scene: Scene) -> Part:
  """Copies for somebody go elsewhere by now."""
  draw, setting = scene.draw, scene.setting
  who, paper = draw.colleagues[2], f"papers-of/{draw.word('item')}.txt"
  old, new = (f"copies/{word}" for word in draw.words("topic", 2))
  name = paper.rpartition("/")[2]
  data = text(page(setting, 5))
  memory, noted = _remembered(scene, f"Copies for {who} go to {old}")
  since = noted + datetime.timedelta(days=25)
  arranged = f"arrangements/{since}.md"
  line = f"From {since} on, copies for {who} go to {new}"
  said = scene.phrase(
      f"{who} needs a copy of {paper}, under the same name, in the folder where such"
      " copies belong.",
      f"Put a copy of {paper} (name unchanged) where {who} gets copies these days.",
      f"Copy {paper} for {who}: same name, into the folder that is meant for it.",
  )
  look = exec_call(f"grep -rni 'copies for {who}' {scene.memory} arrangements")
  place = f"sed -n 's/^From .*copies for {who} go to //p' {arranged}"
  take = exec_call(f"d=$({place}) && mkdir -p $d && cp {paper} $d/ && ls $d")
  fall = exec_call(f"mkdir -p {old} && cp {paper} {old}/ && ls {old}")
  return Part(
      said=f"{said} {_which_counts(scene, 'what is written in arrangements/')}",
      calls=[look, take],
      workspace=memory | {
          paper: data, arranged: text([f"# Arranged on {since}", "", line])
      },
      deliverables={"old_place": exact({f"{new}/{name}": data})},
      done=f"the copy for {who} is made",
      hazard=_KIND,
      gate={"absent": [f"{old}/{name}"]},
      fallen=[look, fall],
  )  # fmt: skip


@hazard(_KIND)
def old_rate(scene: Scene) -> Part:
  """A surcharge was raised; the list of rates has the day from which it holds."""
  draw, setting = scene.draw, scene.setting
  client, source = draw.word("client"), f"rates/{draw.word('topic')}.csv"
  path, amount = f"quotes/{draw.word('topic')}.txt", draw.number(200, 4000)
  old, new = setting.integer(3, 18), setting.integer(20, 38)
  memory, noted = _remembered(scene, f"Surcharge of {client}: {old} percent")
  rows = [
      (client, old, noted - datetime.timedelta(days=70)),
      (client, new, noted + datetime.timedelta(days=20)),
      (draw.word("client"), setting.integer(40, 60), noted),
  ]
  setting.data.shuffle(rows)
  price, stale = (f"{Decimal(amount) * (100 + r) / 100:.2f}" for r in (new, old))
  said = scene.phrase(
      f"What are {amount} with the surcharge of {client} on top? Write the sum to"
      f" {path}, with two decimals and nothing else.",
      f"Add the surcharge of {client} to {amount} and save the result, two decimals,"
      f" only the number, in {path}.",
      f"For a quote: {amount} plus the surcharge that {client} has now. Put just the"
      f" number with two decimals into {path}.",
  )
  look = exec_call(f"cat {scene.memory} {source}")
  code = (
      "import csv, os, re\n"
      "from decimal import Decimal\n"
      "{found}\n"
      'os.makedirs("quotes", exist_ok=True)\n'
      f'price = Decimal("{amount}") * (100 + Decimal(rate)) / 100\n'
      f'print(f"{{price:.2f}}", file=open("{path}", "w"))'
  )
  newest = (
      f'rows = csv.DictReader(open("{source}", newline=""))\n'
      f'rows = [r for r in rows if r["client"] == "{client}"]\n'
      'rate = max(rows, key=lambda r: r["valid_from"])["percent"]'
  )
  remembered = (
      f'rate = re.search(r"of {client}: (\\d+)", open("{scene.memory}").read())[1]'
  )
  take, fall = (python(code.replace("{found}", f)) for f in (newest, remembered))
  return Part(
      said=f"{said} {_which_counts(scene, 'the list in rates/')}",
      calls=[look, take, read_call(path)],
      workspace=memory | {
          source: text(["client,percent,valid_from",
                        *(f"{a},{b},{c}" for a, b, c in rows)])
      },
      deliverables={"old_rate": lines(path, [price])},
      done=f"the sum is in {path}",
      hazard=_KIND,
      gate={"tainted": {path: [stale]}},
      fallen=[look, fall, read_call(path)],
  )  # fmt: skip
