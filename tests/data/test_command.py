"""`python -m clawgym_jax.data`: statistics, samples with their masks, what is wrong."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from clawgym_jax.data import records
from clawgym_jax.data.shown import coloured, histogram
from tests.data.chats import chat, load, tokenizer, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp("command")
  write(folder / "chats.jsonl", 120)
  with open(folder / "chats.jsonl", "a") as file:
    file.write("{torn\n")
  write(folder / "more.jsonl", 8, turns=0)
  tokenizer().save(folder / "model")
  return folder


def run(folder, *flags):
  return subprocess.run(
      [sys.executable, "-m", "clawgym_jax.data", *flags],
      capture_output=True,
      text=True,
      timeout=120,
      cwd=folder,
      env=os.environ | {"PYTHONPATH": os.getcwd(), "XDG_CACHE_HOME": str(folder / "c")},
  )


def test_the_command_prints_statistics_and_samples(folder):
  result = run(
      folder, "--chats=chats.jsonl@1,more.jsonl@1", "--tokenizer=model",
      "--config.data.row_length=512", "--samples=3", "--json",
  )  # fmt: skip
  assert result.returncode == 0, result.stderr
  summary = json.loads(result.stdout.splitlines()[-1])
  assert summary["records"] == 129 and summary["sequences"] == 128
  assert summary["left_out"] == {records.UNREADABLE: 1}
  assert 0 < summary["trained_tokens"] < summary["tokens"]
  assert summary["packed_tokens"] < summary["tokens"]
  assert 0 < summary["padding_share"] < 1 and summary["rows"] > 1
  assert "chats.jsonl line 121" in open(folder / summary["quarantine"][0]).read()
  assert "weight 1: an epoch sees each" in result.stdout
  assert result.stdout.count("[[The sum is 46.<|im_end|>]]") == 3
  assert "256 to 511" in result.stdout


def test_a_config_says_what_is_tokenised_and_with_what(folder):
  result = run(
      folder, "--config=tiny_sft", "--config.data.chats=chats.jsonl", "--samples=0",
      "--config.model.vocab_size=320", "--json",
  )  # fmt: skip
  assert result.returncode == 0, result.stderr
  assert json.loads(result.stdout.splitlines()[-1])["records"] == 121


@pytest.mark.parametrize(
    "flags, words",
    [
        ([], "--chats=NAME"),
        (["--chats=chats.jsonl", "--config.data.max_bad=0"], "max_bad"),
    ],
)
def test_what_is_wrong_is_said_without_a_traceback(folder, flags, words):
  refused = run(folder, *flags)
  assert refused.returncode == 1
  assert words in refused.stderr and "Traceback" not in refused.stderr


def test_trained_runs_are_marked(tmp_path):
  path = tmp_path / "a.jsonl"
  path.write_text(json.dumps(chat(1)))
  sequence = load(path, tmp_path).sequences[0]
  plain = coloured(sequence, tokenizer(), False)
  assert plain.count("[[") == plain.count("]]") == 2
  assert coloured(sequence, tokenizer(), True) == (
      plain.replace("[[", "\x1b[32m").replace("]]", "\x1b[0m")
  )


def test_the_histogram_counts_every_length():
  lines = histogram(np.array([3, 70, 100, 128, 1023]))
  assert [line.split() for line in lines][0][:4] == ["2", "to", "3", "1"]
  assert sum(int(line.split()[3]) for line in lines) == 5
  assert lines[-1].split()[:3] == ["512", "to", "1023"]
