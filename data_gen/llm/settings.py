"""Which model writes the tasks, and what a run of it may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from clawgym_jax.contracts.errors import UserError


@dataclass(frozen=True)
class Settings:
  """What a person gives.

  Attributes:
    endpoint: base URL of the API; `/chat/completions` follows it.
    api_key: sent as a bearer token; "" for none. It is in no file and no message.
    max_tokens: of one reply; 0 leaves that to the endpoint.
    concurrency: ideas at work at once, each with one call or one sandbox.
    backend: see `sandbox.backends`.
  """

  endpoint: str
  model: str
  api_key: str = field(default="", repr=False)
  max_tokens: int = 0
  concurrency: int = 6
  backend: str = "bubblewrap"

  @property
  def host(self) -> str:
    return urlsplit(self.endpoint).hostname or ""


def checked_endpoint(url: str) -> str:
  """`url` as a base URL, `/v1` added where it names a server alone; `UserError`
  where it is none."""
  try:
    parts = urlsplit(url)
    sound = parts.scheme in ("http", "https") and bool(parts.hostname)
    _ = parts.port  # ValueError for one that is no number
  except ValueError:
    sound = False
  if not sound:
    raise UserError(
        "--endpoint must be the URL of an OpenAI-compatible API, as"
        " http://127.0.0.1:8000/v1"
    )
  if parts.username or parts.password:
    raise UserError(
        "--endpoint holds a user name or a password, which would be kept: put the key"
        " into an environment variable and give its name with --api_key_env"
    )
  base = url.rstrip("/")
  return base if parts.path.strip("/") else f"{base}/v1"
