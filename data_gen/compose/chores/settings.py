"""Settings of programs: one value changed, all else as it was."""

from __future__ import annotations

import json

from data_gen.compose.chores.registry import chore, kin, lines, python, text
from data_gen.compose.part import Part
from data_gen.compose.setting import Setting
from data_gen.draft import exec_call, read_call


def _changed(
    name: str, said: str, calls: list, path: str, before: list[str], after: list[str],
    done: str,
) -> Part | None:  # fmt: skip
  """None where the file is by chance what it has to become."""
  if before == after:
    return None
  return Part(
      said=said,
      calls=[*calls, exec_call(f"cat {path}")],
      workspace={path: text(before)},
      deliverables={name: lines(path, after)},
      done=done,
      changed=frozenset({path}),
  )


def _ask(setting: Setting, key: str, new: str, path: str) -> str:
  return setting.rng.choice((
      f"Set {key} to {new} in {path} and leave its other settings alone.",
      f"In {path}, {key} has to be {new}; change nothing else there.",
      f"{path} needs {new} as its {key}. Keep the rest of the file as it is.",
  ))  # fmt: skip


@chore("configuration")
def ini_value(setting: Setting) -> Part | None:
  service, key = setting.word("service"), setting.word("key")
  others = kin(setting, "stem", 3, "_")
  path, new = f"config/{service}.ini", str(setting.number(910, 1900))
  values = {k: str(setting.integer(1, 900)) for k in others}
  values[key] = str(setting.integer(10, 900))
  before = [f"[{service}]", *(f"{name} = {values[name]}" for name in sorted(values))]
  after = [f"{key} = {new}" if line.startswith(f"{key} =") else line for line in before]
  return _changed(
      "ini_value", _ask(setting, key, new, path),
      [read_call(path), exec_call(f"sed -i 's/^{key} = .*/{key} = {new}/' {path}")],
      path, before, after, f"{key} is {new} in {path}",
  )  # fmt: skip


@chore("configuration")
def toml_value(setting: Setting) -> Part | None:
  """The key stands in two sections; one of them is meant."""
  name, key = setting.word("service"), f"{setting.word('stem')}_limit"
  path, new = f"config/{name}.toml", str(setting.number(910, 1900))
  sections = setting.rng.sample(("server", "client", "worker", "cache"), 3)
  meant = sections[1]
  before, after = [], []
  for section in sections:
    old, other = setting.integer(10, 900), setting.integer(1, 90)
    before += [f"[{section}]", f"{key} = {old}", f"pause = {other}", ""]
    kept = new if section == meant else old
    after += [f"[{section}]", f"{key} = {kept}", f"pause = {other}", ""]
  before, after = before[:-1], after[:-1]
  said = setting.rng.choice((
      f"Set {key} to {new} in the section {meant} of {path}; the other sections stay.",
      f"In {path}, below [{meant}], {key} has to be {new}. Nothing else changes.",
      f"{path}: {meant} gets a {key} of {new}, all other sections keep theirs.",
  ))  # fmt: skip
  command = f"sed -i '/^\\[{meant}\\]/,/^$/ s/^{key} = .*/{key} = {new}/' {path}"
  return _changed(
      "toml_value", said, [read_call(path), exec_call(command)],
      path, before, after, f"{key} of {meant} is {new}",
  )  # fmt: skip


@chore("configuration")
def yaml_value(setting: Setting) -> Part | None:
  name, key = setting.word("service"), f"{setting.word('item')}_per_page"
  path, new = f"config/{name}.yaml", str(setting.number(910, 1900))
  old = [setting.integer(10, 900) for _ in range(3)]
  before = [
      f"# {name}, see the team page", "view:", f"  width: {old[0]}",
      f"  {key}: {old[1]}", f"  height: {old[2]}", "theme: plain",
  ]  # fmt: skip
  start = f"  {key}: "
  after = [start + new if line.startswith(start) else line for line in before]
  return _changed(
      "yaml_value", _ask(setting, f"view.{key}", new, path),
      [read_call(path), exec_call(f"sed -i 's/^  {key}: .*/  {key}: {new}/' {path}")],
      path, before, after, f"view.{key} is {new} in {path}",
  )  # fmt: skip


@chore("configuration")
def env_value(setting: Setting) -> Part | None:
  name = setting.word("service")
  key, old_key = (name.upper() for name in kin(setting, "stem", 2, "_"))
  path, new = f"deploy/{name}.env", str(setting.number(910, 1900))
  kept = [f"LEVEL={setting.integer(1, 9)}", f"SHARDS={setting.integer(2, 60)}"]
  before = [kept[0], f"{old_key}={setting.integer(10, 900)}", kept[1]]
  said = setting.rng.choice((
      f"Take {old_key} out of {path} and add {key}={new} as its last line.",
      f"In {path}, remove the line of {old_key} and append {key}={new}.",
      f"{path} no longer needs {old_key}; drop it, and put {key}={new} at the end.",
  ))  # fmt: skip
  calls = [
      read_call(path),
      exec_call(f"sed -i '/^{old_key}=/d' {path} && echo {key}={new} >> {path}"),
  ]
  return _changed(
      "env_value", said, calls, path, before, [*kept, f"{key}={new}"],
      f"{path} has {key} and no {old_key}",
  )  # fmt: skip


@chore("configuration")
def json_value(setting: Setting) -> Part:
  name, key = setting.word("service"), f"{setting.word('stem')}_limit"
  group = setting.rng.choice(("limits", "queue", "store", "access"))
  path, new = f"config/{name}.json", setting.number(910, 1900)
  value = {
      "name": name,
      group: {"retries": setting.integer(1, 9), key: setting.integer(10, 900)},
      "hosts": [f"node{setting.integer(1, 99)}" for _ in range(3)],
  }
  after = {**value, group: {**value[group], key: new}}
  return Part(
      said=_ask(setting, f"{group}.{key}", f"{new} (a number)", path),
      calls=[
          read_call(path),
          python(
              f'import json\nsettings = json.load(open("{path}"))\n'
              f'settings["{group}"]["{key}"] = {new}\n'
              f'json.dump(settings, open("{path}", "w"), indent=2)'
          ),
          read_call(path),
      ],
      workspace={path: json.dumps(value, indent=2).encode() + b"\n"},
      deliverables={"json_value": {"kind": "document", "path": path, "value": after}},
      done=f"{group}.{key} is {new}",
      changed=frozenset({path}),
  )


@chore("configuration")
def feature_off(setting: Setting) -> Part:
  """One of a list of features is switched off, by its name."""
  path = f"config/{setting.word('service')}_features.json"
  names = kin(setting, "item", 5)
  off = setting.rng.choice(names)
  features = [
      {"name": n, "enabled": n == off or setting.data.random() < 0.6,
       "share": setting.integer(1, 99)}
      for n in names
  ]  # fmt: skip
  setting.data.shuffle(features)
  after = [{**f, "enabled": f["enabled"] and f["name"] != off} for f in features]
  said = setting.rng.choice((
      f"Switch the feature {off} off in {path} (enabled: false), and only that one.",
      f"In {path}, enabled must be false for {off}; leave the others.",
      f"Turn {off} off in {path} without touching the other features.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          read_call(path),
          python(
              f'import json\nfeatures = json.load(open("{path}"))\n'
              "for f in features:\n"
              f'  if f["name"] == "{off}":\n'
              '    f["enabled"] = False\n'
              f'json.dump(features, open("{path}", "w"), indent=1)'
          ),
          exec_call(f"cat {path}"),
      ],
      workspace={path: json.dumps(features, indent=1).encode() + b"\n"},
      deliverables={"feature_off": {"kind": "document", "path": path, "value": after}},
      done=f"{off} is off",
      changed=frozenset({path}),
  )


@chore("configuration")
def merged_settings(setting: Setting) -> Part:
  """Defaults and what overrides them, as one file."""
  name = setting.word("service")
  names = kin(setting, "stem", 6, "_")
  base, local = f"settings/{name}/default.json", f"settings/{name}/local.json"
  path = f"settings/{name}/merged.json"
  first = {n: setting.integer(1, 900) for n in names[:5]}
  over = setting.data.sample(names[:5], 2) + names[5:]
  second = {n: setting.integer(1, 900) for n in over}
  said = setting.rng.choice((
      f"Merge {base} and {local} into {path}: what {local} says wins.",
      f"Write {path} with all settings of {base}, overridden by those of {local}.",
      f"Make {path} from {base} and {local}; where both have a key, take {local}'s.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          read_call(base),
          read_call(local),
          python(
              f'import json\nmerged = json.load(open("{base}"))\n'
              f'merged |= json.load(open("{local}"))\n'
              f'json.dump(merged, open("{path}", "w"), indent=2)'
          ),
          read_call(path),
      ],
      workspace={
          base: json.dumps(first, indent=2).encode() + b"\n",
          local: json.dumps(second, indent=2).encode() + b"\n",
      },
      deliverables={
          "merged_settings": {"kind": "document", "path": path, "value": first | second}
      },
      done=f"{path} is merged",
  )


@chore("configuration")
def pinned_version(setting: Setting) -> Part | None:
  names = kin(setting, "stem", 4)
  name = setting.rng.choice(names)
  path = f"deploy/{setting.word('service')}/requirements.txt"
  new = f"{setting.number(10, 90)}.{setting.rng.randint(0, 9)}.0"
  version = lambda: f"{setting.integer(1, 9)}.{setting.integer(0, 20)}.1"
  before = [f"{n}=={version()}" for n in names]
  after = [f"{name}=={new}" if b.startswith(f"{name}==") else b for b in before]
  said = setting.rng.choice((
      f"Pin {name} to {new} in {path}; the other versions stay.",
      f"{path} should require {name} in version {new} exactly, the rest as it is.",
      f"Move {name} to {new} in {path} and touch no other line.",
  ))  # fmt: skip
  calls = [
      read_call(path),
      exec_call(f"sed -i 's/^{name}==.*/{name}=={new}/' {path}"),
  ]
  return _changed(
      "pinned_version", said, calls, path, before, after, f"{name} is at {new}"
  )


@chore("scheduling")
def crontab_line(setting: Setting) -> Part | None:
  """A crontab as a file: one job's time changes."""
  path = f"deploy/{setting.word('service')}.crontab"
  jobs = [f"bin/{name}.sh" for name in kin(setting, "stem", 3)]
  job = setting.rng.choice(jobs)
  hour, minute = setting.number(1, 22), setting.rng.randint(1, 58)
  before = [
      f"{setting.integer(1, 58)} {setting.integer(1, 22)} * * * {j}" for j in jobs
  ]
  new = f"{minute} {hour} * * *"
  after = [f"{new} {job}" if line.endswith(f" {job}") else line for line in before]
  said = setting.rng.choice((
      f"Let {job} run daily at {hour}:{minute:02d} in {path} (schedule {new}); the"
      " other jobs keep their times.",
      f"In {path}, change the schedule of {job} to {new} and nothing else.",
      f"{path}: {job} is to start at {hour}:{minute:02d} every day, so {new}. Leave the"
      " other lines.",
  ))  # fmt: skip
  calls = [
      read_call(path),
      exec_call(f"sed -i 's#^.* {job}$#{new} {job}#' {path}"),
  ]
  return _changed("crontab_line", said, calls, path, before, after, f"{job} is moved")


@chore("configuration")
def xml_value(setting: Setting) -> Part | None:
  name, key = setting.word("service"), setting.word("stem")
  path, new = f"config/{name}.xml", str(setting.number(910, 1900))
  old = [setting.integer(10, 900) for _ in range(3)]
  before = [
      f"<{name}>", f'  <limit of="{key}">{old[0]}</limit>',
      f'  <limit of="total">{old[1]}</limit>', f"  <pause>{old[2]}</pause>",
      f"</{name}>",
  ]  # fmt: skip
  after = [before[0], f'  <limit of="{key}">{new}</limit>', *before[2:]]
  said = setting.rng.choice((
      f"Change the limit of {key} in {path} to {new}; the total stays.",
      f"In {path}, the limit element whose of is {key} has to hold {new}, no more.",
      f"{path}: raise the limit of {key} to {new} and keep everything else.",
  ))  # fmt: skip
  tag = f'<limit of="{key}">'
  command = f"sed -i 's#{tag}[0-9]*#{tag}{new}#' {path}"
  return _changed(
      "xml_value", said, [read_call(path), exec_call(command)],
      path, before, after, f"the limit of {key} is {new}",
  )  # fmt: skip
