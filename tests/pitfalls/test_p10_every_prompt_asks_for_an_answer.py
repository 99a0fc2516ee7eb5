"""P10: also the prompt of the second turn ends with the generation prompt."""

import pytest

from clawgym_jax.chat.conversation import Conversation
from tests.chat.families import FAMILIES

ENDS = {
    "qwen2_5": "<|im_end|>\n<|im_start|>assistant\n",
    "llama3_1": "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral_v3": "[/INST]",
    "gemma3": "<end_of_turn>\n<start_of_turn>model\n",
    "compact": "<|im_end|>\n<|im_start|>assistant\n",
}


@pytest.mark.parametrize("name", ENDS)
def test_p10(name):
  tokenizer = FAMILIES[name].tokenizer
  talk = Conversation.start(tokenizer, [{"role": "user", "content": "a"}], None)
  for turn in range(3):
    assert tokenizer.decode(talk.ids).endswith(ENDS[name])
    talk.append_response([*tokenizer.encode(f"answer {turn}"), tokenizer.eos_id])
    delta = talk.extend([{"role": "user", "content": f"question {turn}"}])
    assert f"question {turn}{ENDS[name]}" in tokenizer.decode(delta)
