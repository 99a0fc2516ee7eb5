"""Git repositories of a workspace: they hold what the task shows, nothing more.

A history that the agent should not have leaks answers: remotes, reflogs, refs
that are neither branch nor tag, objects that nothing reaches any more.
`check_git` refuses those and says which commands mend it; `clean_git` mends it.
A workspace travels as files without empty folders, so refs that are only in
`packed-refs` are refused too: such a copy would be no repository.

The repository is not trusted: git reads its objects, refs and index through a
folder of ours, so that nothing in its configuration is ever run.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clawgym_jax.contracts.errors import RecordError, UserError

GIT_SECONDS = 60.0

_KEPT = ("refs/heads/", "refs/tags/")
_LEFTOVERS = (
    "logs", "FETCH_HEAD", "lost-found", "worktrees", "objects/info/alternates",
)  # fmt: skip
_STALE = (*_LEFTOVERS, "ORIG_HEAD", "hooks", "packed-refs", "rr-cache", "objects")
_SECTION = re.compile(r"\s*\[\s*([\w.-]+)(?:\s+\"((?:[^\"\\]|\\.)*)\")?\s*\]")
_FOREIGN = (
    "remote", "branch", "url", "include", "includeif", "submodule", "credential",
)  # fmt: skip
_HEAD = re.compile(r"ref: (refs/\S+)|[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True)
class _Fault:
  """What a repository has that it must not, and the command that mends it."""

  what: str
  mend: str


def check_git(workspace: Path) -> None:
  """`RecordError` if a repository in `workspace` holds more than its branches."""
  for repository in _repositories(workspace):
    if repository.is_file():
      raise RecordError(
          f"{repository} points to a repository elsewhere: remove it, or copy the"
          f" whole repository (git clone --no-hardlinks)"
      )
    faults = _faults(repository)
    if faults:
      raise RecordError(
          f"{repository} has {'; '.join(fault.what for fault in faults)}. A workspace's"
          " repository is files that hold what branches and tags reach, no more. Mend"
          " it by:\n  " + "\n  ".join(fault.mend for fault in faults)
      )


def clean_git(workspace: Path) -> list[Path]:
  """Makes every repository in `workspace` pass `check_git`; those there were.

  Kept are branches, tags, HEAD, the index, what they reach, and the settings
  that name no other place. A `.git` file, which points elsewhere, is removed.
  """
  found = _repositories(workspace)
  for repository in found:
    if repository.is_file():
      repository.unlink()
    else:
      _clean(repository)
  return found


def _repositories(workspace: Path) -> list[Path]:
  """Folders that git would take for a repository, and .git files."""
  found = []
  for folder, folders, files in os.walk(workspace):
    here = Path(folder)
    if "HEAD" in files and "objects" in folders:
      found.append(here)
    if ".git" in files:
      found.append(here / ".git")
  return sorted(found)


def _faults(repository: Path) -> list[_Fault]:
  place = shlex.quote(str(repository))
  git = f"git --git-dir={place}"
  faults = []
  config = _text(repository / "config")
  for name, label in _sections(config):
    if name == "remote":
      faults.append(
          _Fault(f"the remote {label}", f"{git} remote remove {shlex.quote(label)}")
      )
    elif name in ("include", "includeif", "submodule"):
      section = f"{name}.{label}" if label else name
      mend = f"{git} config --remove-section {shlex.quote(section)}"
      faults.append(_Fault(f"the setting {section}", mend))
  refs = _refs(repository)
  for ref in sorted(ref for ref in refs if not ref.startswith(_KEPT)):
    faults.append(_Fault(f"the ref {ref}", f"{git} update-ref -d {shlex.quote(ref)}"))
  for name in _LEFTOVERS:
    path = repository / name
    if path.is_file() or any(p.is_file() for p in path.rglob("*")):
      what = "reflogs" if name == "logs" else name
      faults.append(_Fault(what, f"rm -rf {shlex.quote(str(path))}"))
  if any(repository.glob("objects/**/tmp_*")):
    faults.append(_Fault("unfinished objects", f"{git} gc --prune=now"))
  if not faults:  # what nothing reaches is only known without the refs above
    lost = _unreachable(repository, refs)
    if lost:
      faults.append(_Fault(f"{len(lost)} unreachable objects", f"{git} gc --prune=now"))
  if refs and not any(p.is_file() for p in (repository / "refs").rglob("*")):
    faults.append(
        _Fault(
            "its refs in packed-refs alone",
            f"{git} for-each-ref --format='%(objectname) %(refname)' | while read id"
            f" ref; do mkdir -p {place}/$(dirname $ref); echo $id > {place}/$ref; done",
        )
    )
  return faults


def _unreachable(repository: Path, refs: dict[str, str]) -> list[str]:
  with _view(repository, refs) as environment:
    listed = _git(
        ["fsck", "--full", "--unreachable", "--no-reflogs", "--no-progress"],
        environment,
        repository,
    )
  return [line for line in listed.splitlines() if line.startswith("unreachable ")]


def _clean(repository: Path) -> None:
  refs = {k: v for k, v in _refs(repository).items() if k.startswith(_KEPT)}
  with tempfile.TemporaryDirectory(prefix="clawgym-git-") as place:
    packed = Path(place) / "pack"
    packed.mkdir()
    with _view(repository, refs) as environment:
      _git(
          ["pack-objects", "--quiet", "--revs", "--all", "--indexed-objects",
           "--non-empty", str(packed / "pack")],
          environment,
          repository,
      )  # fmt: skip
    for name in _STALE:
      path = repository / name
      if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
      else:
        path.unlink(missing_ok=True)
    shutil.rmtree(repository / "refs", ignore_errors=True)
    (repository / "objects").mkdir()
    shutil.copytree(packed, repository / "objects" / "pack")
  for ref, target in refs.items():
    path = repository / ref
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(target + "\n")
  (repository / "refs" / "heads").mkdir(parents=True, exist_ok=True)
  config = repository / "config"
  if config.exists():
    config.write_text(_own_sections(_text(config)))


@contextlib.contextmanager
def _view(repository: Path, refs: dict[str, str]) -> Iterator[dict[str, str]]:
  """The environment in which git sees the objects, these refs and the index."""
  head = _text(repository / "HEAD").strip()
  if not _HEAD.fullmatch(head):
    raise RecordError(f"{repository}/HEAD names nothing: {head[:80]!r}")
  config = _text(repository / "config").lower()
  if re.search(r"^\s*refstorage\s*=", config, re.MULTILINE):
    raise RecordError(
        f"{repository} keeps its refs in no files; use --ref-format=files"
    )
  settings = "[core]\nrepositoryformatversion = 1\nbare = true\n"
  if re.search(r"^\s*objectformat\s*=\s*sha256", config, re.MULTILINE):
    settings += "[extensions]\nobjectformat = sha256\n"
  with tempfile.TemporaryDirectory(prefix="clawgym-git-") as place:
    view = Path(place)
    for name in ("refs", "objects"):
      (view / name).mkdir()
    (view / "config").write_text(settings)
    (view / "HEAD").write_text(head + "\n")
    lines = [f"{to} {ref}\n" for ref, to in sorted(refs.items()) if _ID.fullmatch(to)]
    (view / "packed-refs").write_text("".join(lines))
    if (repository / "shallow").is_file():
      shutil.copy(repository / "shallow", view / "shallow")
    yield {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        "HOME": place,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_DIR": place,
        "GIT_OBJECT_DIRECTORY": str(repository.absolute() / "objects"),
        "GIT_INDEX_FILE": str(repository.absolute() / "index"),
    }


def _git(arguments: list[str], environment: dict[str, str], repository: Path) -> str:
  try:
    done = subprocess.run(
        ["git", *arguments], env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=GIT_SECONDS, cwd=environment["GIT_DIR"],
    )  # fmt: skip
  except FileNotFoundError:
    raise UserError(
        f"{repository} can't be checked without git; apt install git"
    ) from None
  except subprocess.TimeoutExpired:
    raise RecordError(f"{repository}: git took more than {GIT_SECONDS:g} s") from None
  if done.returncode != 0:
    said = done.stderr.decode(errors="replace").strip()
    raise RecordError(f"{repository} is damaged: {said[-300:]}")
  return done.stdout.decode(errors="replace")


def _refs(repository: Path) -> dict[str, str]:
  """Every ref by its full name, as it is written: an id, or `ref: ` another."""
  refs = {}
  for line in _text(repository / "packed-refs").splitlines():
    target, _, name = line.strip().partition(" ")
    if name.startswith("refs/") and _ID.fullmatch(target):
      refs[name] = target
  for path in sorted((repository / "refs").rglob("*")):
    if path.is_file() and not path.is_symlink():
      refs[path.relative_to(repository).as_posix()] = _text(path).strip()
  return refs


def _sections(config: str) -> list[tuple[str, str]]:
  """(name in lower case, label) of each section's header."""
  found = (_SECTION.match(line) for line in config.splitlines())
  return [(m[1].lower(), m[2] or "") for m in found if m]


def _own_sections(config: str) -> str:
  """The configuration less the sections that name another place."""
  kept, keep = [], True
  for line in config.splitlines(keepends=True):
    header = _SECTION.match(line)
    if header:
      keep = header[1].lower() not in _FOREIGN
    if keep:
      kept.append(line)
  return "".join(kept)


def _text(path: Path) -> str:
  try:
    return path.read_text(errors="surrogateescape")
  except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
    return ""
