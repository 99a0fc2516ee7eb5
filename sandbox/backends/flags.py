"""The flags of every program that opens sandboxes: of what kind they are."""

from __future__ import annotations

import sys

from absl import flags

from sandbox.backends import with_options

_HERE = sys.argv[0]  # so that --help of those programs shows them

_BACKEND = flags.DEFINE_string(
    "backend",
    "bubblewrap",
    "What isolates an attempt: bubblewrap, docker or kubernetes.",
    module_name=_HERE,
)
_IMAGE = flags.DEFINE_string(
    "docker_image",
    None,
    "What is inside docker's sandboxes; default is what"
    " python -m sandbox.backends.docker_image makes.",
    module_name=_HERE,
)
_RUNTIME = flags.DEFINE_string(
    "docker_runtime",
    None,
    "Runtime that the docker daemon knows, as runsc (gVisor) or kata.",
    module_name=_HERE,
)


def backend() -> str:
  """What `open_sandbox` takes; `UserError` where an option is not the backend's."""
  return with_options(_BACKEND.value, image=_IMAGE.value, runtime=_RUNTIME.value)
