"""Chats become ids of which the assistant's turns are trained, cut by whole turns."""

import json
import subprocess
import sys

import numpy as np
import pytest

from clawgym_jax.chat import vocabulary
from clawgym_jax.chat.conversation import Conversation, prompt_ids
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.data import chats

TOOLS = [{
    "type": "function",
    "function": {"name": "read", "parameters": {"properties": {"path": {}}}},
}]


def chat(turns=2):
  messages = [
      {"role": "system", "content": "You work on files."},
      {"role": "user", "content": "Sum the numbers."},
  ]
  for turn in range(turns):
    messages += [
        {
            "role": "assistant",
            "content": f"step {turn}",
            "tool_calls": [{
                "id": "1",
                "type": "function",
                "function": {"name": "read", "arguments": '{"path": "a.txt"}'},
            }],
        },
        {"role": "tool", "tool_call_id": "1", "content": f"result {turn} 12 34"},
    ]
  messages.append({"role": "assistant", "content": "The sum is 46."})
  return {"messages": messages, "tools": TOOLS, "task_id": "t", "reward": 1.0}


@pytest.fixture(scope="module")
def tokenizer():
  return vocabulary.train(chats.texts([chat()] * 20), 400)


def test_trained_tokens_are_the_assistants_own_words(tokenizer):
  sequence, cut = chats.tokenize(chat(), tokenizer, 4096)
  assert not cut
  spoken = tokenizer.decode([int(t) for t in sequence.tokens[sequence.trained]])
  assert spoken.count("<|im_end|>") == 3
  assert spoken.endswith("The sum is 46.<|im_end|>")
  assert "result" not in spoken and "You work" not in spoken
  assert sequence.trained[-1]  # nothing after the last answer


def test_ids_equal_those_of_the_incremental_recorder(tokenizer):
  """What supervised training sees is what a rollout would have recorded."""
  value = chat()
  messages = value["messages"]
  sequence, _ = chats.tokenize(value, tokenizer, 4096)
  talk = Conversation.start(tokenizer, messages[:2], TOOLS)
  at = len(talk.ids)
  for index in range(2, len(messages)):
    if messages[index]["role"] != "assistant":
      continue
    stop = at + int(np.argmin(np.append(sequence.trained[at:], False)))
    talk.append_response([int(t) for t in sequence.tokens[at:stop]])
    if index + 1 < len(messages):
      talk.extend([messages[index + 1]])
    at = len(talk.ids)
  assert talk.ids == sequence.tokens.tolist()
  assert talk.ids[: len(prompt_ids(tokenizer, messages[:2], TOOLS))] == prompt_ids(
      tokenizer, messages[:2], TOOLS
  )


def test_long_chats_lose_whole_turns(tokenizer):
  full, _ = chats.tokenize(chat(6), tokenizer, 4096)
  ends = np.flatnonzero(full.trained & ~np.append(full.trained[1:], False)) + 1
  limit = int(ends[3]) + 3
  sequence, cut = chats.tokenize(chat(6), tokenizer, limit)
  assert cut and len(sequence) == ends[3]
  assert (sequence.tokens == full.tokens[: ends[3]]).all()
  assert chats.tokenize(chat(6), tokenizer, 10) == (None, False)


def test_bad_files_are_named(tmp_path, tokenizer):
  path = tmp_path / "chats.jsonl"
  with pytest.raises(UserError, match="not a file"):
    chats.read_chats(path)
  path.write_text(json.dumps(chat()) + "\n{torn")
  with pytest.raises(UserError, match="line 2"):
    chats.read_chats(path)
  path.write_text("\n")
  with pytest.raises(UserError, match="holds no chats"):
    chats.read_chats(path)
  path.write_text('{"messages": [{"role": "user", "content": "hi"}]}')
  with pytest.raises(UserError, match="no assistant"):
    chats.read_chats(path)
  with pytest.raises(UserError, match="row length"):
    chats.tokenize_all([chat()], tokenizer, 16)


def test_the_command_prints_statistics_and_samples(tmp_path, tokenizer):
  path = tmp_path / "chats.jsonl"
  path.write_text("".join(json.dumps(chat(n % 3)) + "\n" for n in range(9)))
  tokenizer.save(tmp_path / "model")
  result = subprocess.run(
      [
          sys.executable, "-m", "clawgym_jax.data", f"--chats={path}",
          f"--tokenizer={tmp_path}/model", "--row_length=512", "--json",
      ],
      capture_output=True, text=True, timeout=120,
  )
  assert result.returncode == 0, result.stderr
  summary = json.loads(result.stdout.splitlines()[-1])
  assert summary["chats"] == 9 and summary["dropped"] == 0
  assert 0 < summary["trained_tokens"] < summary["tokens"]
  assert summary["packed_tokens"] < summary["tokens"]
  assert "The sum is 46." in result.stdout
