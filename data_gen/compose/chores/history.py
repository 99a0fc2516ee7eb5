"""Work on git repositories, which are written here object by object.

Git itself would put clocks and its version's habits into them. Everything in
a repository hangs from its branches; it has an index, so that it is clean.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field

from data_gen.compose.chores.registry import chore, digest, kin, page, text
from data_gen.compose.part import Part
from data_gen.compose.setting import Setting
from data_gen.draft import exec_call
from data_gen.packing import stored

_CONFIG = (
    "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
    "[user]\n\tname = {name}\n\temail = {email}\n"
)


@dataclass
class _Repository:
  """Loose objects by path; commits a minute apart."""

  name: str
  email: str
  objects: dict[str, bytes] = field(default_factory=dict)
  now: int = 1_760_000_000

  def add(self, kind: str, body: bytes) -> str:
    whole = f"{kind} {len(body)}\0".encode() + body
    name = hashlib.sha1(whole).hexdigest()
    self.objects[f"objects/{name[:2]}/{name[2:]}"] = stored(whole)
    return name

  def commit(self, files: dict[str, bytes], message: str, *parents: str) -> str:
    """A commit of these files, none of them in a folder."""
    entries = (
        f"100644 {path}\0".encode() + bytes.fromhex(self.add("blob", data))
        for path, data in sorted(files.items())
    )
    self.now += 60
    who = f"{self.name} <{self.email}> {self.now} +0000"
    lines = [
        f"tree {self.add('tree', b''.join(entries))}",
        *(f"parent {parent}" for parent in parents),
        f"author {who}", f"committer {who}", "", message, "",
    ]  # fmt: skip
    return self.add("commit", "\n".join(lines).encode())

  def files(
      self, folder: str, branches: dict[str, str], checked_out: dict[str, bytes]
  ) -> dict[str, bytes]:
    """The repository in `folder`, on `main`, and the files of `main`."""
    found = {
        "HEAD": b"ref: refs/heads/main\n",
        "config": _CONFIG.format(name=self.name, email=self.email).encode(),
        "index": self._index(checked_out),
        **{f"refs/heads/{b}": f"{c}\n".encode() for b, c in branches.items()},
        **self.objects,
    }
    return {
        **{f"{folder}/.git/{path}": data for path, data in found.items()},
        **{f"{folder}/{path}": data for path, data in checked_out.items()},
    }

  def _index(self, files: dict[str, bytes]) -> bytes:
    """Version 2 of gitformat-index; times of 0 make git look at the contents."""
    body = b"DIRC" + struct.pack(">II", 2, len(files))
    for path, data in sorted(files.items()):
      entry = struct.pack(">10I", *[0] * 6, 0o100644, 0, 0, len(data))
      entry += bytes.fromhex(self.add("blob", data))
      entry += struct.pack(">H", len(path)) + path.encode()
      body += entry + b"\0" * (8 - len(entry) % 8)
    return body + hashlib.sha1(body).digest()


def _start(setting: Setting) -> tuple[str, _Repository, dict[str, bytes]]:
  """A folder, its repository and the files of the first commit."""
  who = setting.colleagues[1]
  files = {
      f"{name}.txt": text(page(setting, 4)) for name in kin(setting, "item", 4)
  }
  folder = f"projects/{setting.word('topic')}"
  return folder, _Repository(who, setting.email(who)), files


def _hashes(files: dict[str, bytes]) -> dict[str, str]:
  return {path: digest(data) for path, data in files.items()}


def _moving(path: str) -> bool:
  """Whether work changes this file of a repository: objects and settings stay."""
  kept = ("objects/", "config")
  return "/.git/" in path and not path.partition("/.git/")[2].startswith(kept)


def _part(
    name: str, said: str, commands: list[str], folder: str, workspace: dict, spec: dict,
    done: str, after: dict,
) -> Part:  # fmt: skip
  return Part(
      said=said,
      calls=[exec_call(command) for command in commands],
      workspace=workspace,
      deliverables={
          name: {"kind": "git", "path": folder, "tree": _hashes(after), **spec}
      },
      done=done,
      changed=frozenset(
          p for p, d in workspace.items()
          if _moving(p) or after.get(p.removeprefix(f"{folder}/"), d) != d
      ),
      leaves=frozenset({f"{folder}/.git/", *(f"{folder}/{p}" for p in after)}),
  )  # fmt: skip


@chore("version control")
def git_start(setting: Setting) -> Part:
  """A folder becomes a repository with one commit of all that is in it."""
  folder, repository, files = _start(setting)
  message = f"Start {setting.word('project')}"
  who, mail = repository.name, repository.email
  said = setting.rng.choice((
      f"Make {folder} a git repository with the branch main and commit all its files as"
      f" \"{message}\" ({who}, {mail}).",
      f"Put {folder} under git (branch main): one commit of everything there, message"
      f" \"{message}\", by {who} <{mail}>.",
      f"Initialise git in {folder} on main, then commit every file with the message"
      f" \"{message}\"; author {who}, {mail}.",
  ))  # fmt: skip
  spec = {
      "branch": "main", "on": "main", "parents": [],
      "message": message,
  }  # fmt: skip
  author = f"-c user.name='{who}' -c user.email={mail}"
  return _part(
      "git_start", said,
      [
          f"ls {folder}",
          f"cd {folder} && git init -q -b main && git add -A"
          f" && git {author} commit -qm '{message}'",
          f"git -C {folder} log --stat",
      ],
      folder, {f"{folder}/{p}": d for p, d in files.items()}, spec,
      f"{folder} is a repository", files,
  )  # fmt: skip


@chore("version control")
def git_commit(setting: Setting) -> Part:
  """What was changed by hand is committed on a branch of its own."""
  folder, repository, files = _start(setting)
  first = repository.commit(files, "First version")
  workspace = repository.files(folder, {"main": first}, files)
  name = sorted(files)[0]
  after = files | {
      name: files[name] + text(page(setting, 2)), "added.txt": text(page(setting, 3))
  }
  workspace |= {f"{folder}/{path}": data for path, data in after.items()}
  branch, message = setting.word("topic"), f"Add to {setting.word('project')}"
  said = setting.rng.choice((
      f"{folder} has changes that are not committed: commit them all, new files too,"
      f" on a new branch {branch} with the message \"{message}\" and stay on it.",
      f"In the repository {folder}, make a branch {branch} and commit there everything"
      f" that is changed or new, as \"{message}\".",
      f"Commit the open changes of {folder}, new files as well, with \"{message}\", but"
      f" on a new branch {branch}, not on main.",
  ))  # fmt: skip
  spec = {
      "branch": branch, "on": branch, "parents": ["main"],
      "message": message,
  }  # fmt: skip
  return _part(
      "git_commit", said,
      [
          f"git -C {folder} status --short",
          f"cd {folder} && git checkout -q -b {branch} && git add -A"
          f" && git commit -qm '{message}'",
          f"git -C {folder} log --oneline --stat -n 1",
      ],
      folder, workspace, spec, f"the changes are on {branch}", after,
  )  # fmt: skip


@chore("version control")
def git_merge(setting: Setting) -> Part:
  """A branch is merged into main, which went on meanwhile."""
  folder, repository, files = _start(setting)
  branch = setting.word("topic")
  one, other = sorted(files)[:2]
  first = repository.commit(files, "First version")
  theirs = files | {one: files[one] + text(page(setting, 2))}
  ours = files | {other: text(page(setting, 1)) + files[other]}
  side = repository.commit(theirs, "Work on the side", first)
  main = repository.commit(ours, "Meanwhile", first)
  workspace = repository.files(folder, {"main": main, branch: side}, ours)
  after = ours | {one: theirs[one]}
  said = setting.rng.choice((
      f"Merge the branch {branch} into main in the repository {folder}.",
      f"In {folder}, bring what is on {branch} into main by a merge commit.",
      f"{branch} of {folder} is ready: merge it into main and stay on main.",
  ))  # fmt: skip
  spec = {
      "branch": "main", "on": "main", "parents": [main, side],
      "message": "",
  }  # fmt: skip
  return _part(
      "git_merge", said,
      [
          f"git -C {folder} log --oneline --all --graph",
          f"cd {folder} && git merge -q --no-edit {branch}",
          f"git -C {folder} log --oneline --graph",
      ],
      folder, workspace, spec, f"{branch} is merged", after,
  )  # fmt: skip


@chore("version control")
def git_revert(setting: Setting) -> Part:
  """One file goes back to what it was in the first commit."""
  folder, repository, files = _start(setting)
  name = setting.rng.choice(sorted(files))
  later = files | {name: text(page(setting, 5))}
  first = repository.commit(files, "First version")
  second = repository.commit(later, "Rewrite", first)
  workspace = repository.files(folder, {"main": second}, later)
  message = f"Restore {name}"
  said = setting.rng.choice((
      f"Bring {name} in the repository {folder} back to its version before the last"
      f" commit, and commit that on main as \"{message}\".",
      f"In {folder}, undo what the last commit did to {name}: a new commit on main with"
      f" the message \"{message}\" that has the old text.",
      f"The last commit of {folder} spoiled {name}; restore the version before it and"
      f" commit with \"{message}\" on main.",
  ))  # fmt: skip
  spec = {
      "branch": "main", "on": "main", "parents": [second],
      "message": message,
  }  # fmt: skip
  return _part(
      "git_revert", said,
      [
          f"git -C {folder} log --oneline --stat",
          f"cd {folder} && git checkout -q HEAD~1 -- {name}"
          f" && git commit -qm '{message}'",
          f"git -C {folder} log --oneline --stat -n 1",
      ],
      folder, workspace, spec, f"{name} is restored", files,
  )  # fmt: skip
