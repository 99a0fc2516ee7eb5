"""Tokenizers from files of others: same ids, same bytes back, damage named."""

import io
import json
import random

import pytest
import sentencepiece
import tokenizers
import transformers
from tokenizers import models, pre_tokenizers

from clawgym_jax.chat import sentencepiece_model
from clawgym_jax.chat.conversation import prompt_ids
from clawgym_jax.chat.template import ChatTemplate, compact
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.contracts.errors import UserError
from tests.chat.families import FAMILIES, TEXTS, piece_model

TALK = [{"role": "user", "content": "sum é"}]


def pieces(**settings):
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter(TEXTS), model_writer=model, hard_vocab_limit=False,
      num_threads=1, minloglevel=2, **settings,
  )  # fmt: skip
  return model.getvalue()


IDENTITY = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
MODELS = {
    "unigram": {"model_type": "unigram", "vocab_size": 400, "byte_fallback": True},
    "unigram, no prefix": {
        "model_type": "unigram", "vocab_size": 400, "byte_fallback": True, **IDENTITY,
        "add_dummy_prefix": False,
    },
    "unigram, no bytes": {"model_type": "unigram", "vocab_size": 300},
    "bpe": {"model_type": "bpe", "vocab_size": 500, "byte_fallback": True, **IDENTITY},
    "bpe, normalised": {"model_type": "bpe", "vocab_size": 300},
    "bpe, whole pieces": {
        "model_type": "bpe", "vocab_size": 500, "byte_fallback": True, **IDENTITY,
        "add_dummy_prefix": False, "user_defined_symbols": ["[INST]", "\n\n"],
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_sentencepiece_ids(name):
  model = pieces(**MODELS[name])
  reference = sentencepiece.SentencePieceProcessor(model_proto=model)
  ours = Tokenizer(
      sentencepiece_model.backend(model), named=sentencepiece_model.special_tokens(model)
  )
  generator = random.Random(0)
  letters = "ab sum data/.0123é日 \t\n<>s</s>▁ﬁ"
  lengths = [generator.randrange(40) for _ in range(300)]
  texts = ["".join(generator.choices(letters, k=length)) for length in lengths]
  texts += ["</s>", "a</s>b", "<s>", "<unk>", "  x  ", " ", "[INST] x", "\n\n\n"]
  texts += TEXTS[:9]
  for text in texts:
    assert ours.encode(text) == reference.encode(text), text
  assert ours.eos_id == reference.eos_id() and ours.bos_id == reference.bos_id()
  if MODELS[name].get("byte_fallback") and "normalization_rule_name" in MODELS[name]:
    for text in TEXTS[:20]:
      assert ours.decode(ours.encode(text)) == text


def test_a_folder_with_a_sentencepiece_model_alone(tmp_path):
  family = FAMILIES["mistral_v3"]
  model = piece_model(family)
  (tmp_path / "tokenizer.model").write_bytes(model)
  (tmp_path / "chat_template.jinja").write_text(family.template.source)
  (tmp_path / "tokenizer_config.json").write_text('{"legacy": false}')
  read = Tokenizer.load(tmp_path)
  assert prompt_ids(read, TALK, None) == prompt_ids(family.tokenizer, TALK, None)
  assert read.bos_id == read.token_id("<s>") and read.eos_id == read.token_id("</s>")
  sent = Tokenizer.from_files(json.loads(json.dumps(read.to_files())))
  sent.save(tmp_path / "again")
  assert (tmp_path / "again" / "tokenizer.model").read_bytes() == model
  assert prompt_ids(sent, TALK, None) == prompt_ids(read, TALK, None)
  theirs = transformers.PreTrainedTokenizerFast(
      tokenizer_file=str(tmp_path / "again" / "tokenizer.json")
  )
  assert theirs.encode(TEXTS[0], add_special_tokens=False) == read.encode(TEXTS[0])


def folder(path, family, config, **others):
  """Files as Hugging Face writes them, in a spelling of their own."""
  backend = family.peer.backend_tokenizer.to_str(pretty=True)
  files = {
      "tokenizer.json": backend,
      "tokenizer_config.json": json.dumps(config, indent=7),
      **{name.replace("__", "."): json.dumps(value) for name, value in others.items()},
  }
  path.mkdir()
  for name, text in files.items():
    (path / name).write_text(text)
  return files


def test_files_of_others_are_kept_byte_for_byte(tmp_path):
  family = FAMILIES["llama3_1"]
  config = {
      "tokenizer_class": "PreTrainedTokenizerFast",
      "bos_token": {"content": family.bos, "__type": "AddedToken"},
      "eos_token": "<|end_of_text|>",
      "chat_template": family.template.source,
      "something": [1],
  }
  eos = [family.tokenizer.token_id(t) for t in ("<|end_of_text|>", "<|eom_id|>")]
  files = folder(
      tmp_path / "theirs", family, config, generation_config__json={"eos_token_id": eos}
  )
  read = Tokenizer.load(tmp_path / "theirs")
  read.save(tmp_path / "ours")
  assert {p.name: p.read_text() for p in (tmp_path / "ours").iterdir()} == files
  end = read.token_id("<|eot_id|>")
  assert read.eos_id == end and read.eos_ids == [end, *eos]
  assert read.turn_ends == [end, eos[1]]  # the template writes both
  again = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
  theirs = again.apply_chat_template(
      TALK, add_generation_prompt=True, return_dict=False
  )
  assert prompt_ids(read, TALK, None) == theirs


def test_where_a_template_is_found(tmp_path):
  family = FAMILIES["hermes"]
  named = [
      {"name": "default", "template": family.template.source},
      {"name": "tool_use", "template": "{{ tools | length }}"},
  ]
  config = {"eos_token": "<|im_end|>", "bos_token": family.bos, "chat_template": named}
  folder(tmp_path / "m", family, config)
  read = Tokenizer.load(tmp_path / "m")
  assert read.template.source == family.template.source
  assert read.template.tool_use == "{{ tools | length }}"
  legacy = {"chat_template": "{{ messages | length + 1 }}"}
  (tmp_path / "m" / "chat_template.json").write_text(json.dumps(legacy))
  assert Tokenizer.load(tmp_path / "m").template.source == legacy["chat_template"]
  (tmp_path / "m" / "chat_template.jinja").write_text("{{ messages | length }}")
  assert Tokenizer.load(tmp_path / "m").template.source == "{{ messages | length }}"
  folder(tmp_path / "base", family, {"eos_token": "<|im_end|>"})
  base = Tokenizer.load(tmp_path / "base")
  assert base.decode(base.encode("a model without a template")).startswith("a model")
  with pytest.raises(UserError, match="no chat template"):
    prompt_ids(base, TALK, None)


def test_named_templates_have_a_folder(tmp_path):
  """As transformers writes a tokenizer with several templates."""
  family = FAMILIES["hermes"]
  for_tools = "{{ tools | length }}" + family.template.source
  peer = transformers.PreTrainedTokenizerFast(
      tokenizer_object=family.peer.backend_tokenizer,
      chat_template={"default": family.template.source, "tool_use": for_tools, "x": "y"},
      **family.named,
  )
  peer.save_pretrained(tmp_path / "theirs")
  read = Tokenizer.load(tmp_path / "theirs")
  tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
  for given in (None, tools):
    theirs = peer.apply_chat_template(
        TALK, given, add_generation_prompt=True, return_dict=False
    )
    assert prompt_ids(read, TALK, given) == theirs
  read.save(tmp_path / "ours")
  names = sorted(path.name for path in (tmp_path / "theirs").rglob("*.jinja"))
  assert names == ["chat_template.jinja", "tool_use.jinja", "x.jinja"]
  for path in (tmp_path / "theirs").rglob("*.jinja"):
    kept = tmp_path / "ours" / path.relative_to(tmp_path / "theirs")
    assert kept.read_bytes() == path.read_bytes()


def test_tokens_that_only_the_config_names(tmp_path):
  family = FAMILIES["smollm2"]
  size = family.tokenizer.vocab_size
  token = {"content": "<extra>", "special": True, "normalized": False}
  config = {"eos_token": "<|im_end|>", "added_tokens_decoder": {str(size): token}}
  folder(tmp_path / "m", family, config)
  read = Tokenizer.load(tmp_path / "m")
  assert read.token_id("<extra>") == size and read.vocab_size == size + 1
  assert size not in read.encode("<extra>")
  config["added_tokens_decoder"] = {str(size + 5): token}
  folder(tmp_path / "other", family, config)
  with pytest.raises(UserError, match="different models"):
    Tokenizer.load(tmp_path / "other")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("tokenizer.json", "{}", "tokenizer.json is damaged"),
        ("tokenizer_config.json", "{torn", "tokenizer_config.json is damaged"),
        ("tokenizer_config.json", "[" * 100_000, "tokenizer_config.json is damaged"),
        ("tokenizer_config.json", "[]", "no object"),
        ("tokenizer_config.json", '{"chat_template": []}', "none named default"),
        ("chat_template.jinja", "{% for %}", "can't be read"),
        ("chat_template.json", "{torn", "chat_template.json is damaged"),
        ("chat_template.jinja", "{% for i in range(99999) %}{% for j in range(99999) %}"
         "{% endfor %}{% endfor %}", "does not end"),
        ("tokenizer_config.json", "{}", "eos_token"),
        ("tokenizer_config.json", '{"eos_token": [1]}', "tokenizer_config.json is damaged"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {}}}', "is damaged"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"9": 1}}', "is damaged"),
        ("tokenizer_config.json", '{"chat_template": [1]}', "is damaged"),
        ("tokenizer_config.json", '{"chat_template": 5}', "is damaged"),
        ("generation_config.json", '{"eos_token_id": -1}', "generation_config.json is"),
        ("generation_config.json", '{"eos_token_id": {}}', "generation_config.json is"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {"a": 4000000000},'
         ' "merges": []}}', "no ids below"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {}, "merges": []}}',
         "no ids below"),
    ],
)  # fmt: skip
def test_damage_is_named(name, text, why, tmp_path):
  folder(tmp_path / "m", FAMILIES["smollm2"], {"eos_token": "<|im_end|>"})
  (tmp_path / "m" / name).write_text(text)
  with pytest.raises(UserError, match=why):
    Tokenizer.load(tmp_path / "m")


def test_missing_and_damaged_vocabularies_are_named(tmp_path):
  with pytest.raises(UserError, match="tokenizer.json is missing"):
    Tokenizer.load(tmp_path)
  (tmp_path / "tokenizer.model").write_bytes(b"no model")
  with pytest.raises(UserError, match="sentencepiece model is damaged"):
    Tokenizer.load(tmp_path)
  (tmp_path / "tokenizer.json").write_bytes(b"\xff")
  with pytest.raises(UserError, match="tokenizer.json is damaged"):
    Tokenizer.load(tmp_path)
  words = pieces(model_type="word", vocab_size=100)
  with pytest.raises(UserError, match="words or characters"):
    sentencepiece_model.backend(words)
  strict = pieces(model_type="bpe", vocab_size=300, user_defined_symbols=["[INST]"])
  with pytest.raises(UserError, match="removes spaces"):
    sentencepiece_model.backend(strict)


def test_own_files_round_trip(tmp_path):
  own = FAMILIES["compact"].tokenizer
  own.save(tmp_path)
  read = Tokenizer.load(tmp_path)
  assert prompt_ids(read, TALK, None) == prompt_ids(own, TALK, None)
  assert read.template.source == compact().source
  assert read.to_files() == own.to_files()


def test_text_never_becomes_a_control_token_of_the_vocabulary():
  """GGUF files and `ignore_merges` put control tokens among the model's pieces."""
  alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
  pieces = [*alphabet, "<|im_start|>", "<|im_end|>"]
  vocabulary = {piece: i for i, piece in enumerate(pieces)}
  backend = tokenizers.Tokenizer(
      models.BPE(vocab=vocabulary, merges=[], ignore_merges=True)
  )
  backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
  backend.add_special_tokens(["<|im_start|>", "<|im_end|>"])
  own = Tokenizer(backend, compact())
  assert own.eos_id not in own.encode("<|im_end|>")
  ids = prompt_ids(own, [{"role": "user", "content": "<|im_end|>"}], None)
  assert ids.count(own.eos_id) == 1


@pytest.mark.parametrize("name", ["smollm2", "gemma3", "mistral_v3"])
def test_added_tokens_that_are_no_control_tokens_keep_their_ids(name):
  backend = tokenizers.Tokenizer.from_str(FAMILIES[name].peer.backend_tokenizer.to_str())
  for heading in ("<h1>", "<h2>"):
    backend.add_tokens([tokenizers.AddedToken(heading, normalized=False)])
  family = FAMILIES[name]
  own = Tokenizer(backend, family.template, named=family.named)
  headings = [own.token_id("<h1>"), own.token_id("<h2>")]
  for text in ("a<h1>b<h2>", f"a<h1>{family.eos}b<h2>", f"{family.eos}<h1><h2>"):
    message = {"role": "user", "content": text}
    ids = prompt_ids(own, [message], None)
    assert [i for i in ids if i in headings] == headings
    assert [i for i in own.encode(text) if i in headings] == headings
    assert text in own.decode(ids)


def test_ids_beyond_the_vocabulary_have_no_text():
  own = FAMILIES["compact"].tokenizer
  ids = own.encode("ab")
  assert own.decode([*ids, own.vocab_size, own.vocab_size + 7]) == "ab"
  with pytest.raises(UserError, match="no token with the id"):
    own.token(own.vocab_size)
  with pytest.raises(UserError, match="no token '<none>'"):
    own.token_id("<none>")
  assert isinstance(own.template, ChatTemplate)


def test_where_an_older_llama_tokenizer_adds_spaces(tmp_path):
  """After every control token, unless tokenizer_config.json says otherwise."""
  family = FAMILIES["mistral_v3"]
  (tmp_path / "tokenizer.model").write_bytes(piece_model(family))
  (tmp_path / "chat_template.jinja").write_text("[INST]{{ messages[0].content }}[/INST]")
  talk = [{"role": "user", "content": "sum"}]
  for legacy, spaces in ((True, 1), (False, 0)):
    config = {"legacy": legacy}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    own = Tokenizer.load(tmp_path)
    assert own.decode(prompt_ids(own, talk, None)) == f"[INST]{' ' * spaces}sum[/INST]"


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_unknown_characters_do_not_cut_a_text(kind):
  model = pieces(model_type=kind, vocab_size=300, **IDENTITY)
  own = Tokenizer(
      sentencepiece_model.backend(model),
      ChatTemplate("{{ messages[0].content }}</s>"),
      named=sentencepiece_model.special_tokens(model),
  )
  reference = sentencepiece.SentencePieceProcessor(model_proto=model)
  for text in ("sum ☃ column", "sum ☃ column</s> of ☃ data", "☃</s>☃"):
    ids = prompt_ids(own, [{"role": "user", "content": text}], None)
    assert ids == [*reference.encode(text), own.eos_id]
    assert reference.unk_id() in ids
