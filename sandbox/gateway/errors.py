"""What a call can end with beside an answer, as OpenAI clients understand it.

A status of 4xx says that the same request will fail again; 409, 429 and 5xx
say that it may be tried later. Clients rely on that to retry or to stop.
"""

from __future__ import annotations


class CallError(Exception):
  """A failed call: HTTP status, OpenAI error code and a message."""

  def __init__(
      self, status: int, code: str, message: str, retry_after: float | None = None
  ) -> None:
    super().__init__(message)
    self.status = status
    self.code = code
    self.retry_after = retry_after  # seconds

  def body(self) -> dict[str, object]:
    kind = "invalid_request_error" if self.status < 500 else "server_error"
    return {
        "error": {
            "message": str(self), "type": kind, "param": None, "code": self.code
        }
    }  # fmt: skip


def bad_request(message: str) -> CallError:
  return CallError(400, "invalid_request", message)
