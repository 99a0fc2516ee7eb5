"""P61: the sandbox launcher and its commands never import jax."""

import os
import subprocess
import sys


def test_no_jax():
  code = (
      "import sys, sandbox.rollout, sandbox.curate, sandbox.reap, sandbox.teacher;"
      "bad = {'jax', 'jaxlib', 'flax', 'optax', 'orbax', 'torch'} & set(sys.modules);"
      "sys.exit(f'imported: {bad}' if bad else 0)"
  )
  subprocess.run(
      [sys.executable, "-c", code], check=True, timeout=60,
      env={**os.environ, "PYTHONPATH": os.getcwd()},
  )  # fmt: skip
