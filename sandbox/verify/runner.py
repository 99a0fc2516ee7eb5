"""Runs checks/check.py inside the verifier's sandbox. Standard library only.

The result leaves through a duplicate of standard output that nothing else
holds: what the check prints, or a program that it starts, goes elsewhere, and
this process can neither be traced nor have its descriptors opened. A line
counts only if it starts with the nonce, which is gone from the disk before
the check runs.

Given a number of seconds, it imports the check and what that imports, leaves
a resident process and ends. The resident waits for a line on one pipe, judges
what is in /workspace then in a fork of itself, wipes what that state and its
judging left, and answers on the other pipe. A fork may start no process and
no thread and run no code but the check's and Python's own; one that tries says
so instead of a result. The resident ends where it can't vouch for what it
leaves to the next state.
"""

import _thread
import ast
import ctypes
import gc
import hashlib
import importlib.util
import json
import os
import resource
import select
import shutil
import signal
import sys
import threading
import time
import traceback

INPUT = "/verify/input.json"
ASK, ANSWER = "/verify/ask", "/verify/answer"
WIPED = ("/workspace", "/tmp", "/verify")
MOST_BYTES = 1 << 20  # of a result
OWN_CODE = ("/usr/", "/lib", "/checks/", "<frozen ")
PROCESS_EVENTS = (
    "subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty",
    "os.posix_spawn", "os.spawn", "os.kill", "os.killpg", "pty.spawn",
    "signal.pthread_kill", "sqlite3.load_extension", "sqlite3.enable_load_extension",
)  # fmt: skip


def main():
  channel = os.dup(1)
  null = os.open(os.devnull, os.O_RDWR)
  os.dup2(null, 1)
  os.dup2(null, 2)
  ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
  given = take_input()
  if len(sys.argv) == 1:
    say(channel, given["nonce"], result_of(lambda: grade(load_check(), given)))
  else:
    stay(channel, given["nonce"], float(sys.argv[1]))
  os._exit(0)


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


# Many states, one after the other.


def stay(channel, nonce, seconds):
  """Imports once, says so, and leaves the resident behind. Returns in neither."""

  def warm():
    module = load_check()
    import_what_is_named()
    return module

  loaded = []
  line = result_of(lambda: loaded.append(warm()) or {"ready": True})
  if loaded:
    for path in (ASK, ANSWER):
      os.mkfifo(path)
    if os.fork() == 0:
      os.close(channel)
      os.setsid()
      try:
        serve(loaded[0], seconds)
      finally:
        os._exit(1)
  say(channel, nonce, line)
  os._exit(0)


def import_what_is_named():
  """Imports what any function of the checks would import, for all forks at once."""
  names = set()
  for path in files("/checks"):
    if path.endswith(".py"):
      with open(path, "rb") as file:
        tree = ast.parse(file.read())
      for node in ast.walk(tree):
        if isinstance(node, ast.Import):
          names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
          names.add(node.module)
  for name in sorted(names):
    try:
      importlib.import_module(name)
    except Exception:
      pass  # it may be meant for another machine; the fork would say the same


def serve(module, seconds):
  gc.collect()
  gc.freeze()
  checks = digest("/checks")
  sound = True
  while sound:
    with open(ASK) as file:
      file.read()
    given = take_input()
    before = processes()
    result = judge_in_fork(module, given, seconds)
    if digest("/checks") != checks or processes() - before:
      result, sound = json.dumps({"alone": "it changed the verifier's sandbox"}), False
    sound = wipe() and sound
    with open(ANSWER, "wb", buffering=0) as file:
      answer = json.dumps({"result": result, "last": not sound})
      say(file.fileno(), given["nonce"], answer)


def judge_in_fork(module, given, seconds):
  """The result of one state as JSON text, whatever became of the fork."""
  deadline = time.monotonic() + seconds
  read_end, write_end = os.pipe()
  pid = os.fork()
  if pid == 0:
    try:
      os.close(read_end)
      forbid_processes(write_end)
      write(write_end, result_of(lambda: grade(module, given)).encode())
      os._exit(0)
    finally:
      os._exit(1)
  os.close(write_end)
  data = b""
  while len(data) <= MOST_BYTES:
    left = deadline - time.monotonic()
    if left <= 0 or not select.select([read_end], [], [], left)[0]:
      break
    part = os.read(read_end, 1 << 16)
    if not part:
      break
    data += part
  os.kill(pid, signal.SIGKILL)
  status = os.waitpid(pid, 0)[1]
  os.close(read_end)
  if status != 0 or not data:
    return json.dumps({"alone": f"it ended with status {status}"})
  return data.decode(errors="replace")


def forbid_processes(channel):
  """Whatever this process tries to start ends it, with `alone` for a result."""
  resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
  os.environ["CLAWGYM_FORKED"] = "1"  # a check may do here what it would fork for

  def refuse(why):
    # Not an exception: the check could take that for an answer.
    write(channel, json.dumps({"alone": f"needs its own sandbox: {why}"}).encode())
    os._exit(0)

  def watch(event, args):
    if event in PROCESS_EVENTS or event.startswith("ctypes."):
      refuse(event)
    if event == "exec" and not args[0].co_filename.startswith(OWN_CODE):
      refuse(f"code of {args[0].co_filename}")
    if event == "import" and args[1] and not str(args[1]).startswith(OWN_CODE):
      refuse(f"code of {args[1]}")

  sys.addaudithook(watch)
  for module in (_thread, threading):  # not all Pythons audit these
    for name in dir(module):
      if name.lstrip("_").startswith("start_"):
        setattr(module, name, lambda *_, **__: refuse("a thread"))


def digest(root):
  """A hash of all files below `root`: their names, kinds and contents."""
  total = hashlib.sha256()
  for path in files(root):
    total.update(path.encode(errors="surrogateescape") + b"\0")
    if os.path.islink(path) or not os.path.isfile(path):
      total.update(f"{os.lstat(path).st_mode}".encode())
      continue
    with open(path, "rb") as file:
      total.update(hashlib.sha256(file.read()).digest())
  return total.hexdigest()


def files(root):
  """Everything below `root` that is no directory, sorted."""
  return sorted(
      os.path.join(folder, name)
      for folder, folders, names in os.walk(root)
      for name in (*names, *(f for f in folders if os.path.islink(f"{folder}/{f}")))
  )


def processes():
  return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def wipe():
  """Empties the writable folders; False if something stays."""
  try:
    for root in WIPED:
      os.chmod(root, 0o755)
      for entry in list(os.scandir(root)):
        if entry.path in (ASK, ANSWER):
          continue
        if entry.is_dir(follow_symlinks=False):
          shutil.rmtree(entry.path)
        else:
          os.unlink(entry.path)
    os.mkdir("/tmp/home")
    return True
  except (OSError, RecursionError):
    return False


if __name__ == "__main__":
  main()
