"""Runs checks/check.py inside the verifier's sandbox. Standard library only.

The result leaves through a duplicate of standard output that nothing else
holds: what the check prints, or a program that it starts, goes elsewhere, and
this process can neither be traced nor have its descriptors opened. A line
counts only if it starts with the nonce, which is gone from the disk before
the check runs.
"""

import ctypes
import importlib.util
import json
import os
import sys
import traceback

INPUT = "/verify/input.json"


def main():
  channel = take_channel()
  given = take_input()
  say(channel, given["nonce"], result_of(lambda: grade(load_check(), given)))
  os._exit(0)


def take_channel():
  """The way out, which from now on this process alone has."""
  channel = os.dup(1)
  null = os.open(os.devnull, os.O_RDWR)
  os.dup2(null, 1)
  os.dup2(null, 2)
  ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
  return channel


def take_input():
  with open(INPUT) as file:
    given = json.load(file)
  os.unlink(INPUT)
  return given


def say(fd, nonce, line):
  write(fd, f"{nonce} {line}\n".encode())


def write(fd, data):
  while data:
    data = data[os.write(fd, data) :]


def load_check():
  sys.dont_write_bytecode = True
  sys.path.insert(0, "/checks")
  spec = importlib.util.spec_from_file_location("check", "/checks/check.py")
  module = importlib.util.module_from_spec(spec)
  sys.modules["check"] = module
  spec.loader.exec_module(module)
  return module


def grade(module, given):
  """What the check's `grade` gives for /workspace."""
  arguments = ["/workspace", given["final_message"], given["transcript"]]
  code = getattr(module.grade, "__code__", None)
  names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code else ()
  services = {"services": given["reports"]} if "services" in names else {}
  checks = module.grade(*arguments, **services)
  if not isinstance(checks, dict):
    raise TypeError(f"grade gave {type(checks).__name__}, not a dict")
  return {"checks": {str(name): float(value) for name, value in checks.items()}}


def result_of(work):
  """What `work` gives, or what it raised, as a line of JSON."""
  try:
    return json.dumps(work())
  except BaseException as error:
    frames = traceback.extract_tb(error.__traceback__)
    where = [f.lineno for f in frames if f.filename.startswith("/checks")]
    at = f" (check.py line {where[-1]})" if where else ""
    return json.dumps({"error": f"{type(error).__name__}: {error}{at}"[:500]})


if __name__ == "__main__":
  main()
