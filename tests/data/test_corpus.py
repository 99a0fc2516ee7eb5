"""What is too long, bad or not chosen is counted and listed, by the policy."""

import json

import pytest
import tokenizers

from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.configs.base import Data
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import read_lines
from clawgym_jax.contracts.trajectory import to_record
from clawgym_jax.data import corpus as corpora
from clawgym_jax.data import records
from clawgym_jax.data.sequence import turn_ends
from tests.data.chats import chat, load, tokenizer, trajectory, write, write_shard


def lengths(path, cache):
  return load(path, cache, row_length=1 << 14).sequences.length.tolist()


def test_long_chats_lose_whole_turns(tmp_path):
  path = write(tmp_path / "a.jsonl", 8)  # of one to four answers
  whole = load(path, tmp_path, row_length=1 << 14)
  ends = turn_ends(whole.sequences[3])
  limit = int(ends[2]) + 3
  cut = load(path, tmp_path, row_length=limit)
  assert cut.truncated == 2 and not cut.causes and len(cut.sequences) == 8
  for index, sequence in enumerate(cut.sequences):
    full = whole.sequences[index]
    keep = len(full) if len(full) <= limit else int(ends[2])
    assert len(sequence) == keep == cut.sequences.length[index]
    assert (sequence.tokens == full.tokens[:keep]).all()
    assert sequence.trained_tokens == cut.sequences.trained[index]
  lost = whole.trained_tokens - cut.trained_tokens
  assert lost > 0 and [part.lost_tokens for part in cut.parts] == [lost]
  assert whole.parts[0].quarantine.read_text() == ""


def test_long_chats_are_dropped_where_that_is_the_policy(tmp_path):
  path = write(tmp_path / "a.jsonl", 8)
  have = lengths(path, tmp_path)
  limit = max(have) - 1
  dropped = load(path, tmp_path, row_length=limit, truncation="drop", max_bad=0)
  assert dropped.sequences.length.tolist() == [n for n in have if n <= limit]
  assert dropped.causes == {records.TOO_LONG: 2} and dropped.truncated == 0
  lines = list(read_lines(dropped.parts[0].quarantine))
  assert [line["record"] for line in lines] == [3, 7]
  assert all(line["where"].endswith(f"line {line['record'] + 1}") for line in lines)
  assert all(str(limit) in line["detail"] for line in lines)


def test_a_chat_whose_first_answer_does_not_fit_is_bad(tmp_path):
  path = tmp_path / "a.jsonl"
  long = chat(0, "a" * 300)
  path.write_text("".join(json.dumps(c) + "\n" for c in [chat(0)] * 9 + [long]))
  limit = lengths(path, tmp_path)[0]
  with pytest.raises(UserError, match="1 of the 10 .*line 10: longer than a row"):
    load(path, tmp_path, row_length=limit)
  corpus = load(path, tmp_path, row_length=limit, max_bad=0.1)
  assert len(corpus.sequences) == 9 and corpus.causes == {records.TOO_LONG: 1}
  (line,) = read_lines(corpus.parts[0].quarantine)
  assert line["where"] == f"{path} line 10"


def test_bad_records_are_quarantined_and_counted_up_to_the_bound(tmp_path):
  path = write(tmp_path / "a.jsonl", 96)
  with open(path, "a") as file:
    file.write('{"messages": [{"role": "us\n7\n{"messages": [{"role": "user",'
               ' "content": "hi"}]}\n' + json.dumps(chat(0)) + "\n")
  with pytest.raises(UserError, match="3 of the 100 .*max_bad = 0.02.*97: unread"):
    load(path, tmp_path, max_bad=0.02)
  corpus = load(path, tmp_path, max_bad=0.03)
  assert corpus.causes == {
      records.UNREADABLE: 1, records.WRONG_TYPE: 1, records.NOTHING_TRAINED: 1
  }  # fmt: skip
  assert len(corpus.sequences) + sum(corpus.causes.values()) == corpus.records == 100
  lines = list(read_lines(corpus.parts[0].quarantine))
  assert [line["where"] for line in lines] == [f"{path} line {n}" for n in (97, 98, 99)]
  assert [line["cause"] for line in lines] == list(corpus.causes)
  moved = path.rename(tmp_path / "moved.jsonl")  # the same records elsewhere
  (line, *_) = read_lines(load(moved, tmp_path, max_bad=0.03).parts[0].quarantine)
  assert line["where"] == f"{moved} line 97"


def test_a_corrupt_chunk_is_quarantined(tmp_path):
  path = tmp_path / "a.array_record"
  write_shard(path, [chat(n % 4, f"file{n}" * 400) for n in range(60)])
  data = bytearray(path.read_bytes())
  data[len(data) // 3] ^= 0xFF
  path.write_bytes(data)
  corpus = load(path, tmp_path, row_length=1 << 14, max_bad=0.05)
  lost = corpus.causes[records.UNREADABLE]
  assert lost >= 1 and len(corpus.sequences) == 60 - lost
  lines = list(read_lines(corpus.parts[0].quarantine))
  assert len(lines) == lost and "Corrupted" in lines[0]["detail"]


def test_a_model_without_a_chat_template_is_no_fault_of_the_records(tmp_path):
  path = write(tmp_path / "a.jsonl", 3)
  files = tokenizer().to_files()
  plain = Tokenizer(tokenizers.Tokenizer.from_str(files["tokenizer.json"]))
  data = Data(chats=str(path), cache=str(tmp_path))
  with pytest.raises(UserError, match="no chat template"):
    corpora.load(corpora.open_sources(str(path)), plain, data)


def test_trajectories_below_the_reward_are_left_out_and_not_bad(tmp_path):
  path = tmp_path / "trajectories.jsonl"
  told = [
      trajectory(ids=True),
      trajectory(ids=True, reward=0.2),
      trajectory(ids=False, reward=0.7),
      trajectory(ids=True, status="unscored"),
  ]
  path.write_text("".join(json.dumps(to_record(t)) + "\n" for t in told))
  corpus = load(path, tmp_path, min_reward=0.5, max_bad=0)
  assert corpus.causes == {"below min_reward": 1, "unscored": 1}
  assert len(corpus.sequences) == 4  # two leaves each
  assert corpus.parts[0].quarantine.read_text() == ""
  with pytest.raises(UserError, match="nothing to train on.* 3 below min_reward"):
    load(path, tmp_path, min_reward=1.0 + 1e-9)


def test_a_missing_source_of_a_mixture_is_named_before_any_is_tokenised(tmp_path):
  path = write(tmp_path / "a.jsonl", 3)
  with pytest.raises(UserError, match="there is no .*nowhere.jsonl"):
    load(f"{path}@1,{tmp_path}/nowhere.jsonl@2", tmp_path / "cache")
  assert not (tmp_path / "cache").exists()


def test_a_vocabulary_is_trained_on_what_can_be_read(tmp_path):
  path = tmp_path / "a.jsonl"
  path.write_text("{torn\n" + json.dumps(chat(0)))
  (text,) = corpora.open_sources(str(path)).texts()
  assert "The sum is 46." in text
  path.write_text("{torn\n7\n")
  with pytest.raises(UserError, match="no record is a chat"):
    list(corpora.open_sources(str(path)).texts())


def test_several_sources_are_one_corpus(tmp_path):
  a, b = write(tmp_path / "a.jsonl", 3), write(tmp_path / "b.jsonl", 5, turns=1)
  corpus = load(f"{a},{b}", tmp_path)
  assert [(p.first, p.stop) for p in corpus.parts] == [(0, 3), (3, 8)]
  apart = [load(path, tmp_path).sequences for path in (a, b)]
  for index, sequence in enumerate(corpus.sequences):
    want = apart[0][index] if index < 3 else apart[1][index - 3]
    assert (sequence.tokens == want.tokens).all()
