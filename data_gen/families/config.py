"""Configuration files: INI, YAML, JSON, env and TOML; one key changes."""

from __future__ import annotations

import json

from data_gen.draft import Draft, edit_call, exec_call, family, read_call, text
from data_gen.world import World

SET_JSON_PY = '''"""Sets one number in a JSON file: set_json.py FILE KEY NUMBER"""
import json
import sys

path, key, value = sys.argv[1:4]
with open(path) as file:
  settings = json.load(file)
settings[key] = int(value)
with open(path, "w") as file:
  json.dump(settings, file, indent=2)
'''
_SYSTEMS = {"category": "systems and infrastructure", "macro": "Systems & Automation"}


def _settings(world: World) -> tuple[dict[str, int], str, str]:
  """Four settings, the key to change and its new value."""
  values = {key: world.number(5, 990) for key in world.words("key", 4)}
  return values, world.rng.choice(list(values)), str(world.number(5, 990))


def _with(values: dict[str, int], key: str, new: str) -> dict[str, int]:
  return {**values, key: int(new)}


def _ini(world: World, service: str, values: dict[str, int]) -> str:
  body = "".join(f"{key} = {value}\n" for key, value in values.items())
  return f"; {service} at {world.company}\n[{service}]\n{body}"


def _toml(world: World, service: str, values: dict[str, int]) -> str:
  return _ini(world, service, values).replace(";", "#", 1)


def _env(world: World, service: str, values: dict[str, int]) -> str:
  body = "".join(f"{key.upper()}={value}\n" for key, value in values.items())
  return f"# {service} at {world.company}\n{body}"


def _yaml(world: World, service: str, values: dict[str, int]) -> str:
  body = "".join(f"  {key}: {value}\n" for key, value in values.items())
  return f"# {service} at {world.company}\n{service}:\n{body}"


@family(
    **_SYSTEMS,
    operations="config_edit",
    calls=1,
    templates=(
        "Set {key} to {value} in {source}.",
        "In {source}, change {key} so it is {value}; leave the other settings alone.",
        "{source} needs {key} = {value} from now on.",
        "Please update {key} in {source}: the new value is {value}.",
        "Our {key} setting is wrong. It must be {value} in {source}.",
        "Make {key} equal to {value} in the config {source}.",
        "Change one line in {source}: {key} becomes {value}.",
    ),
    goal="Change one setting in an INI file.",
    bullets=(("file", "source"), ("setting", "key"), ("new value", "value")),
    vocabulary="sed",
)
def ini_set(world: World) -> Draft:
  service, other = world.words("service", 2)
  values, key, new = _settings(world)
  source = f"conf/{service}.ini"
  return Draft(
      facts={"source": source, "key": key, "value": new},
      workspace={
          source: _ini(world, service, values),
          f"conf/{other}.ini": _ini(world, other, _settings_like(world, values)),
      },
      calls=[exec_call(f"sed -i 's/^{key} = .*/{key} = {new}/' {source}")],
      deliverables={
          "settings": text(source, _ini(world, service, _with(values, key, new)))
      },
      changed=frozenset({source}),
      final_message=f"Done, {key} is {new} in {source}.",
  )


@family(
    **_SYSTEMS,
    operations="config_edit",
    calls=1,
    templates=(
        "{source} says {key}: {old}. Edit it to {key}: {value}.",
        "In {source} please edit {key}: {old} to read {key}: {value}.",
        "Edit {source}: replace {key}: {old} by {key}: {value}, nothing else.",
        "The YAML file {source} still has {key}: {old}; edit that into {key}: {value}.",
        "Could you edit {source}? It has {key}: {old} but we want {key}: {value}.",
        "An edit in {source}, from {key}: {old} to {key}: {value}.",
    ),
    goal="Edit one line of a YAML file.",
    bullets=(("file", "source"), ("now", "now"), ("edit to", "then")),
    vocabulary="",
)
def yaml_edit(world: World) -> Draft:
  service, other = world.words("service", 2)
  values, key, new = _settings(world)
  source, old = f"conf/{service}.yaml", str(values[key])
  return Draft(
      facts={
          "source": source,
          "key": key,
          "old": old,
          "value": new,
          "now": f"{key}: {old}",
          "then": f"{key}: {new}",
      },
      workspace={
          source: _yaml(world, service, values),
          f"conf/{other}.yaml": _yaml(world, other, _settings_like(world, values)),
      },
      calls=[edit_call(source, f"{key}: {old}", f"{key}: {new}")],
      deliverables={
          "settings": text(source, _yaml(world, service, _with(values, key, new)))
      },
      changed=frozenset({source}),
      final_message=f"Done, {key} is {new} in {source}.",
  )


@family(
    **_SYSTEMS,
    operations="config_edit json_processing script_run",
    calls=1,
    templates=(
        "Run tools/set_json.py FILE KEY NUMBER to make {key} {value} in {source}.",
        "{source} needs {key} at {value}; tools/set_json.py FILE KEY NUMBER does it.",
        "With tools/set_json.py FILE KEY NUMBER, set {key} in {source} to {value}.",
        "Please put {key} on {value} in {source}, using tools/set_json.py FILE KEY"
        " NUMBER.",
        "Change {key} to {value} in {source}. There's tools/set_json.py FILE KEY NUMBER"
        " for it.",
        "The JSON settings in {source}: {key} must become {value}. Use"
        " tools/set_json.py FILE KEY NUMBER.",
    ),
    goal="Set a number in a JSON file with tools/set_json.py FILE KEY NUMBER.",
    bullets=(("file", "source"), ("key", "key"), ("number", "value")),
    vocabulary="python3",
)
def json_set(world: World) -> Draft:
  service, other = world.words("service", 2)
  values, key, new = _settings(world)
  source = f"conf/{service}.json"
  return Draft(
      facts={"source": source, "key": key, "value": new},
      workspace={
          source: json.dumps(values, indent=2),
          f"conf/{other}.json": json.dumps(_settings_like(world, values), indent=2),
          "tools/set_json.py": SET_JSON_PY,
      },
      calls=[exec_call(f"python3 tools/set_json.py {source} {key} {new}")],
      deliverables={
          "settings": {
              "kind": "json",
              "path": source,
              "value": _with(values, key, new),
          }
      },
      changed=frozenset({source}),
      final_message=f"Done, {key} is {new} in {source}.",
  )


@family(
    **_SYSTEMS,
    operations="config_edit text_reading",
    calls=2,
    templates=(
        "Read {note} for the new {key} and set it in {source}.",
        "The new value of {key} is in {note}. Put it into {source}.",
        "{note} says what {key} should be; update {source} to match.",
        "Please bring {key} in {source} in line with {note}.",
        "Look up the agreed {key} in {note}, then change {source} accordingly.",
        "In {source}, {key} is outdated. {note} has the value we agreed on.",
    ),
    goal="Find the new value in a note, then set it in the env file.",
    bullets=(("note", "note"), ("env file", "source"), ("variable", "key")),
    vocabulary="sed",
)
def env_from_note(world: World) -> Draft:
  service, topic = world.word("service"), world.word("topic")
  values, key, new = _settings(world)
  source, note = f"conf/{service}.env", f"notes/{topic}.md"
  upper = key.upper()
  return Draft(
      facts={"source": source, "note": note, "key": upper},
      workspace={
          source: _env(world, service, values),
          note: (
              f"# {world.project}, {world.date().isoformat()}\n\n"
              f"{world.colleagues[1]}: the {service} is too slow.\n"
              f"Agreed: {upper} goes to {new}.\n"
          ),
      },
      calls=[
          read_call(note),
          exec_call(f"sed -i 's/^{upper}=.*/{upper}={new}/' {source}"),
      ],
      deliverables={
          "settings": text(source, _env(world, service, _with(values, key, new)))
      },
      changed=frozenset({source}),
      final_message=f"Done, {upper} is {new} in {source}.",
  )


@family(
    **_SYSTEMS,
    operations="config_edit email_reading",
    calls=2,
    templates=(
        "{sender} mailed a new {key}, see {mail}. Set it in {source}.",
        "Read the mail {mail} and apply the {key} from it to {source}.",
        "The {key} that {sender} wants is in {mail}; change {source}.",
        "Please open {mail}, it names a new {key}, and put that in {source}.",
        "Update {key} in {source} with the number {sender} sent in {mail}.",
        "{source} should get the {key} mentioned in {mail}.",
    ),
    goal="Take the new value from a mail and set it in the TOML file.",
    bullets=(("mail", "mail"), ("TOML file", "source"), ("setting", "key")),
    vocabulary="sed",
)
def toml_from_mail(world: World) -> Draft:
  service, topic = world.word("service"), world.word("topic")
  values, key, new = _settings(world)
  source, mail = f"conf/{service}.toml", f"mail/{topic}.eml"
  sender = world.colleagues[2]
  return Draft(
      facts={"source": source, "mail": mail, "key": key, "sender": sender},
      workspace={
          source: _toml(world, service, values),
          mail: (
              f"From: {sender} <{world.email(sender)}>\n"
              f"To: {world.name} <{world.email(world.name)}>\n"
              f"Subject: {service}\n\n"
              f"Hi {world.first}, please use {key} = {new} for the {service}.\n"
          ),
      },
      calls=[
          read_call(mail),
          exec_call(f"sed -i 's/^{key} = .*/{key} = {new}/' {source}"),
      ],
      deliverables={
          "settings": text(source, _toml(world, service, _with(values, key, new)))
      },
      changed=frozenset({source}),
      final_message=f"Done, {key} is {new} in {source}.",
  )


def _settings_like(world: World, values: dict[str, int]) -> dict[str, int]:
  """The same keys with other values, for a neighbouring service."""
  return {key: world.number(5, 990) for key in values}
