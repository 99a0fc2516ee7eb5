"""P41: a workspace's repository with remotes, reflogs, other refs or unreachable
objects is refused, with commands that mend it; a cleaned one still works inside."""

import asyncio
import re
import shutil
import subprocess

import pytest

from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.contracts.git import check_git, clean_git
from clawgym_jax.contracts.task import Reference, Task, load_task, save_task
from data_gen.audit import audit
from sandbox.backends import open_sandbox

pytestmark = pytest.mark.skipif(
    shutil.which("git") is None, reason="git is not installed"
)
SECRET = "the-answer-is-4711"


def git(folder, *argv):
  done = subprocess.run(
      ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *argv],
      check=True, capture_output=True, text=True,
      env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
  )  # fmt: skip
  return done.stdout


def commit(folder, text):
  (folder / "a.txt").write_text(text)
  git(folder, "add", "-A")
  git(folder, "commit", "-qm", text)


@pytest.fixture
def workspace(tmp_path):
  """A repository, below a name with a blank, that holds no more than it shows."""
  folder = tmp_path / "work space" / "repo"
  folder.mkdir(parents=True)
  git(folder, "init", "-qb", "main")
  commit(folder, "one")
  git(folder, "branch", "side")
  git(folder, "tag", "v1")
  (folder / "staged.txt").write_text("in the index alone")
  git(folder, "add", "staged.txt")
  clean_git(folder.parent)
  return folder.parent


def remote(folder):
  git(folder, "remote", "add", "origin", "https://example.com/x.git")


def tracking(folder):
  git(folder, "update-ref", "refs/remotes/origin/fix", "HEAD")


def fetched(folder):
  (folder / ".git" / "FETCH_HEAD").write_text("0 not-for-merge https://example.com\n")


def reflog(folder):
  commit(folder, "two")


def stash(folder):
  (folder / "a.txt").write_text(SECRET)
  git(folder, "stash")


def reset(folder):
  git(folder, "config", "core.logAllRefUpdates", "false")
  commit(folder, SECRET)
  git(folder, "reset", "-q", "--hard", "HEAD~1")


def packed_reset(folder):
  """Unreachable within a pack, where pruning loose objects does not see it."""
  git(folder, "config", "core.logAllRefUpdates", "false")
  git(folder, "branch", "gone")
  git(folder, "checkout", "-q", "gone")
  commit(folder, SECRET)
  git(folder, "repack", "-qad")
  git(folder, "checkout", "-q", "main")
  git(folder, "branch", "-D", "gone")


def borrowed(folder):
  info = folder / ".git" / "objects" / "info"
  info.mkdir(parents=True, exist_ok=True)
  (info / "alternates").write_text("/srv/git/objects\n")


def packed_refs(folder):
  git(folder, "pack-refs", "--all")


CASES = [
    (remote, "the remote origin"),
    (tracking, "the ref refs/remotes/origin/fix"),
    (fetched, "FETCH_HEAD"),
    (reflog, "reflogs"),
    (stash, "the ref refs/stash"),
    (reset, "unreachable objects"),
    (packed_reset, "unreachable objects"),
    (borrowed, "objects/info/alternates"),
    (packed_refs, "packed-refs alone"),
]


@pytest.mark.parametrize("spoil, cause", CASES, ids=[c[0].__name__ for c in CASES])
def test_refused_and_mended(workspace, spoil, cause):
  repository = workspace / "repo"
  check_git(workspace)
  spoil(repository)
  with pytest.raises(RecordError, match=re.escape(cause)):
    check_git(workspace)
  log = git(repository, "log", "--oneline", "main")
  for _ in range(4):  # what one command brings to light the next one mends
    try:
      check_git(workspace)
      break
    except RecordError as error:
      _, *commands = str(error).splitlines()
      assert commands
      for command in commands:
        subprocess.run(["sh", "-c", command], check=True, capture_output=True)
  check_git(workspace)
  assert git(repository, "log", "--oneline", "main") == log


@pytest.mark.parametrize(
    "spoil", [c[0] for c in CASES], ids=[c[0].__name__ for c in CASES]
)
def test_cleaned(workspace, spoil):
  repository = workspace / "repo"
  spoil(repository)
  log = git(repository, "log", "--oneline", "main", "side", "v1")
  index = git(repository, "ls-files", "--stage")
  assert clean_git(workspace) == [repository / ".git"]
  check_git(workspace)
  assert git(repository, "log", "--oneline", "main", "side", "v1") == log
  assert git(repository, "ls-files", "--stage") == index
  held = git(repository, "cat-file", "--batch-all-objects", "--batch-check")
  kinds = [line.split() for line in held.splitlines()]
  blobs = [
      git(repository, "cat-file", "-p", i) for i, kind, _ in kinds if kind == "blob"
  ]
  assert blobs and SECRET not in blobs
  git(repository, "fsck", "--strict")


def test_nested_bare_and_linked_repositories(workspace, tmp_path):
  inner = workspace / "deep" / "er"
  inner.mkdir(parents=True)
  git(inner, "init", "-qb", "main")
  commit(inner, "x")
  with pytest.raises(RecordError, match="deep/er/.git has reflogs"):
    check_git(workspace)
  git(workspace, "clone", "-q", "--bare", str(inner), "bare.git")
  (workspace / "linked").mkdir()
  (workspace / "linked" / ".git").write_text(f"gitdir: {tmp_path}/elsewhere\n")
  assert len(clean_git(workspace)) == 4
  check_git(workspace)
  assert not (workspace / "linked" / ".git").exists()
  assert git(workspace / "bare.git", "log", "--format=%s") == "x\n"
  assert "remote" not in (workspace / "bare.git" / "config").read_text()


def test_nothing_of_the_repository_is_run(workspace, tmp_path):
  repository, mark = workspace / "repo", tmp_path / "ran"
  git(repository, "config", "core.fsmonitor", f"touch {mark}")
  git(repository, "config", "core.pager", f"touch {mark}")
  hooks = repository / ".git" / "hooks"
  hooks.mkdir(exist_ok=True)
  for name in ("pre-auto-gc", "reference-transaction", "post-index-change"):
    (hooks / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
    (hooks / name).chmod(0o755)
  check_git(workspace)
  clean_git(workspace)
  assert not mark.exists()


@pytest.mark.parametrize("damage", ["HEAD", "object"])
def test_a_damaged_repository_is_refused(workspace, damage):
  repository = workspace / "repo" / ".git"
  if damage == "HEAD":
    (repository / "HEAD").write_text("../../etc/passwd\n")
  else:
    next((repository / "objects" / "pack").glob("*.pack")).unlink()
  with pytest.raises(RecordError, match="HEAD names nothing|damaged"):
    check_git(workspace)


def test_load_and_audit_refuse_and_a_clean_one_works_inside(workspace, tmp_path):
  def files(folder):
    paths = [p for p in folder.rglob("*") if p.is_file()]
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in paths}

  def save(name):
    return save_task(
        tmp_path / "tasks" / name,
        Task(name, "i", "f", "train", "c", ("o",)),
        workspace=files(workspace), checks={"check.py": b""},
        turns=[Reference([], "")],
    )  # fmt: skip

  task = save("clean")

  async def inside():
    async with open_sandbox() as sandbox:
      await sandbox.start(task.workspace)
      return (
          await sandbox.exec("cd repo && git log --format=%s && git status -s")
      ).output

  assert asyncio.run(inside()) == "one\nA  staged.txt\n"
  remote(workspace / "repo")
  with pytest.raises(RecordError, match="remote remove origin"):
    save("leaky")
  assert load_task(tmp_path / "tasks" / "clean") == task
  (tmp_path / "tasks" / "clean").rename(tmp_path / "kept")
  summary = asyncio.run(audit(tmp_path / "tasks", 1))
  assert "remote remove origin" in summary["causes"]["leaky"][0]
