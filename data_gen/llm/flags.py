"""The flags that `--generator=llm` takes, alone or with `--audit`."""

from __future__ import annotations

import os
import sys

from absl import flags

from clawgym_jax.contracts.errors import UserError
from data_gen.llm.settings import Settings, checked_endpoint
from sandbox.backends.flags import backend

_HERE = sys.argv[0]  # so that --help of the command shows them

_ENDPOINT = flags.DEFINE_string(
    "endpoint",
    None,
    "llm: base URL of an OpenAI-compatible API, as http://127.0.0.1:8000/v1.",
    module_name=_HERE,
)
_MODEL = flags.DEFINE_string(
    "model", None, "llm: the model's name at the endpoint.", module_name=_HERE
)
_KEY = flags.DEFINE_string(
    "api_key_env",
    None,
    "llm: name of the environment variable that holds the endpoint's key.",
    module_name=_HERE,
)
_MAX_TOKENS = flags.DEFINE_integer(
    "max_tokens",
    0,
    "llm: tokens of one reply at most; 0 leaves that to the endpoint.",
    0,
    module_name=_HERE,
)
_CONCURRENCY = flags.DEFINE_integer(
    "concurrency",
    6,
    "llm: ideas at work at once, each with one call or one sandbox; --audit: sandboxes"
    " at once.",
    1,
    module_name=_HERE,
)
_ONLY_HERE = ("endpoint", "model", "api_key_env", "max_tokens")
_IN_SANDBOXES = ("concurrency", "backend", "docker_image", "docker_runtime")


def refuse(generator: str, audits: bool) -> None:
  """`UserError` if a flag was given that `generator`, another one, does not take;
  where it `audits` it takes those about sandboxes."""
  refused = _ONLY_HERE if audits else (*_ONLY_HERE, *_IN_SANDBOXES)
  given = [name for name in refused if flags.FLAGS[name].present]
  if given:
    raise UserError(
        f"--{given[0]} is for --generator=llm"
        f"{' or --audit' if given[0] in _IN_SANDBOXES else ''};"
        f" --generator={generator} asks no model: leave it out, or choose llm"
    )


def concurrency() -> int:
  """Sandboxes at once."""
  return _CONCURRENCY.value


def settings() -> Settings:
  """What was given, checked; `UserError` says what is missing or can't be."""
  if not _ENDPOINT.value:
    raise UserError("--generator=llm needs --endpoint: the base URL of an API")
  if not _MODEL.value:
    raise UserError("--generator=llm needs --model: its name at the endpoint")
  endpoint = checked_endpoint(_ENDPOINT.value)
  key = ""
  if _KEY.value:
    key = os.environ.get(_KEY.value, "").strip()
    if not key:
      raise UserError(
          f"the environment variable {_KEY.value}, which --api_key_env names, is not"
          " set: put the key there"
      )
  return Settings(
      endpoint=endpoint,
      model=_MODEL.value,
      api_key=key,
      max_tokens=_MAX_TOKENS.value,
      concurrency=concurrency(),
      backend=backend(),
  )
