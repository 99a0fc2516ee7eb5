"""Texts joined, split, cleaned, searched and put in order."""

from __future__ import annotations

from data_gen.compose.chores.registry import (
    chore, exact, kin, lines, note, page, python, text,
)  # fmt: skip
from data_gen.compose.part import Part
from data_gen.compose.setting import Setting
from data_gen.draft import exec_call, read_call


def _pages(setting: Setting, folder: str, count: int, suffix: str = "txt") -> dict:
  """Files of a few lines, in alphabetical order of their names."""
  names = sorted(f"{folder}/{w}.{suffix}" for w in kin(setting, "item", count))
  return {name: page(setting, setting.data.randint(3, 7)) for name in names}


@chore("concatenation")
def merge_texts(setting: Setting) -> Part:
  folder, path = f"drafts/{setting.word('topic')}", f"texts/{setting.word('topic')}.txt"
  pages = _pages(setting, folder, 4)
  said = setting.rng.choice((
      f"Join the files of {folder} in alphabetical order into {path}, each after a line"
      " \"== NAME ==\" with its file name.",
      f"Put all of {folder} into one file {path}: for each file, by name, first the"
      " line \"== NAME ==\" (NAME is the bare file name), then its text.",
      f"Make {path} of the texts in {folder}, sorted by name; a line \"== NAME ==\""
      " with the name of the file comes before each.",
  ))  # fmt: skip
  whole = [
      line
      for name, body in pages.items()
      for line in (f"== {name.rpartition('/')[2]} ==", *body)
  ]
  return Part(
      said=said,
      calls=[
          exec_call(f"ls {folder}"),
          exec_call(
              f"mkdir -p texts && cd {folder} && for f in *; do"
              ' echo "== $f =="; cat "$f"; done > /tmp/whole; cd - && '
              f"cp /tmp/whole {path}"
          ),
          read_call(path),
      ],
      workspace={name: text(body) for name, body in pages.items()},
      deliverables={"merge_texts": lines(path, whole)},
      done=f"{path} has the texts",
  )


@chore("file organisation")
def split_text(setting: Setting) -> Part:
  topic = setting.word("topic")
  source, target = f"drafts/{topic}.txt", f"parts/{topic}"
  size = setting.rng.choice((8, 10, 12))
  body = [f"{n}. {note(setting)}" for n in range(1, setting.data.randint(30, 50))]
  parts = {
      f"{target}/part-{n // size:02d}.txt": text(body[n : n + size])
      for n in range(0, len(body), size)
  }
  said = setting.rng.choice((
      f"Split {source} into files of {size} lines in {target}: part-00.txt, part-01.txt"
      " and so on; the last may be shorter.",
      f"Cut {source} after every {size} lines and save the pieces as"
      f" {target}/part-00.txt, {target}/part-01.txt, …",
      f"Divide {source} into pieces of {size} lines each, {target}/part-00.txt onwards"
      " (two digits).",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"wc -l {source}"),
          exec_call(
              f"mkdir -p {target} && split -l {size} -d --additional-suffix=.txt"
              f" {source} {target}/part-"
          ),
          exec_call(f"wc -l {target}/*"),
      ],
      workspace={source: text(body)},
      deliverables={"split_text": exact(parts)},
      done=f"{source} is split",
  )


@chore("normalisation")
def to_utf8(setting: Setting) -> Part:
  folder = f"letters/{setting.word('topic')}"
  dishes = ("Crème brûlée", "Jalapeño", "Smørrebrød", "Käsespätzle", "Açaí")
  bodies = {
      name: [*body, f"{setting.pick(dishes)} {setting.integer(2, 90)}"]
      for name, body in _pages(setting, folder, 3).items()
  }
  said = setting.rng.choice((
      f"The .txt files in {folder} are in Latin-1; turn them into UTF-8 in place.",
      f"Convert every .txt file of {folder} from ISO-8859-1 to UTF-8, same names.",
      f"{folder}: recode the .txt files from Latin-1 to UTF-8 where they are.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"ls {folder}"),
          python(
              "import pathlib\n"
              f'for p in sorted(pathlib.Path("{folder}").glob("*.txt")):\n'
              '  text = p.read_bytes().decode("latin-1")\n'
              '  p.write_bytes(text.encode("utf-8"))\n'
              "  print(p, len(text))"
          ),
          exec_call(f"tail -n 2 {folder}/*.txt"),
      ],
      workspace={n: text(b).decode().encode("latin-1") for n, b in bodies.items()},
      deliverables={"to_utf8": exact({n: text(b) for n, b in bodies.items()})},
      done=f"{folder} is in UTF-8",
      changed=frozenset(bodies),
  )


@chore("normalisation")
def unix_lines(setting: Setting) -> Part:
  folder = f"letters/{setting.word('topic')}"
  pages = _pages(setting, folder, 4)
  said = setting.rng.choice((
      f"Give the files in {folder} Unix line ends (LF instead of CRLF), else"
      " unchanged.",
      f"Some program left CRLF line ends in {folder}; make them LF in every file.",
      f"Convert the line ends of all files in {folder} from CRLF to LF.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"head -n 2 {folder}/* | od -c | tail -n 12"),
          exec_call(f"sed -i 's/\\r$//' {folder}/*"),
          exec_call(f"head -n 2 {folder}/* | od -c | tail -n 12"),
      ],
      workspace={n: text(b).replace(b"\n", b"\r\n") for n, b in pages.items()},
      deliverables={"unix_lines": exact({n: text(b) for n, b in pages.items()})},
      done=f"{folder} has Unix line ends",
      changed=frozenset(pages),
  )


@chore("normalisation")
def replace_name(setting: Setting) -> Part:
  """A name changes wherever it stands, in Markdown files only."""
  folder = f"handbook/{setting.word('topic')}"
  old, new = setting.word("client"), setting.word("client")
  pages = _pages(setting, folder, 4, "md")
  plain = f"{folder}/history.txt"
  bodies = {}
  for name, body in pages.items():
    at = setting.data.randrange(len(body))
    bodies[name] = [*body[:at], f"{old} knows, ask {old} first.", *body[at:]]
  after = {n: [line.replace(old, new) for line in b] for n, b in bodies.items()}
  said = setting.rng.choice((
      f"{old} is called {new} now: change it in all .md files of {folder}, not"
      " elsewhere.",
      f"Replace {old} by {new} in every .md file in {folder} and leave other files.",
      f"In the Markdown files of {folder}, write {new} wherever it says {old}.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"grep -rn {old} {folder}"),
          exec_call(f"sed -i 's/{old}/{new}/g' {folder}/*.md"),
          exec_call(f"grep -rn {new} {folder}"),
      ],
      workspace={
          **{n: text(b) for n, b in bodies.items()},
          plain: text([f"Founded as {old} in 1987."]),
      },
      deliverables={"replace_name": exact({n: text(b) for n, b in after.items()})},
      done=f"{old} is {new} in {folder}",
      changed=frozenset(bodies),
  )


@chore("text extraction")
def todo_list(setting: Setting) -> Part | None:
  """Marked lines of many files, with where they stand."""
  folder = f"handbook/{setting.word('topic')}"
  path = f"lists/{setting.word('topic')}.txt"
  mark = setting.rng.choice(("TODO", "FIXME", "OPEN"))
  bodies, found = {}, []
  for name, body in _pages(setting, folder, 4, "md").items():
    bodies[name] = []
    for line in body:
      marked = setting.data.random() < 0.4
      bodies[name].append(f"{mark}: {line}" if marked else line)
      if marked:
        found.append(f"{name.rpartition('/')[2]}:{len(bodies[name])}: {line}")
  if len(found) < 2:
    return None
  said = setting.rng.choice((
      f"Collect the lines of {folder} that start with \"{mark}: \" in {path} as"
      " NAME:LINE: TEXT (bare file name, line number, the text without the mark), by"
      " name and line.",
      f"Write {path} with every \"{mark}: \" line of the files in {folder}, each as"
      " NAME:LINE: TEXT without the mark itself, files in alphabetical order.",
      f"List what is marked \"{mark}: \" in {folder}: one line NAME:LINE: TEXT each in"
      f" {path}, sorted by file name, then line; NAME without folder, TEXT without"
      " mark.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"grep -rc '^{mark}: ' {folder}"),
          exec_call(
              f"mkdir -p lists && (cd {folder} && grep -n '^{mark}: ' *.md)"
              f" | sed 's/{mark}: / /' > {path}"
          ),
          read_call(path),
      ],
      workspace={n: text(b) for n, b in bodies.items()},
      deliverables={"todo_list": lines(path, found)},
      done=f"{path} has what is {mark}",
  )


@chore("report writing")
def title_index(setting: Setting) -> Part:
  folder = f"handbook/{setting.word('topic')}"
  path = f"lists/{setting.word('topic')}.md"
  pages = _pages(setting, folder, 5, "md")
  titles = {name: note(setting) for name in pages}
  said = setting.rng.choice((
      f"Write an index {path} of {folder}: \"- NAME: TITLE\" for each file by name,"
      " TITLE being its first line without \"# \".",
      f"Make {path}, a list of the pages in {folder} in alphabetical order, each line"
      " \"- NAME: TITLE\" with the heading of the file's first line.",
      f"List the pages of {folder} in {path}, a line \"- NAME: TITLE\" each (NAME the"
      " bare file name, TITLE from the heading in line 1), sorted by name.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"head -n 1 {folder}/*"),
          exec_call(
              f"mkdir -p lists && (cd {folder} && for f in *; do"
              ' echo "- $f: $(sed -n "1s/^# //p" "$f")"; done)'
              f" > {path}"
          ),
          read_call(path),
      ],
      workspace={n: text([f"# {titles[n]}", "", *b]) for n, b in pages.items()},
      deliverables={
          "title_index": lines(
              path, (f"- {n.rpartition('/')[2]}: {t}" for n, t in titles.items())
          )
      },
      done=f"{path} is the index",
  )


@chore("text extraction")
def redact(setting: Setting) -> Part | None:
  """Addresses are taken out of a text for others."""
  topic = setting.word("topic")
  source, path = f"letters/{topic}.txt", f"texts/{topic}.txt"
  hide = setting.rng.choice(("[removed]", "[address]", "[hidden]"))
  before, after = [], []
  for line in page(setting, setting.data.randint(8, 16)):
    if setting.data.random() < 0.5:
      desk = setting.pick(("desk", "info", "sales", "help"))
      address = f"{desk}{setting.integer(2, 99)}@{setting.domain}"
      before.append(f"{line}, says {address}, today")
      after.append(f"{line}, says {hide}, today")
    else:
      before.append(line)
      after.append(line)
  if before == after:
    return None
  said = setting.rng.choice((
      f"Save {source} as {path} with every mail address replaced by {hide}.",
      f"Write a copy of {source} to {path} in which {hide} stands for each e-mail"
      " address.",
      f"Redact {source}: put {hide} where it has a mail address, and save that as"
      f" {path}.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          read_call(source),
          exec_call(
              f"mkdir -p texts && sed -E 's/[A-Za-z0-9._-]+@[A-Za-z0-9.-]+/{hide}/g'"
              f" {source} > {path}"
          ),
          read_call(path),
      ],
      workspace={source: text(before)},
      deliverables={"redact": lines(path, after)},
      done=f"{path} has no addresses",
  )


@chore("sorting")
def sorted_list(setting: Setting) -> Part:
  """A list is put in order, each entry once, where it is."""
  path = f"lists/{setting.word('topic')}.txt"
  entries = [note(setting).lower() for _ in range(12)]
  entries += setting.data.choices(entries, k=6)
  setting.data.shuffle(entries)
  said = setting.rng.choice((
      f"Sort the lines of {path} alphabetically and leave each only once, in place.",
      f"Put {path} in alphabetical order without repeated lines.",
      f"{path} has lines twice and no order: sort it and drop the repetitions.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          read_call(path),
          exec_call(f"LC_ALL=C sort -u -o {path} {path}"),
          read_call(path),
      ],
      workspace={path: text(entries)},
      deliverables={"sorted_list": lines(path, sorted(set(entries)))},
      done=f"{path} is sorted",
      changed=frozenset({path}),
  )
