"""P02: what a template writes between turns is in the rolled-out ids, with tools."""

import pytest

from clawgym_jax.chat.conversation import Conversation
from tests.chat.families import FAMILIES
from tests.chat.test_families import TALKS


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3", "qwen3_coder", "hermes", "smollm2"])
def test_p02(name):
  family = FAMILIES[name]
  messages, tools = TALKS["parallel tools"]
  tokenizer = family.tokenizer
  (newline,) = tokenizer.encode("\n")
  talk = Conversation.start(tokenizer, messages[:1], tools)
  response = [*tokenizer.encode("whatever it said"), tokenizer.eos_id]
  talk.append_response(response)
  delta = talk.extend(messages[2:4])
  assert delta[0] == newline
  assert delta[1] == tokenizer.token_id("<|im_start|>")
  whole = family.ids(messages[:4], tools, asking=True)
  assert whole[-len(delta) :] == delta
  assert whole[-len(delta) - 1] == tokenizer.eos_id
