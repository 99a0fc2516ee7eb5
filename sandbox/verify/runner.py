"""Runs checks/check.py inside the verifier's sandbox. Standard library only.

The result leaves through a duplicate of standard output that nothing else
holds: what the check prints, or a program that it starts, goes elsewhere, and
this process can neither be traced nor have its descriptors opened. A line
counts only if it starts with the nonce, which is gone from the disk before
the check runs.

To start Python is most of what a fresh verifier costs, and modules take more of
that than Python does. So of json and ctypes the parts in C are used, of importlib
what Python has loaded to import at all, what few need is imported by those, and
site-packages are looked for when they are.
"""

import builtins
import os
import sys

import _ctypes
import _json
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import PathFinder, SourceFileLoader

INPUT = "/verify/input.json"
CHECK = "/checks/check.py"
PR_SET_DUMPABLE = 4


def main():
  """Where Python was started by -S."""
  builtins.exit = builtins.quit = sys.exit  # as site has them
  sys.meta_path.append(LateSite)
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
  prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")
  if _ctypes.call_function(prctl, (PR_SET_DUMPABLE, 0, 0, 0, 0)) != 0:
    raise OSError("this process can be traced")
  return channel


class LateSite:
  """Has site-packages looked for at the first import that needs them."""

  @staticmethod
  def find_spec(name, path=None, target=None):
    if path is not None or LateSite not in sys.meta_path:
      return None
    sys.meta_path.remove(LateSite)
    import site

    site.main()
    return PathFinder.find_spec(name)


def take_input():
  with open(INPUT, encoding="utf-8") as file:
    given = _json.make_scanner(Decoder)(file.read(), 0)[0]
  os.unlink(INPUT)
  return given


class Decoder:
  """What json.JSONDecoder tells the scanner."""

  strict = True
  object_hook = object_pairs_hook = None
  parse_float, parse_int, parse_constant = float, int, float


def as_json(value):
  """As json.dumps, of what json.loads can give."""
  encode = _json.encode_basestring_ascii
  make = _json.make_encoder(None, None, encode, None, ": ", ", ", False, False, True)
  return "".join(make(value, 0))


def say(fd, nonce, line):
  write(fd, f"{nonce} {line}\n".encode())


def write(fd, data):
  while data:
    data = data[os.write(fd, data) :]


def load_check():
  sys.dont_write_bytecode = True
  sys.path.insert(0, "/checks")
  loader = SourceFileLoader("check", CHECK)
  module = sys.modules["check"] = type(sys)("check")
  module.__file__, module.__loader__ = CHECK, loader
  module.__spec__ = ModuleSpec("check", loader, origin=CHECK)
  loader.exec_module(module)
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
    return as_json(work())
  except BaseException as error:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    where = [f.lineno for f in frames if f.filename.startswith("/checks")]
    at = f" (check.py line {where[-1]})" if where else ""
    return as_json({"error": f"{type(error).__name__}: {error}{at}"[:500]})


if __name__ == "__main__":
  main()
