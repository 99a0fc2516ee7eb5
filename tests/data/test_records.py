"""Records become ids of which the assistant's turns are trained, each once."""

import json

import numpy as np
import pytest

from clawgym_jax.chat.conversation import Conversation, prompt_ids
from clawgym_jax.contracts.trajectory import to_record
from clawgym_jax.data import records
from clawgym_jax.data.sequence import head, turn_ends
from clawgym_jax.data.tree import Tree
from tests.data.chats import TOOLS, chat, tokenizer, trajectory


def sequences(value, **kw):
  data = value if isinstance(value, bytes) else json.dumps(value).encode()
  return records.sequences(data, tokenizer(), **kw)


def spoken(sequence):
  """What is trained, as text."""
  return tokenizer().decode([int(t) for t in sequence.tokens[sequence.trained]])


def test_trained_tokens_are_the_assistants_own_words():
  (sequence,) = sequences(chat())
  text = spoken(sequence)
  assert text.count("<|im_end|>") == 3
  assert text.endswith("The sum is 46.<|im_end|>")
  assert "result" not in text and "You work" not in text
  assert sequence.trained[-1]  # nothing after the last answer


def test_ids_equal_those_of_the_incremental_recorder():
  """What supervised training sees is what a rollout would have recorded."""
  messages = chat()["messages"]
  (sequence,) = sequences(chat())
  talk = Conversation.start(tokenizer(), messages[:2], TOOLS)
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
  start = prompt_ids(tokenizer(), messages[:2], TOOLS)
  assert talk.ids[: len(start)] == start


def test_turns_end_where_the_assistant_ends_them():
  (sequence,) = sequences(chat(6))
  ends = turn_ends(sequence)
  assert len(ends) == 7 and ends[-1] == len(sequence)
  for end in ends:
    assert spoken(head(sequence, end)).endswith("<|im_end|>")
    assert sequence.tokens[end - 1] == tokenizer().eos_id


def test_a_trajectory_keeps_the_ids_that_were_sampled():
  value = trajectory(ids=True)
  made = sequences(to_record(value))
  assert len(made) == 2  # one a leaf
  s0, s1, s2 = value.steps
  assert made[0].tokens.tolist() == (
      s0.prompt_ids + s0.response_ids + s1.prompt_ids + s1.response_ids
  )
  assert [spoken(one) for one in made] == [
      "I look.<|im_end|>It is one.<|im_end|>", "It is two.<|im_end|>"
  ]  # fmt: skip


def test_a_trajectory_of_texts_trains_every_answer_once():
  made = sequences(to_record(trajectory(ids=False)))
  assert [spoken(one) for one in made] == [
      "I look.<|im_end|>It is one.<|im_end|>", "It is two.<|im_end|>"
  ]  # fmt: skip
  tree = Tree(made)
  assert tree.size < sum(map(len, made))  # what they share is there once
  assert tree.row(512).loss_weight.sum() == sum(one.trained_tokens for one in made)


@pytest.mark.parametrize(
    "kw, why",
    [
        ({"reward": 0.4}, "below min_reward"),
        ({"status": "unscored"}, "unscored"),
        ({"status": "truncated"}, "truncated"),
    ],
)
def test_trajectories_that_ended_badly_are_not_chosen(kw, why):
  with pytest.raises(records.NotChosen, match=why):
    sequences(to_record(trajectory(ids=True, **kw)), min_reward=0.5)


def mixed():
  record = to_record(trajectory(ids=True))
  record["steps"][2] = to_record(trajectory(ids=False))["steps"][2]
  return record


def foreign():
  record = to_record(trajectory(ids=True))
  record["steps"][0]["prompt_ids"][0] = tokenizer().vocab_size
  return record


def uneven():
  record = to_record(trajectory(ids=True))
  record["steps"][0]["logprobs"].pop()
  return record


def with_message(**fields):
  value = chat()
  value["messages"][1] = fields
  return value


USER = [{"role": "user", "content": "hi"}]
BAD = {
    "torn": (b'{"messages": [{"role"', records.UNREADABLE),
    "not UTF-8": (b"\xff\xfe{}", records.UNREADABLE),
    "deep": (b"[" * 100_000, records.UNREADABLE),
    "a number": (b"7", records.WRONG_TYPE),
    "a task": ({"instruction": "do", "checks": []}, records.WRONG_TYPE),
    "messages are a text": ({"messages": "hi"}, records.WRONG_TYPE),
    "no messages": ({"messages": []}, records.WRONG_TYPE),
    "a message is a text": ({"messages": ["hi"]}, records.WRONG_TYPE),
    "no role": (with_message(content="x"), records.WRONG_TYPE),
    "content is a number": (with_message(role="user", content=5), records.WRONG_TYPE),
    "tools are a text": (chat() | {"tools": "read"}, records.WRONG_TYPE),
    "strange parts": (
        {"messages": [*USER, {"role": "assistant", "content": [{"type": 3}]}]},
        records.NO_LAYOUT,
    ),
    "strange calls": (
        {"messages": [*USER, {"role": "assistant", "content": "", "tool_calls": 5}]},
        records.NO_LAYOUT,
    ),
    "half a character": (
        {"messages": [*USER, {"role": "assistant", "content": "\ud800"}]},
        records.NO_LAYOUT,
    ),
    "nobody speaks": ({"messages": USER}, records.NOTHING_TRAINED),
    "steps are a number": ({"steps": 5}, records.WRONG_TYPE),
    "no steps": (
        to_record(trajectory(ids=True)) | {"steps": []},
        records.NOTHING_TRAINED,
    ),
    "ids and texts": (mixed(), records.WRONG_TYPE),
    "another vocabulary": (foreign(), records.WRONG_TYPE),
    "fewer log-probs": (uneven(), records.WRONG_TYPE),
}


@pytest.mark.parametrize("value, cause", BAD.values(), ids=BAD)
def test_a_bad_record_has_a_cause_and_no_traceback(value, cause):
  with pytest.raises(records.Bad) as error:
    sequences(value)
  assert error.value.cause == cause and error.value.detail


def test_a_vocabulary_is_trained_on_what_readable_records_say():
  told = records.text(json.dumps(to_record(trajectory(ids=True))).encode())
  assert "It is two." in told and "prompt_ids" not in told
  assert "The sum" in records.text(json.dumps(chat()).encode())
