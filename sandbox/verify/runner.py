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


def main():
  channel = os.dup(1)
  null = os.open(os.devnull, os.O_RDWR)
  os.dup2(null, 1)
  os.dup2(null, 2)
  ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
  with open("/verify/input.json") as file:
    given = json.load(file)
  os.unlink("/verify/input.json")
  sys.dont_write_bytecode = True
  sys.path.insert(0, "/checks")
  try:
    spec = importlib.util.spec_from_file_location("check", "/checks/check.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["check"] = module
    spec.loader.exec_module(module)
    checks = module.grade("/workspace", given["final_message"], given["transcript"])
    if not isinstance(checks, dict):
      raise TypeError(f"grade gave {type(checks).__name__}, not a dict")
    result = {"checks": {str(name): float(value) for name, value in checks.items()}}
    line = json.dumps(result)
  except BaseException as error:
    frames = traceback.extract_tb(error.__traceback__)
    where = [f.lineno for f in frames if f.filename.startswith("/checks")]
    at = f" (check.py line {where[-1]})" if where else ""
    line = json.dumps({"error": f"{type(error).__name__}: {error}{at}"[:500]})
  os.write(channel, f"{given['nonce']} {line}\n".encode())
  os._exit(0)


if __name__ == "__main__":
  main()
