"""The ways in which models write tool calls, one module a format.

A format says which marks show that a call is meant (`marks`), and reads a text
that holds calls (`read`). Reading is all or nothing: either every call of the text was
said clearly, or `Unclear` says why not, in words for the model. No format
guesses, repairs or drops a call.
"""

from __future__ import annotations

from clawgym_jax.chat.calls import hermes, llama3, mistral, qwen3_coder
from clawgym_jax.chat.calls.call import Call, Format, Unclear

FORMATS: dict[str, Format] = {
    "hermes": hermes.FORMAT,
    "qwen3_coder": qwen3_coder.FORMAT,
    "llama3": llama3.FORMAT,
    "mistral": mistral.FORMAT,
}

__all__ = ["FORMATS", "Call", "Format", "Unclear", "detect_format"]


def detect_format(template_source: str) -> str:
  """The format in which a chat template writes calls, a key of `FORMATS`.

  A template that writes no calls gives "hermes": its mark is never met by
  accident.
  """
  if "<function=" in template_source and "<parameter=" in template_source:
    return "qwen3_coder"  # it writes <tool_call> too, so it is asked first
  if "[TOOL_CALLS]" in template_source:
    return "mistral"
  if "<tool_call>" in template_source:
    return "hermes"  # also Hermes models with a Llama vocabulary
  if "<|python_tag|>" in template_source or "<|start_header_id|>" in template_source:
    return "llama3"
  return "hermes"
