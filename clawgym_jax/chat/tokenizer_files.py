"""The files of a Hugging Face tokenizer: their names, and what they say.

Contents go by file name, those of `tokenizer.model` as latin-1, others as text.
Where several files give a template, `chat_template.jinja` wins over
`chat_template.json`, and that over tokenizer_config.json; templates with a name
are added from `additional_chat_templates/`. Damage is a `UserError` that names
the file.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tokenizers

from clawgym_jax.chat import sentencepiece_model
from clawgym_jax.chat.template import ChatTemplate
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_atomic

BACKEND, MODEL = "tokenizer.json", "tokenizer.model"
CONFIG, _SPECIAL = "tokenizer_config.json", "special_tokens_map.json"
_GENERATION = "generation_config.json"
_TEMPLATE, _LEGACY_TEMPLATE = "chat_template.jinja", "chat_template.json"
_TEMPLATES = "additional_chat_templates"
_TEXTS = (BACKEND, CONFIG, _SPECIAL, _TEMPLATE, _LEGACY_TEMPLATE, _GENERATION)
_MOST_IDS = 1 << 24
_NAMED = ("bos_token", "eos_token", "pad_token", "unk_token")


def read(directory: Path) -> dict[str, str]:
  """The contents of a model folder's files; `UserError` without a vocabulary."""
  paths = [directory / name for name in _TEXTS]
  paths += sorted((directory / _TEMPLATES).glob("*.jinja"))
  files = {}
  for path in paths:
    if path.is_file():
      try:
        text = path.read_bytes().decode()
      except UnicodeDecodeError as error:
        raise UserError(f"{path} is damaged ({error}): copy it again") from None
      files[path.relative_to(directory).as_posix()] = text
  if (directory / MODEL).is_file():
    files[MODEL] = (directory / MODEL).read_bytes().decode("latin-1")
  if not files.keys() & {BACKEND, MODEL}:
    raise UserError(
        f"{directory / BACKEND} is missing: give a model folder, with its tokenizer's"
        " files in it (clawgym_jax.convert makes one of a GGUF file or package:NAME)"
    )
  return files


def write(directory: Path, files: dict[str, str]) -> None:
  for name, text in files.items():
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.encode("latin-1") if name == MODEL else text)


def of(
    backend: tokenizers.Tokenizer, named: dict[str, str], template: ChatTemplate | None
) -> dict[str, str]:
  """The files of a tokenizer that was made here."""
  config = _config(named)
  files = {BACKEND: backend.to_str(), _SPECIAL: _dumps(named)}
  if template is not None and template.tool_use is None:
    config["chat_template"] = files[_TEMPLATE] = template.source
  elif template is not None:
    sources = {"default": template.source, "tool_use": template.tool_use}
    config["chat_template"] = [
        {"name": name, "template": source} for name, source in sources.items()
    ]
  return {**files, CONFIG: _dumps(config)}


def completed(
    files: dict[str, str], backend: tokenizers.Tokenizer, named: dict[str, str]
) -> dict[str, str]:
  """The files, with a tokenizer.json and a config where they had none."""
  made = dict(files)
  if BACKEND not in files:
    made[BACKEND] = backend.to_str()
  made.setdefault(CONFIG, _dumps(_config(named)))
  return made


def backend(files: dict[str, str]) -> tokenizers.Tokenizer:
  """The vocabulary, with the tokens that only tokenizer_config.json names."""
  config = _object(files, CONFIG)
  found = _vocabulary(files, config)
  ids = found.get_vocab(with_added_tokens=True).values()
  if not ids or max(ids) >= _MOST_IDS:  # the library goes through all up to the last
    raise UserError(f"the vocabulary has no ids below {_MOST_IDS}: copy the folder again")
  with _damage(CONFIG):
    _add_listed(found, config.get("added_tokens_decoder") or {})
  return found


def _vocabulary(
    files: dict[str, str], config: dict[str, Any]
) -> tokenizers.Tokenizer:
  if BACKEND in files:
    try:
      return tokenizers.Tokenizer.from_str(files[BACKEND])
    except Exception as error:  # the library raises no other kind
      raise UserError(f"{BACKEND} is damaged ({error}): copy it again") from None
  if MODEL in files:
    return sentencepiece_model.backend(
        files[MODEL].encode("latin-1"), legacy=bool(config.get("legacy", True))
    )
  raise UserError(f"there is no {BACKEND} and no {MODEL}: copy the folder again")


def _add_listed(found: tokenizers.Tokenizer, listed: dict[str, Any]) -> None:
  """Adds the tokens that only tokenizer_config.json names, by their ids."""
  for token_id, token in sorted(listed.items(), key=lambda item: int(item[0])):
    if found.token_to_id(token["content"]) is None:
      found.add_tokens([tokenizers.AddedToken(**_flags(token))])
    if found.token_to_id(token["content"]) != int(token_id):
      raise UserError(
          f"{CONFIG} gives {token['content']!r} the id {token_id}, the vocabulary"
          f" {found.token_to_id(token['content'])}: they are of different models"
      )


def named(files: dict[str, str], backend: tokenizers.Tokenizer) -> dict[str, str]:
  """The texts of `bos_token` and so on, those that the vocabulary has."""
  found = _named(_object(files, CONFIG)) or _named(_object(files, _SPECIAL))
  if MODEL in files:
    own = sentencepiece_model.special_tokens(files[MODEL].encode("latin-1"))
    found = {**own, **found}
  return {
      name: text for name, text in found.items() if backend.token_to_id(text) is not None
  }


def eos_ids(files: dict[str, str]) -> list[int]:
  """The ends of a response that generation_config.json lists."""
  given = _object(files, _GENERATION).get("eos_token_id")
  given = given if isinstance(given, list) else [] if given is None else [given]
  if any(type(i) is not int or not 0 <= i < _MOST_IDS for i in given):
    raise UserError(f"{_GENERATION} is damaged (eos_token_id {given}): copy it again")
  return given


def template(files: dict[str, str]) -> ChatTemplate | None:
  """The template, with that for tools; None where no file has one."""
  given = _object(files, CONFIG).get("chat_template")
  with _damage(CONFIG):
    if isinstance(given, list):
      sources = {entry["name"]: entry["template"] for entry in given}
    else:
      sources = {} if given is None else {"default": given}
    if not all(isinstance(source, str) for source in sources.values()):
      raise ValueError("chat_template is no text")
  if isinstance(text := _object(files, _LEGACY_TEMPLATE).get("chat_template"), str):
    sources["default"] = text
  for name, text in files.items():
    if name == _TEMPLATE:
      sources["default"] = text
    elif name.startswith(f"{_TEMPLATES}/"):
      sources[Path(name).stem] = text
  if "default" not in sources and (sources or given is not None):
    raise UserError(f"the model has chat templates, but none named default: {CONFIG}")
  return ChatTemplate(sources["default"], sources.get("tool_use")) if sources else None


def _config(named: dict[str, str]) -> dict[str, Any]:
  return {
      "tokenizer_class": "PreTrainedTokenizerFast",
      "clean_up_tokenization_spaces": False,
      **named,
  }


def _named(config: dict[str, Any]) -> dict[str, str]:
  found = {}
  for name in _NAMED:
    value = config.get(name)
    value = value.get("content") if isinstance(value, dict) else value
    if value:
      with _damage(CONFIG):
        if not isinstance(value, str):
          raise ValueError(f"{name} is {value!r}")
      found[name] = value
  return found


def _flags(token: dict[str, Any]) -> dict[str, Any]:
  names = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
  return {name: token[name] for name in names if name in token}


@contextlib.contextmanager
def _damage(name: str) -> Iterator[None]:
  """Makes what reading a file's values raises a `UserError` that names it."""
  try:
    yield
  except (AttributeError, LookupError, TypeError, ValueError) as error:
    raise UserError(
        f"{name} is damaged ({type(error).__name__}: {error}): copy it again"
    ) from None


def _object(files: dict[str, str], name: str) -> dict[str, Any]:
  try:
    value = json_text.parse(files.get(name, "{}"))
  except ValueError as error:
    raise UserError(f"{name} is damaged ({error}): copy it again") from None
  if not isinstance(value, dict):
    raise UserError(f"{name} is damaged (no object): copy it again")
  return value


def _dumps(value: Any) -> str:
  return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
