"""A vocabulary with its chat template, loaded from and saved to Hugging Face files.

Text from outside is encoded as text: `encode` never turns "<|im_end|>" inside
a message into the control token, so no message can close its own turn. Control
tokens are the special tokens and those other added tokens that the template
writes; only `encode_rendered` gives their ids, for those that a template wrote.

Files of others are kept as they are, byte for byte, and written as such.
"""

from __future__ import annotations

import functools
import json
import secrets
from pathlib import Path

import tokenizers

from clawgym_jax.chat import tokenizer_files
from clawgym_jax.chat.control import Breaker
from clawgym_jax.chat.template import ChatTemplate
from clawgym_jax.contracts.errors import RecordError, UserError, require

TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"

_SAYABLE = {"<think>", "</think>"}  # an assistant's own, wherever a message has them


class Tokenizer:
  """Ids of text and of conversations.

  `backend` knows the vocabulary; `template` lays conversations out (None: this
  tokenizer can't). `named` gives the texts of `bos_token`, `eos_token` and so
  on, by these names; where the vocabulary has `<|im_start|>` and `<|im_end|>`,
  they are the default. `eos_ids` are more ids that end a response; `files` are the
  contents that the tokenizer was read from, by name.

  Attributes:
    eos_id: what the template ends an assistant's turn with.
    eos_ids: every id that ends a response, `eos_id` first.
    turn_ends: those of `eos_ids` that the template writes.
    pad_id, bos_id: `bos_id` is None where there is none.
  """

  def __init__(
      self,
      backend: tokenizers.Tokenizer,
      template: ChatTemplate | None = None,
      *,
      named: dict[str, str] | None = None,
      eos_ids: list[int] | None = None,
      files: dict[str, str] | None = None,
  ):
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = False
    self._template = template
    self.named = dict(named or {})
    if named is None and None not in map(backend.token_to_id, (TURN_START, TURN_END)):
      self.named = {
          "bos_token": TURN_START, "eos_token": TURN_END, "pad_token": TURN_END
      }  # fmt: skip
    # Made before this object adds anything to the backend.
    if files is None:
      files = tokenizer_files.of(backend, self.named, template)
    self._files = files
    self.vocab_size = max(backend.get_vocab(with_added_tokens=True).values()) + 1
    self._backend = backend
    self._added = list(backend.get_added_tokens_decoder().values())
    for token in self.named.values():
      self.token_id(token)
    self.controls = self._find_controls()
    self._control_ids = {self.token_id(token) for token in self.controls}
    # The unknown token stands for characters; where it does, a text goes on.
    unknown = {getattr(backend.model, "unk_token", None), self.named.get("unk_token")}
    self._cuts = self._control_ids - {self.token_id(token) for token in unknown if token}
    self.breaks_said = Breaker(self.specials - _SAYABLE)
    self.breaks_given = Breaker(self.controls)
    # Stands before text that is not at the start, which some vocabularies tell
    # apart; nobody can guess it, so no text holds it.
    self._before = f"\U000ffffd{secrets.token_hex(16)}\U000ffffd"
    backend.post_processor = None
    backend.add_special_tokens([_special(self._before)])
    named_eos = [self.token_id(t) for t in (self.named.get("eos_token"),) if t]
    self.eos_id = self._turn_end(named_eos)
    given = [self.eos_id, *named_eos, *(eos_ids or [])]
    self.eos_ids = list(dict.fromkeys(given))
    self.turn_ends = [
        i
        for i in self.eos_ids
        if i == self.eos_id
        or (template is not None and self.token(i) in template.literals)
    ]
    pad, bos = self.named.get("pad_token"), self.named.get("bos_token")
    self.pad_id = self.eos_id if pad is None else self.token_id(pad)
    self.bos_id = None if bos is None else self.token_id(bos)

  @property
  def template(self) -> ChatTemplate:
    """`UserError` if the model came without one."""
    if self._template is None:
      raise UserError(
          "the model has no chat template: add a chat_template.jinja to its folder"
      )
    return self._template

  def token_id(self, token: str) -> int:
    """The id of exactly this token; `UserError` if it is not in the vocabulary."""
    token_id = self._backend.token_to_id(token)
    if token_id is None:
      raise UserError(f"the tokenizer has no token {token!r}")
    return token_id

  def token(self, token_id: int) -> str:
    """The token of an id; `UserError` if there is none."""
    token = self._backend.id_to_token(token_id)
    if token is None or token_id >= self.vocab_size:
      raise UserError(f"the tokenizer has no token with the id {token_id}")
    return token

  def encode(self, text: str) -> list[int]:
    """Ids of plain text; control tokens written in it stay text."""
    return self._plain_ids(text)

  def decode(self, ids: list[int]) -> str:
    """The text of `ids`, control tokens included; ids beyond the vocabulary have none."""
    known = [token_id for token_id in ids if token_id < self.vocab_size]
    return self._backend.decode(known, skip_special_tokens=False)

  def encode_rendered(
      self, text: str, mark: str, *, start: bool
  ) -> tuple[list[int], int]:
    """Ids of text that a template wrote, and where the last control token ends.

    Control tokens become their ids, except where `mark` breaks them; the mark
    itself is dropped. `start`: nothing comes before this text. The place is in
    characters, 0 without a control token.
    """
    before = "" if start else self._before
    coded = _coded(self._backend, before + text)
    if mark not in text:
      for token_id, (_, end) in zip(reversed(coded.ids), reversed(coded.offsets)):
        if token_id in self._cuts:
          return coded.ids[0 if start else 1 :], end - len(before)
      return coded.ids[0 if start else 1 :], 0
    ids: list[int] = []
    run_from = at = 0 if start else 1
    run_start = 0
    places = [*zip(coded.ids, coded.offsets), (None, (len(before) + len(text),) * 2)]
    for index, (token_id, (begin, end)) in enumerate(places[at:], at):
      if token_id is not None and token_id not in self._cuts:
        continue
      run = text[run_start : begin - len(before)]
      if mark in run:
        ahead = "" if start and run_start == 0 else self._before
        found = self._plain_ids(ahead + run.replace(mark, ""))
        ids += found[1:] if ahead else found
      else:
        ids += coded.ids[run_from:index]
      if token_id is not None:
        ids.append(token_id)
        run_from, run_start = index + 1, end - len(before)
    return ids, run_start

  def to_files(self) -> dict[str, str]:
    """Hugging Face file names to contents; bytes of `tokenizer.model` as latin-1."""
    return dict(self._files)

  @classmethod
  def from_files(cls, files: dict[str, str]) -> Tokenizer:
    """A tokenizer from the contents of a model folder's files, as `to_files` gives.

    Raises:
      UserError: a file is damaged, or there is neither a tokenizer.json nor a
        sentencepiece tokenizer.model.
    """
    backend = tokenizer_files.backend(files)
    named = tokenizer_files.named(files, backend)
    return cls(
        backend,
        tokenizer_files.template(files),
        named=named,
        eos_ids=tokenizer_files.eos_ids(files),
        files=tokenizer_files.completed(files, backend, named),
    )

  def save(self, directory: Path) -> None:
    """Writes the files of `to_files` into a folder."""
    tokenizer_files.write(Path(directory), self.to_files())

  @classmethod
  def load(cls, directory: Path) -> Tokenizer:
    """The tokenizer of a model folder; `UserError` names what is missing."""
    files = tokenizer_files.read(Path(directory))
    try:
      return cls.from_files(files)
    except UserError as error:
      raise UserError(f"{directory}: {error}") from None

  @functools.cached_property
  def specials(self) -> frozenset[str]:
    """The texts of all special tokens."""
    special = [token.content for token in self._added if token.special]
    return frozenset([*special, *self.named.values()])

  def _find_controls(self) -> frozenset[str]:
    literals = "" if self._template is None else self._template.literals
    written = [
        token.content
        for token in self._added
        if token.content in literals and any(map(str.isalnum, token.content))
    ]
    return self.specials | frozenset(written)

  @functools.cached_property
  def _plain(self) -> tuple[tokenizers.Tokenizer, set[int]]:
    """The vocabulary without its control tokens, which no text turns into then.

    Beside it the ids that stand for characters that it lacks.
    """
    value = json.loads(self._backend.to_str())
    model = value["model"]
    # A control token that is a piece of the model would match text as any other,
    # and so would the piece that stands for unknown characters.
    kept = set()
    if model["type"] == "Unigram":
      hidden = {i for i, (piece, _) in enumerate(model["vocab"]) if piece in self.controls}
      hidden.add(model["unk_id"])
      model["vocab"] = [
          [_unmatched(i) if i in hidden else piece, score]
          for i, (piece, score) in enumerate(model["vocab"])
      ]
    else:
      merged = {part for m in model.get("merges", []) for part in (*m, "".join(m))}
      kept = {*merged, model.get("unk_token")} & model["vocab"].keys()
      model["vocab"] = {
          _unmatched(i) if piece in self.controls - kept else piece: i
          for piece, i in model["vocab"].items()
      }
    # They keep their places under other names: ids follow from the order.
    added = [t for t in value["added_tokens"] if t["content"] not in self.controls & kept]
    for token in added:
      if token["content"] in self.controls:
        token["content"] = _unmatched(token["id"])
    value["added_tokens"] = added
    plain = tokenizers.Tokenizer.from_str(json.dumps(value))
    unknown = model.get("unk_token")
    ids = {model.get("unk_id"), unknown and self.token_id(unknown)}
    return plain, ids - {None}

  def _plain_ids(self, text: str) -> list[int]:
    backend, unknown = self._plain
    ids = _coded(backend, text).ids
    unsafe = self._control_ids.intersection(ids) - unknown
    require(
        not unsafe,
        f"the vocabulary makes the control tokens {sorted(unsafe)} out of plain text",
    )
    return ids

  def _turn_end(self, named: list[int]) -> int:
    """The control token that the template writes after what an assistant says."""
    if self._template is not None:
      talk = [
          {"role": "user", "content": "question"},
          {"role": "assistant", "content": "qanswerq"},
      ]
      try:
        text = self._template.render(talk, **self.named)
      except RecordError:  # a template for other talks; then the config counts
        text = ""
      ids, _ = self.encode_rendered(text[text.rfind("qanswerq") :], "\0", start=False)
      for token_id in ids:
        if token_id in self._control_ids:
          return token_id
    if not named:
      raise UserError(
          "neither the chat template nor tokenizer_config.json says which token ends"
          " an answer (eos_token)"
      )
    return named[0]


def _coded(backend: tokenizers.Tokenizer, text: str) -> tokenizers.Encoding:
  try:
    return backend.encode(text, add_special_tokens=False)
  except TypeError:  # what UTF-8 can't hold is no string to the library
    raise RecordError("a text holds half of a character (a lone surrogate)") from None


def _unmatched(token_id: int) -> str:
  """A piece that stands for a control token and that no text holds."""
  return f"\U000ffffd{token_id}\U000ffffd"


def _special(text: str) -> tokenizers.AddedToken:
  return tokenizers.AddedToken(text, special=True, normalized=False)
