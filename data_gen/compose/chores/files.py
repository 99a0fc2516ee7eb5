"""Files moved, renamed, packed, compared and removed."""

from __future__ import annotations

from data_gen.compose.chores.registry import (
    chore, digest, exact, kin, lines, page, python, text,
)  # fmt: skip
from data_gen.compose.part import Part
from data_gen.compose.setting import Setting
from data_gen.draft import exec_call, read_call
from data_gen.packing import zipped


def _named(path: str) -> str:
  return path.rpartition("/")[2]


def _texts(setting: Setting, paths: list[str]) -> dict[str, bytes]:
  """A short text for each path, all different."""
  return {
      path: text(
          [f"{_named(path)} {number}", *page(setting, setting.data.randint(2, 5))]
      )
      for number, path in enumerate(paths)
  }


@chore("file organisation")
def sort_files(setting: Setting) -> Part:
  """Files of one kind go to a folder of their own."""
  folder, target = f"inbox/{setting.word('topic')}", f"sorted/{setting.word('topic')}"
  suffix, other = setting.word("ext"), setting.word("ext")
  stems = kin(setting, "item", 6)
  files = _texts(
      setting,
      [f"{folder}/{s}.{suffix if n < 3 else other}" for n, s in enumerate(stems)],
  )
  moved = [p for p in files if p.endswith("." + suffix)]
  said = setting.rng.choice((
      f"Move every .{suffix} file from {folder} to {target}; the others stay.",
      f"All .{suffix} files in {folder} belong to {target}: move them, nothing else.",
      f"Sort {folder}: what ends in .{suffix} goes to {target}, the rest stays there.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"ls {folder}"),
          exec_call(f"mkdir -p {target} && mv {folder}/*.{suffix} {target}/"),
          exec_call(f"ls {folder} {target}"),
      ],
      workspace=files,
      deliverables={
          "sort_files": {
              "kind": "moved",
              "files": {
                  f"{target}/{_named(p)}": {"from": p, "text": files[p].decode()}
                  for p in moved
              },
          }
      },
      done=f"the .{suffix} files are in {target}",
      changed=frozenset(moved),
  )


@chore("file organisation")
def sort_by_month(setting: Setting) -> Part:
  """Files whose names begin with a day go to a folder a month."""
  folder = f"inbox/{setting.word('topic')}"
  names = [f"{setting.date()}-{word}.txt" for word in kin(setting, "item", 6)]
  files = _texts(setting, [f"{folder}/{name}" for name in names])
  said = setting.rng.choice((
      f"Sort the files of {folder} into one folder a month below it, named by the first"
      " 7 characters of their names (as 2031-02).",
      f"In {folder}, every file starts with its date: move each to a subfolder YYYY-MM"
      " of its month.",
      f"Make a folder for each month (YYYY-MM) in {folder} and move the files there by"
      " the date at the start of their names.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"ls {folder}"),
          exec_call(
              f"cd {folder} && for f in *.txt; do m=$(echo $f | cut -c1-7);"
              " mkdir -p $m && mv $f $m/; done"
          ),
          exec_call(f"find {folder} -type f | sort"),
      ],
      workspace=files,
      deliverables={
          "sort_by_month": exact(
              {f"{folder}/{_named(p)[:7]}/{_named(p)}": d for p, d in files.items()},
              files,
          )
      },
      done=f"{folder} has a folder a month",
      changed=frozenset(files),
  )


@chore("file renaming")
def rename_by_rule(setting: Setting) -> Part:
  folder = f"scans/{setting.word('topic')}"
  words = kin(setting, "item", 5)
  names = [f"{word.upper()} {setting.number(10, 99)}.TXT" for word in words]
  files = _texts(setting, [f"{folder}/{name}" for name in names])
  after = {
      f"{folder}/{_named(p).lower().replace(' ', '-')}": d for p, d in files.items()
  }
  said = setting.rng.choice((
      f"Rename the files of {folder}: lower case, and a hyphen for each blank.",
      f"The names in {folder} should be in small letters with - instead of blanks.",
      f"In {folder}, turn capitals of file names into small letters and blanks into"
      " hyphens.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"ls {folder}"),
          exec_call(
              f"cd {folder} && for f in *; do"
              ' mv "$f" "$(echo "$f" | tr "A-Z " "a-z-")"; done'
          ),
          exec_call(f"ls {folder}"),
      ],
      workspace=files,
      deliverables={"rename_by_rule": exact(after, files)},
      done=f"the files of {folder} are renamed",
      changed=frozenset(files),
  )


@chore("file renaming")
def number_files(setting: Setting) -> Part:
  folder = f"scans/{setting.word('topic')}"
  names = sorted(f"{word}.txt" for word in kin(setting, "item", 6))
  files = _texts(setting, [f"{folder}/{name}" for name in names])
  after = {
      f"{folder}/{number:02d}-{_named(p)}": d
      for number, (p, d) in enumerate(files.items(), 1)
  }
  said = setting.rng.choice((
      f"Number the files of {folder} in alphabetical order: 01-, 02- and so on before"
      " each name.",
      f"Put 01-, 02-, … in front of the names in {folder}, going by the alphabet.",
      f"In {folder}, each file gets its place in the alphabet as a prefix of two digits"
      " and a hyphen (01- for the first).",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"ls {folder}"),
          exec_call(
              f"cd {folder} && n=0 && for f in *; do n=$((n+1));"
              ' mv "$f" "$(printf %02d $n)-$f"; done'
          ),
          exec_call(f"ls {folder}"),
      ],
      workspace=files,
      deliverables={"number_files": exact(after, files)},
      done=f"the files of {folder} are numbered",
      changed=frozenset(files),
  )


@chore("file cleanup")
def remove_copies(setting: Setting) -> Part:
  """Of files with one content the first by name stays."""
  folder = f"photos/{setting.word('topic')}"
  paths = sorted(f"{folder}/{word}.txt" for word in kin(setting, "item", 8))
  texts = list(_texts(setting, paths[:4]).values())
  contents = [*texts, *setting.data.choices(texts, k=4)]
  setting.data.shuffle(contents)
  files = dict(zip(paths, contents))
  kept: dict[bytes, str] = {}
  for path, data in files.items():
    kept.setdefault(data, path)
  gone = [p for p in paths if p not in kept.values()]
  said = setting.rng.choice((
      f"Remove the duplicates in {folder}: of files with the same content keep only the"
      " one whose name comes first in the alphabet.",
      f"Some files in {folder} are copies of others. Delete them; the alphabetically"
      " first of each content stays.",
      f"Deduplicate {folder} by content and keep the first name of each in the"
      " alphabet.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"sha256sum {folder}/*"),
          exec_call(
              f"sha256sum {folder}/* | sort -k2 | awk 'seen[$1]++ {{print $2}}'"
              " | xargs rm -v"
          ),
          exec_call(f"ls {folder}"),
      ],
      workspace=files,
      deliverables={
          "remove_copies": exact({p: files[p] for p in kept.values()}, gone)
      },
      done=f"{folder} has each file once",
      changed=frozenset(gone),
  )


@chore("file cleanup")
def clean_up(setting: Setting) -> Part:
  """Scratch files and empty ones go, at any depth."""
  folder, suffix = f"work/{setting.word('topic')}", setting.rng.choice(("tmp", "bak"))
  words = kin(setting, "item", 7)
  roles = [suffix, suffix, "empty", "empty", "txt", "txt", "txt"]
  setting.data.shuffle(roles)
  files, gone = {}, []
  for number, (word, role) in enumerate(zip(words, roles)):
    under = folder if number % 2 else f"{folder}/old"
    path = f"{under}/{word}.{suffix if role == suffix else 'txt'}"
    files[path] = b"" if role == "empty" else text(page(setting, 3))
    if role != "txt":
      gone.append(path)
  said = setting.rng.choice((
      f"Clean up {folder} with all its folders: delete files that end in .{suffix} and"
      " files that are empty, nothing else.",
      f"Remove every .{suffix} file and every empty file below {folder}; keep the"
      " rest.",
      f"Tidy {folder}, subfolders too: .{suffix} files and empty files can go, all"
      " others stay.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"find {folder} -type f -size -1000 | sort"),
          exec_call(
              f"find {folder} -type f \\( -name '*.{suffix}' -o -empty \\) -delete"
          ),
          exec_call(f"find {folder} -type f | sort"),
      ],
      workspace=files,
      deliverables={
          "clean_up": exact({p: d for p, d in files.items() if p not in gone}, gone)
      },
      done=f"{folder} is tidy",
      changed=frozenset(gone),
  )


@chore("archiving")
def archive_files(setting: Setting) -> Part:
  """Files of one kind are packed, and gone from their folder."""
  folder, topic = f"records/{setting.word('topic')}", setting.word("topic")
  suffix, other = setting.word("ext"), setting.word("ext")
  stems = kin(setting, "item", 5)
  files = _texts(
      setting,
      [f"{folder}/{s}.{suffix if n < 3 else other}" for n, s in enumerate(stems)],
  )
  packed = [p for p in files if p.endswith("." + suffix)]
  path = f"archive/{topic}.tar.gz"
  said = setting.rng.choice((
      f"Pack the .{suffix} files of {folder} into {path} (their bare names in it) and"
      " delete them from the folder; the others stay.",
      f"Archive all .{suffix} files of {folder} as {path}, without folders in it, and"
      " remove the originals.",
      f"Put what ends in .{suffix} in {folder} into a compressed tar {path}, names"
      " without folder, then delete those files there.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"ls -l {folder}"),
          exec_call(
              f"mkdir -p archive && (cd {folder} && tar cz *.{suffix}) > {path}"
          ),
          exec_call(f"tar tzf {path} && rm {folder}/*.{suffix}"),
          exec_call(f"ls {folder}"),
      ],
      workspace=files,
      deliverables={
          "archive_files": {
              "kind": "archive",
              "path": path,
              "members": {_named(p): digest(files[p]) for p in packed},
              "gone": packed,
          }
      },
      done=f"the .{suffix} files are in {path}",
      changed=frozenset(packed),
  )


@chore("archiving")
def zip_folder(setting: Setting) -> Part:
  """A folder is packed as it is and stays."""
  folder = f"records/{setting.word('topic')}"
  path = f"archive/{setting.word('topic')}.zip"
  stems = kin(setting, "item", 5)
  names = [f"{s}.txt" if n % 2 else f"more/{s}.txt" for n, s in enumerate(stems)]
  files = _texts(setting, [f"{folder}/{name}" for name in names])
  said = setting.rng.choice((
      f"Zip {folder} into {path}, with paths that start at {folder}.",
      f"Make {path} of everything below {folder}; in it the paths begin with"
      f" {folder}/.",
      f"Back {folder} up as {path} (zip, paths from {folder} on) and leave it there.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"find {folder} -type f | sort"),
          python(
              "import os, pathlib, zipfile\n"
              'os.makedirs("archive", exist_ok=True)\n'
              f'with zipfile.ZipFile("{path}", "w", strict_timestamps=False) as file:\n'
              f'  for p in sorted(pathlib.Path("{folder}").rglob("*")):\n'
              "    if p.is_file():\n"
              "      file.write(p)"
          ),
          exec_call(f"python3 -m zipfile -l {path}"),
      ],
      workspace=files,
      deliverables={
          "zip_folder": {
              "kind": "archive",
              "path": path,
              "members": {p: digest(d) for p, d in files.items()},
              "gone": [],
          }
      },
      done=f"{folder} is in {path}",
  )


@chore("archiving")
def unpack(setting: Setting) -> Part:
  source = f"downloads/{setting.word('topic')}.zip"
  target = f"unpacked/{setting.word('topic')}"
  names = [f"{word}.txt" for word in kin(setting, "item", 4)]
  files = _texts(setting, names)
  said = setting.rng.choice((
      f"Unpack {source} into {target} and delete the archive.",
      f"Extract what is in {source} to the folder {target}, then remove {source}.",
      f"Put the contents of {source} into {target}; the archive itself can go.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"python3 -m zipfile -l {source}"),
          exec_call(f"mkdir -p {target} && python3 -m zipfile -e {source} {target}"),
          exec_call(f"ls {target} && rm {source}"),
      ],
      workspace={source: zipped(files)},
      deliverables={
          "unpack": exact({f"{target}/{n}": d for n, d in files.items()}, [source])
      },
      done=f"{source} is unpacked",
      changed=frozenset({source}),
  )


@chore("validation")
def checksums(setting: Setting) -> Part:
  folder = f"release/{setting.word('topic')}"
  files = _texts(setting, sorted(f"{folder}/{w}.txt" for w in kin(setting, "item", 5)))
  path = f"{folder}/SHA256SUMS"
  said = setting.rng.choice((
      f"Write {path} with the SHA-256 sums of the files in {folder}, as sha256sum does,"
      " by name.",
      f"Make {path}: a line of sha256sum for each file of {folder}, in order of names,"
      " names without folder.",
      f"Add checksums to {folder}: {path} in the form of sha256sum (hash, two blanks,"
      " bare name), sorted by name.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"ls {folder}"),
          exec_call(
              f"cd {folder} && sha256sum * > /tmp/sums && mv /tmp/sums SHA256SUMS"
          ),
          read_call(path),
      ],
      workspace=files,
      deliverables={
          "checksums": lines(
              path, (f"{digest(d)}  {_named(p)}" for p, d in files.items())
          )
      },
      done=f"{path} is there",
  )


@chore("validation")
def damaged_files(setting: Setting) -> Part:
  """Which files do not match their checksums."""
  folder = f"release/{setting.word('topic')}"
  path = f"checks/{setting.word('topic')}.txt"
  files = _texts(setting, sorted(f"{folder}/{w}.txt" for w in kin(setting, "item", 7)))
  sums = text(f"{digest(d)}  {_named(p)}" for p, d in files.items())
  bad = sorted(setting.data.sample(sorted(files), setting.data.randint(2, 3)))
  for name in bad:
    files[name] += b"overwritten\n"
  said = setting.rng.choice((
      f"Check {folder} against its SHA256SUMS and list the names of the files that do"
      f" not match in {path}, one a line, by name.",
      f"Some files in {folder} differ from what SHA256SUMS there says. Write their"
      f" names to {path}, a line each, in alphabetical order.",
      f"Verify the checksums of {folder} (SHA256SUMS) and save the bare names of"
      f" damaged files in {path}, sorted, one a line.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          read_call(f"{folder}/SHA256SUMS"),
          exec_call(
              f"mkdir -p checks && cd {folder} && sha256sum -c SHA256SUMS 2>/dev/null"
              f" | sed -n 's/: FAILED$//p' | sort > /tmp/bad; cd - && cp /tmp/bad"
              f" {path}"
          ),
          read_call(path),
      ],
      workspace={**files, f"{folder}/SHA256SUMS": sums},
      deliverables={"damaged_files": lines(path, map(_named, bad))},
      done=f"the damaged files are listed in {path}",
  )


@chore("file reading")
def manifest(setting: Setting) -> Part:
  folder = f"release/{setting.word('topic')}"
  path = f"lists/{setting.word('topic')}.json"
  files = _texts(setting, [f"{folder}/{word}.txt" for word in kin(setting, "item", 5)])
  value = {_named(p): len(d) for p, d in files.items()}
  said = setting.rng.choice((
      f"Write {path}: a JSON object from each file name in {folder} to its size in"
      " bytes.",
      f"List the files of {folder} in {path} as one JSON object, name to number of"
      " bytes.",
      f"Make a manifest {path} of {folder} in JSON, bare names as keys, sizes in bytes"
      " as numbers.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"ls -l {folder}"),
          python(
              "import json, os\n"
              f'sizes = {{e.name: e.stat().st_size for e in os.scandir("{folder}")}}\n'
              'os.makedirs("lists", exist_ok=True)\n'
              f'json.dump(sizes, open("{path}", "w"), indent=1, sort_keys=True)'
          ),
          read_call(path),
      ],
      workspace=files,
      deliverables={"manifest": {"kind": "document", "path": path, "value": value}},
      done=f"{path} lists {folder}",
  )
