"""Grades a workspace by checks/check.py beside it. Standard library only.

  check.py WORKSPACE           prints {"name": value}, whose mean is the score,
                               or the score alone where the checks have weights
  check.py WORKSPACE --score   prints the score alone

What the checks judge is a copy of the workspace without this reward/, as the
agent left it. What they print goes nowhere: the last line is the result.
"""

import importlib.util
import json
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
  workspace = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".")
  result = os.dup(1)
  null = os.open(os.devnull, os.O_WRONLY)
  os.dup2(null, 1)
  with tempfile.TemporaryDirectory() as scratch:
    copy = os.path.join(scratch, "workspace")
    shutil.copytree(workspace, copy, symlinks=True, ignore=left_out)
    values = grade(copy)
  with open(os.path.join(HERE, "clawgym_jax.json")) as file:
    weights = json.load(file)["task"].get("check_weights", {})
  total = sum(weights.get(name, 1.0) for name in values)
  score = sum(weights.get(name, 1.0) * value for name, value in values.items()) / total
  said = score if weights or "--score" in sys.argv else values
  with os.fdopen(result, "w") as out:
    print(json.dumps(said), file=out)


def left_out(folder, names):
  return [name for name in names if os.path.join(folder, name) == HERE]


def grade(workspace):
  payload = {}
  path = os.environ.get("OPENCLAW_REWARD_PAYLOAD")
  if path and os.path.exists(path):
    with open(path) as file:
      payload = json.load(file)
  sys.dont_write_bytecode = True
  checks = os.path.join(HERE, "checks")
  sys.path.insert(0, checks)
  spec = importlib.util.spec_from_file_location(
      "check", os.path.join(checks, "check.py")
  )
  module = importlib.util.module_from_spec(spec)
  sys.modules["check"] = module
  spec.loader.exec_module(module)
  message, transcript = payload.get("final_message"), payload.get("transcript")
  given = module.grade(workspace, message or "", transcript or [])
  return {str(name): float(value) for name, value in given.items()}


if __name__ == "__main__":
  main()
