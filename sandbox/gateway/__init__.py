"""The recording gateway: an OpenAI chat API in front of a model's upstream.

A harness talks to `http://HOST:PORT/s/{trajectory_id}/v1` with the session's
token as its API key and knows nothing of the recording. Every answer is in
the pool, token for token, before the harness sees it.

  messages   what a request says, compared by meaning and never by spelling
  tree       which earlier step a request extends, or why it extends none
  upstream   engines that give token ids, chat APIs that give text
  sessions   who may record what; one turn at a time
  server     HTTP
"""

from sandbox.gateway.server import Gateway, app, start
from sandbox.gateway.sessions import Sessions
from sandbox.gateway.upstream import connect

__all__ = ["Gateway", "Sessions", "app", "connect", "start"]
