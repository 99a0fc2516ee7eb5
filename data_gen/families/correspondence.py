"""Mail and people: search, look up, answer."""

from __future__ import annotations

import json

from data_gen.draft import (
    Draft,
    exec_call,
    family,
    number,
    read_call,
    table,
    text,
    write_call,
)
from data_gen.families.tables import TOTAL_PY, ledger
from data_gen.world import World

_MAIL = {
    "category": "external communication",
    "macro": "Productivity & Collaboration",
}


def _mail(world: World, sender: str, subject: str, body: str) -> str:
  return (
      f"From: {sender} <{world.email(sender)}>\n"
      f"To: {world.name} <{world.email(world.name)}>\n"
      f"Subject: {subject}\n\n{body}\n"
  )


@family(
    category="information retrieval",
    macro="Content & Domain",
    operations="email_search file_write",
    calls=1,
    templates=(
        "Which mails in mail/*.eml mention {word}? List their paths in {result}.",
        "Find the messages in mail/*.eml with {word} in them; their paths go to {result}.",
        "Search mail/*.eml for {word} and save the paths of the matching files as"
        " {result}.",
        "I need the paths of the mail/*.eml files that contain {word}, in {result}.",
        "Please write the paths of all mail/*.eml that talk about {word} to {result}.",
        "{result} should list the path of each mail/*.eml in which {word} occurs.",
    ),
    goal="List the paths of the mails that mention a name.",
    bullets=(("search in", "pattern"), ("word", "word"), ("list goes to", "result")),
    vocabulary="grep",
)
def find_mail(world: World) -> Draft:
  word, other = world.words("client", 2)
  topics = world.words("topic", 4)
  chosen = set(world.rng.sample(topics, 2))
  mails = {
      f"mail/{topic}.eml": _mail(
          world,
          world.rng.choice(world.colleagues),
          f"About {world.project}",
          f"Hi {world.first}, {word if topic in chosen else other} called about"
          f" {world.project}.",
      )
      for topic in topics
  }
  result = f"{world.word('target')}/{word.lower()}.txt"
  return Draft(
      facts={"word": word, "result": result, "pattern": "mail/*.eml"},
      workspace={
          **mails,
          f"{result.split('/')[0]}/README.md": f"For {world.project}.\n",
      },
      calls=[exec_call(f"grep -l {word} mail/*.eml > {result}")],
      deliverables={
          "names": text(result, "\n".join(sorted(f"mail/{t}.eml" for t in chosen)))
      },
      final_message=f"Done, the list is in {result}.",
  )


@family(
    category="information retrieval",
    macro="Content & Domain",
    operations="email_reading file_write",
    calls=2,
    templates=(
        "Read {mail} and write the booking code from it to {result}.",
        "There's a booking code in {mail}. Save just the code in {result}.",
        "{sender} sent me a booking code, see {mail}; put it in {result}.",
        "Please take the booking code out of {mail} and store it as {result}.",
        "I need the booking code of {mail} in {result}, nothing else in it.",
        "What's the booking code in {mail}? Write it to {result}.",
    ),
    goal="Find the booking code in a mail and write it to a file.",
    bullets=(("mail", "mail"), ("code goes to", "result")),
    vocabulary="",
)
def booking_code(world: World) -> Draft:
  topic, other = world.words("topic", 2)
  sender = world.colleagues[0]
  code = f"{world.word('client')[:3].upper()}-{world.number(1000, 9999)}"
  mail = f"mail/{topic}.eml"
  result = f"{world.word('target')}/{topic}.txt"
  return Draft(
      facts={"mail": mail, "sender": sender, "result": result},
      workspace={
          mail: _mail(
              world,
              sender,
              f"Trip to {world.word('city')}",
              f"Hi {world.first}, room for {world.number(2, 40)} is reserved.\n"
              f"Booking code: {code}\nSee you, {sender.split()[0]}",
          ),
          f"mail/{other}.eml": _mail(
              world, world.colleagues[1], "Lunch", "Friday at noon works."
          ),
          f"{result.split('/')[0]}/README.md": f"For {world.project}.\n",
      },
      calls=[read_call(mail), write_call(result, code)],
      deliverables={"code": text(result, code)},
      final_message=f"Done, the booking code {code} is in {result}.",
  )


@family(
    category="information retrieval",
    macro="Content & Domain",
    operations="json_processing file_write",
    calls=2,
    templates=(
        "Look up the phone of {person} in {source} and write it to {result}.",
        "What is the phone number of {person}? See {source}; save it in {result}.",
        "{source} has the phone of {person}. Put only the number in {result}.",
        "Please find {person} in {source} and store the phone number as {result}.",
        "I have to call {person}. Read {source} and write the phone to {result}.",
        "{result} should hold the phone of {person}, taken from {source}.",
    ),
    goal="Look up a person's phone number and write it to a file.",
    bullets=(("person", "person"), ("directory", "source"), ("write to", "result")),
    vocabulary="",
)
def phone_lookup(world: World) -> Draft:
  topic, other = world.words("topic", 2)
  people = [
      {"name": world.person(), "phone": f"555-{world.number(1000, 9999)}"}
      for _ in range(3)
  ]
  wanted = world.rng.choice(people)
  source = f"{world.word('folder')}/{topic}.json"
  result = f"{world.word('target')}/{topic}.txt"
  rows = ",\n".join(" " + json.dumps(person) for person in people)
  return Draft(
      facts={"person": wanted["name"], "source": source, "result": result},
      workspace={
          source: f"[\n{rows}\n]\n",
          f"notes/{other}.md": f"Phones change every spring, ask {world.colleagues[0]}.\n",
          f"{result.split('/')[0]}/README.md": f"For {world.project}.\n",
      },
      calls=[read_call(source), write_call(result, wanted["phone"])],
      deliverables={"phone": text(result, wanted["phone"])},
      final_message=f"Done, the number {wanted['phone']} is in {result}.",
  )


@family(
    **_MAIL,
    operations="email_reading csv_analysis script_run file_write",
    calls=3,
    templates=(
        "{mail} asks for the total of a column in {source}. Get it with tools/total.py"
        " FILE COLUMN and write only the number to {result}.",
        "Read {mail}: it names a column of {source}. Total that with tools/total.py FILE"
        " COLUMN; the number goes in {result}.",
        "Answer {mail}: run tools/total.py FILE COLUMN on {source} for the column it"
        " names, then write the number to {result}.",
        "{sender} needs a total from {source}, see {mail}. Use tools/total.py FILE"
        " COLUMN, then save the number in {result}.",
        "Please open {mail}, total the requested column of {source} (tools/total.py FILE"
        " COLUMN) and put the number in {result}.",
        "For the question in {mail}, add up the column of {source} using tools/total.py"
        " FILE COLUMN and write the sum to {result}.",
    ),
    goal="Read the mail, total the column it asks for with tools/total.py FILE COLUMN,"
    " write the number to the answer file.",
    bullets=(("mail", "mail"), ("file", "source"), ("answer", "result")),
    vocabulary="python3",
)
def answer_total(world: World) -> Draft:
  topic, stem = world.word("topic"), world.word("stem")
  column, second = world.words("amount", 2)
  sender = world.colleagues[3]
  mail, source = f"mail/{topic}.eml", f"{world.word('folder')}/{stem}.csv"
  result = f"{world.word('target')}/{topic}.txt"
  rows, total = ledger(world, column, world.rng.randint(3, 5))
  rows = [[*row, str(world.number(1, 60))] for row in rows]
  return Draft(
      facts={"mail": mail, "source": source, "sender": sender, "result": result},
      workspace={
          mail: _mail(
              world,
              sender,
              f"{stem} for {world.project}",
              f"Hi {world.first}, what is the total of the column {column} this month?",
          ),
          source: table(["date", "client", column, second], rows),
          "tools/total.py": TOTAL_PY,
          f"{result.split('/')[0]}/README.md": f"Answers for {world.project}.\n",
      },
      calls=[
          read_call(mail),
          exec_call(f"python3 tools/total.py {source} {column}"),
          write_call(result, total),
      ],
      deliverables={"answer": number(result, float(total))},
      final_message=f"Done, the total {total} is in {result}.",
  )
