"""Files and archives: sort away, rename, pack and unpack."""

from __future__ import annotations

import hashlib

from data_gen.draft import Draft, exec_call, family, moved, read_call, text
from data_gen.packing import tar_gz
from data_gen.world import World

_OFFICE = {
    "category": "office and daily tasks",
    "macro": "Productivity & Collaboration",
}


def _documents(world: World, folder: str, ext: str, count: int) -> dict[str, str]:
  return {
      f"{folder}/{topic}-{world.number(1, 99)}.{ext}": (
          f"{topic} for {world.project}, {world.date().isoformat()}\n"
      )
      for topic in world.words("topic", count)
  }


@family(
    **_OFFICE,
    operations="file_organising",
    calls=1,
    templates=(
        "Move all {ext} files from {folder} to a new folder {target}.",
        "Everything in {folder} that ends in .{ext} belongs in {target}; make that"
        " folder and move them.",
        "Please tidy {folder}: its {ext} files go into a new folder {target}.",
        "Create {target} and move each {ext} file of {folder} there, other types stay.",
        "I want the {ext} files out of {folder} and in {target}, which does not exist"
        " yet.",
        "Make a folder {target}, then move the {ext} files in {folder} into it.",
    ),
    goal="Create a folder and move the files of one type into it.",
    bullets=(("from", "folder"), ("type", "ext"), ("new folder", "target")),
    vocabulary="mkdir",
)
def move_by_type(world: World) -> Draft:
  folder, target = world.word("folder"), world.word("topic")
  ext, other = world.words("ext", 2)
  files = _documents(world, folder, ext, world.rng.randint(2, 3))
  return Draft(
      facts={"folder": folder, "ext": ext, "target": target},
      workspace={**files, **_documents(world, folder, other, 2)},
      calls=[exec_call(f"mkdir -p {target} && mv {folder}/*.{ext} {target}/")],
      deliverables=_all_moved(files, target),
      changed=frozenset(files),
      final_message=f"Done, the {ext} files are in {target}.",
  )


@family(
    **_OFFICE,
    operations="file_organising text_reading",
    calls=2,
    templates=(
        "Read {note} to see where {ext} files belong, and move those in {folder} there.",
        "{note} has our filing rules. Move the {ext} files in {folder} as it says.",
        "File the {ext} documents from {folder} where {note} tells you to.",
        "Check {note} for the right place for {ext} files, then move them out of"
        " {folder}.",
        "Please put the {ext} files of {folder} where they belong according to {note}.",
        "The {ext} files in {folder} must go to the folder named in {note}.",
    ),
    goal="Look up the filing rule, then move the files of that type.",
    bullets=(("rules", "note"), ("files in", "folder"), ("type", "ext")),
    vocabulary="mkdir",
)
def file_by_rule(world: World) -> Draft:
  folder = world.word("folder")
  ext, other = world.words("ext", 2)
  target, elsewhere, topic = world.words("topic", 3)
  files = _documents(world, folder, ext, 2)
  note = f"notes/{topic}.md"
  rules = [f"- {ext} files: folder {target}", f"- {other} files: folder {elsewhere}"]
  world.rng.shuffle(rules)
  return Draft(
      facts={"folder": folder, "ext": ext, "note": note},
      workspace={
          **files,
          **_documents(world, folder, other, 1),
          note: f"# Filing at {world.company}\n\n" + "\n".join(rules) + "\n",
      },
      calls=[
          read_call(note),
          exec_call(f"mkdir -p {target} && mv {folder}/*.{ext} {target}/"),
      ],
      deliverables=_all_moved(files, target),
      changed=frozenset(files),
      final_message=f"Done, the {ext} files are in {target}.",
  )


@family(
    **_OFFICE,
    operations="file_organising",
    calls=1,
    templates=(
        "Rename {source} to {result}.",
        "{source} should be called {result} instead.",
        "Please give {source} its proper name, {result}.",
        "The file {source} has the wrong name; it must be {result}.",
        "Move {source} to {result}, contents untouched.",
        "I want {source} renamed; the new name is {result}.",
    ),
    goal="Rename one file.",
    bullets=(("file", "source"), ("new name", "result")),
    vocabulary="",
)
def rename_file(world: World) -> Draft:
  folder, ext = world.word("folder"), world.word("ext")
  files = _documents(world, folder, ext, 3)
  source = world.rng.choice(sorted(files))
  result = f"{folder}/{world.word('client').lower()}-{world.number(100, 999)}.{ext}"
  return Draft(
      facts={"source": source, "result": result},
      workspace=dict(files),
      calls=[exec_call(f"mv {source} {result}")],
      deliverables={"renamed": moved(source, result, files[source])},
      changed=frozenset({source}),
      final_message=f"Done, the file is now {result}.",
  )


@family(
    category="automation and workflows",
    macro="Systems & Automation",
    operations="archive",
    calls=1,
    templates=(
        "Pack the folder {folder} into {result}.",
        "Make a gzipped tar of {folder} and call it {result}.",
        "Please back up {folder} as {result}, a compressed tar.",
        "I need {folder} as one archive, {result}; keep the originals.",
        "Create the archive {result} with everything in {folder}.",
        "Compress {folder} to {result} and leave the folder where it is.",
    ),
    goal="Pack a folder into a compressed tar archive.",
    bullets=(("folder", "folder"), ("archive", "result")),
    vocabulary="tar czf",
)
def pack_folder(world: World) -> Draft:
  folder, ext = world.word("topic"), world.word("ext")
  files = _documents(world, folder, ext, world.rng.randint(2, 4))
  result = f"{world.word('client').lower()}-{world.number(10, 99)}.tar.gz"
  members = {
      path: hashlib.sha256(data.encode()).hexdigest() for path, data in files.items()
  }
  return Draft(
      facts={"folder": folder, "result": result},
      workspace={
          **files,
          f"{world.word('topic')}/README.md": f"Not part of {folder}.\n",
      },
      calls=[exec_call(f"tar -czf {result} {folder}")],
      deliverables={
          "archive": {"kind": "tar", "path": result, "members": members},
      },
      final_message=f"Done, the archive is {result}.",
  )


@family(
    category="automation and workflows",
    macro="Systems & Automation",
    operations="archive",
    calls=1,
    templates=(
        "Unpack {source} into a new folder {target}.",
        "Extract {source}; the contents should land in the folder {target}.",
        "Please make a folder {target} and unpack {source} there.",
        "I got {source}. Extract it into {target}, which you have to create.",
        "Create {target} and extract everything in {source} to it.",
        "The files inside {source} are needed in {target}, a new folder.",
    ),
    goal="Unpack an archive into a new folder.",
    bullets=(("archive", "source"), ("new folder", "target")),
    vocabulary="mkdir tar xzf",
)
def unpack_archive(world: World) -> Draft:
  target, folder = world.word("topic"), world.word("folder")
  source = f"{folder}/{world.word('client').lower()}-{world.number(10, 99)}.tar.gz"
  inside = {
      f"{topic}.txt": f"{topic}: {world.number(100, 999)}\n"
      for topic in world.words("topic", world.rng.randint(2, 3))
  }
  return Draft(
      facts={"source": source, "target": target},
      workspace={
          source: tar_gz(
              {name: data.encode() for name, data in sorted(inside.items())}
          ),
          f"{folder}/README.md": f"Archives for {world.project}.\n",
      },
      calls=[exec_call(f"mkdir -p {target} && tar -xzf {source} -C {target}")],
      deliverables={
          name.split(".")[0]: text(f"{target}/{name}", data)
          for name, data in inside.items()
      },
      final_message=f"Done, the contents are in {target}.",
  )


def _all_moved(files: dict[str, str], target: str) -> dict[str, dict[str, str]]:
  """One deliverable per file, at `target` under its own name."""
  return {
      f"file_{i}": moved(path, f"{target}/{path.split('/')[-1]}", data)
      for i, (path, data) in enumerate(sorted(files.items()), 1)
  }
