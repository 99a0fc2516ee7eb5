"""Tokens are made once, by any number of processes, whole or not at all."""

import errno
import os
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.data import records, tokenised
from clawgym_jax.data.sources import open_source
from tests.conftest import ROOT
from tests.data.chats import alive, children_of, tokenizer, write
from tests.pool.samples import wait_for


def tokens(path, cache, **kw):
  return tokenised.tokenise(open_source(str(path)), tokenizer(), cache, **kw)


def content(entry):
  """The bytes of an entry's files."""
  names = (p.name for p in entry.folder.iterdir() if p.is_file())
  return {n: (entry.folder / n).read_bytes() for n in names if n != ".lock"}


def test_an_entry_gives_back_what_the_records_gave(tmp_path):
  source = open_source(str(write(tmp_path / "a.jsonl", 9)))
  entry = tokens(tmp_path / "a.jsonl", tmp_path / "cache")
  again = pickle.loads(pickle.dumps(entry))
  assert len(entry) == entry.records == 9 and not entry.bad
  for index in range(9):
    (want,) = records.sequences(source[index], tokenizer())
    for have in (entry[index], again[index]):
      np.testing.assert_array_equal(have.tokens, want.tokens)
      np.testing.assert_array_equal(have.trained, want.trained)
    assert entry.length[index] == len(want)
    assert entry.trained[index] == want.trained_tokens
  with pytest.raises(IndexError):
    entry[9]


def test_equal_records_are_tokenised_once_and_others_anew(tmp_path, monkeypatch):
  cache = tmp_path / "cache"
  first = tokens(write(tmp_path / "a.jsonl", 5), cache)
  monkeypatch.setattr(tokenised, "_fill", None)  # no second time
  assert tokens(write(tmp_path / "b.jsonl", 5), cache).folder == first.folder
  for change in ({"min_reward": 0.9}, {"path": write(tmp_path / "c.jsonl", 6)}):
    with pytest.raises(TypeError):
      tokens(**{"path": tmp_path / "a.jsonl", "cache": cache} | change)
  monkeypatch.setattr(tokenised, "_code", lambda: "another version")
  with pytest.raises(TypeError):
    tokens(tmp_path / "a.jsonl", cache)


def test_helpers_write_the_same_bytes(tmp_path):
  path = write(tmp_path / "a.jsonl", 2 * tokenised._CHUNK + 3, turns=0)
  with open(path, "a") as file:
    file.write("{torn\n")
  alone = tokens(path, tmp_path / "alone")
  helped = tokens(path, tmp_path / "helped", processes=2)
  assert content(alone) == content(helped) and len(content(alone)) == 8
  assert [line["record"] for line in alone.bad] == [2 * tokenised._CHUNK + 3]


SCRIPT = """
import sys
from pathlib import Path
from clawgym_jax.data import tokenised
from clawgym_jax.data.sources import open_source
from tests.data.chats import tokenizer

tokenised._CHUNK = 8
if __name__ == "__main__":
  path, cache, processes = sys.argv[1:]
  tokenised.tokenise(
      open_source(path), tokenizer(), Path(cache), processes=int(processes)
  )
"""


def test_a_killed_run_takes_its_helpers_along_and_is_continued(tmp_path, monkeypatch):
  path = write(tmp_path / "a.jsonl", 640, turns=3)
  cache = tmp_path / "cache"
  (tmp_path / "script.py").write_text(SCRIPT)
  process = subprocess.Popen(
      [sys.executable, tmp_path / "script.py", path, cache, "2"],
      env=os.environ | {"PYTHONPATH": str(ROOT)},
  )
  try:
    deadline = time.monotonic() + 60
    while len(list(cache.glob("*/*[0-9].json"))) < 3:
      assert process.poll() is None and time.monotonic() < deadline
      time.sleep(0.005)
    helpers = children_of(process.pid)
    assert len(helpers) >= 2
  finally:
    process.kill()
    process.wait()
  wait_for(lambda: not any(map(alive, helpers)))
  done = list(cache.glob("*/*[0-9].json"))
  assert len(done) < 80 and not list(cache.glob("*/index.json"))
  before = {p: p.stat().st_mtime_ns for p in done}
  (done[0].parent / ".00070.npy.x7_1").write_bytes(b"torn")  # or one of its own
  monkeypatch.setattr(tokenised, "_CHUNK", 8)
  entry = tokens(path, cache)
  assert {p: p.stat().st_mtime_ns for p in done} == before
  assert content(entry) == content(tokens(path, tmp_path / "unbroken"))


def test_a_full_disk_is_named_and_the_same_command_continues(tmp_path, monkeypatch):
  path = write(tmp_path / "a.jsonl", 3)
  real = os.fsync

  def full(handle):
    raise OSError(errno.ENOSPC, "No space left on device")

  monkeypatch.setattr(os, "fsync", full)
  with pytest.raises(UserError, match="no space left"):
    tokens(path, tmp_path / "cache")
  monkeypatch.setattr(os, "fsync", real)
  assert len(tokens(path, tmp_path / "cache")) == 3


def test_a_user_without_a_home_gives_a_folder(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  assert tokenised.default_cache() == tmp_path / "clawgym_jax" / "tokens"
  monkeypatch.delenv("XDG_CACHE_HOME")
  monkeypatch.delenv("HOME", raising=False)
  monkeypatch.setattr(os.path, "expanduser", lambda path: path)
  with pytest.raises(UserError, match="--config.data.cache=DIR"):
    tokenised.default_cache()


def test_damage_to_the_cache_is_named(tmp_path):
  entry = tokens(write(tmp_path / "a.jsonl", 3), tmp_path / "cache")
  (entry.folder / "00000.npy").write_bytes(b"")
  with pytest.raises(UserError, match="damaged.*remove"):
    tokens(tmp_path / "a.jsonl", tmp_path / "cache")[0]
