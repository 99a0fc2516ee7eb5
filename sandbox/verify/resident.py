"""Judges many states inside one verifier's sandbox. Standard library only.

Given a number of seconds, it imports the check and what that imports, leaves
a resident process and ends. The resident waits for a line on one pipe, judges
what is in /workspace then in a fork of itself, wipes what that state and its
judging left, and answers on the other pipe. What a fork had to import, the
resident then imports for all that follow. A fork may start no process and
no thread and run no code but the check's and Python's own; one that tries says
so instead of a result. The resident ends where it can't vouch for what it
leaves to the next state.
"""

import _thread
import gc
import hashlib
import importlib
import json
import os
import resource
import select
import signal
import stat
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, "/verify")
import runner  # noqa: E402

sys.path.remove("/verify")

ASK, ANSWER = "/verify/ask", "/verify/answer"
NOT_FILES = ("proc", "sysfs", "devpts", "cgroup", "cgroup2")  # kinds of mounts
NOT_WIPED = ("/checks", "/run/sandbox")
MOST_BYTES = 1 << 20  # of a result
PYTHON = f"{sys.base_prefix}/"
OWN_CODE = (PYTHON, "/checks/", "<frozen ")
PROCESS_EVENTS = (
    "subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty",
    "os.posix_spawn", "os.spawn", "os.kill", "os.killpg", "pty.spawn",
    "signal.pthread_kill", "sqlite3.load_extension", "sqlite3.enable_load_extension",
)  # fmt: skip


def main():
  channel = runner.take_channel()
  stay(channel, runner.take_input()["nonce"], float(sys.argv[1]))


def stay(channel, nonce, seconds):
  """Imports once, says so, and leaves the resident behind. Returns in neither."""
  module = None

  def warm():
    nonlocal module
    module = runner.load_check()
    return {"ready": True}

  line = runner.result_of(warm)
  if json.loads(line).get("ready"):
    for path in (ASK, ANSWER):
      os.mkfifo(path)
    if os.fork() == 0:
      os.close(channel)
      os.setsid()
      try:
        serve(module, seconds)
      finally:
        os._exit(1)
  runner.say(channel, nonce, line)
  os._exit(0)


def serve(module, seconds):
  gc.collect()
  gc.freeze()
  checks, folders = digest("/checks"), writable()
  sound = True
  while sound:
    with open(ASK) as file:
      file.read()
    given = runner.take_input()
    try:
      before = processes()
      result = json.loads(judge_in_fork(module, given, seconds))
      imported = result.pop("imported", ())
      if digest("/checks") != checks or processes() - before:
        result, sound = {"alone": "it changed the verifier's sandbox"}, False
      sound = wipe(folders) and sound
      import_all(imported if sound else ())
    except Exception as error:  # whoever asked must not wait for nothing
      result, sound = {"alone": f"{type(error).__name__}: {error}"}, False
    with open(ANSWER, "wb", buffering=0) as file:
      answer = json.dumps({"result": result, "last": not sound})
      runner.say(file.fileno(), given["nonce"], answer)


def import_all(names):
  for name in names:
    try:
      importlib.import_module(name)
    except Exception:
      pass  # then the forks go on trying
  gc.freeze()


def alone(why):
  """The result of a state that must be judged in a sandbox of its own."""
  return json.dumps({"alone": why})


def judge_in_fork(module, given, seconds):
  """The result of one state as JSON text, whatever became of the fork."""
  deadline = time.monotonic() + seconds
  read_end, write_end = os.pipe()
  pid = os.fork()
  if pid == 0:
    try:
      os.close(read_end)
      forbid_processes(write_end)
      line = runner.result_of(lambda: grade_and_say_what_it_took(module, given))
      runner.write(write_end, line.encode())
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
    return alone(f"it ended with status {status}")
  return data.decode(errors="replace")


def grade_and_say_what_it_took(module, given):
  known = set(sys.modules)
  return runner.grade(module, given) | {"imported": sorted(set(sys.modules) - known)}


def forbid_processes(channel):
  """Whatever this process tries to start ends it, with `alone` for a result."""
  resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
  os.environ["CLAWGYM_FORKED"] = "1"  # a check may do here what it would fork for

  def refuse(why):
    # Not an exception: the check could take that for an answer.
    runner.write(channel, alone(f"needs its own sandbox: {why}").encode())
    os._exit(0)

  def watch(event, args):
    if event in PROCESS_EVENTS or event.startswith("ctypes."):
      refuse(event)
    if event == "exec" and not args[0].co_filename.startswith(OWN_CODE):
      runs_it = sys._getframe(1).f_code.co_filename  # as namedtuple does, for one
      if args[0].co_filename != "<string>" or not runs_it.startswith(PYTHON):
        refuse(f"code of {args[0].co_filename}")
    if event == "import" and args[1] and not str(args[1]).startswith(OWN_CODE):
      refuse(f"code of {args[1]}")

  sys.addaudithook(watch)
  for module in (_thread, sys.modules.get("threading")):  # not all Pythons audit these
    for name in dir(module):
      if name.lstrip("_").startswith("start_"):
        setattr(module, name, lambda *_, **__: refuse("a thread"))


def digest(root):
  """A hash of everything below `root`: names, kinds, permissions, contents."""
  total = hashlib.sha256()
  for path in below(root):
    mode = os.lstat(path).st_mode
    total.update(os.fsencode(path) + f"\0{mode}\0".encode())
    if stat.S_ISLNK(mode):
      total.update(os.fsencode(os.readlink(path)))
    elif stat.S_ISREG(mode):
      with open(path, "rb") as file:
        total.update(hashlib.sha256(file.read()).digest())
  return total.hexdigest()


def below(root):
  return sorted(
      os.path.join(folder, name)
      for folder, folders, files in os.walk(root)
      for name in (*folders, *files)
  )


def processes():
  return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def writable():
  """Where a fork can leave files: whatever is mounted and takes them.

  The checks are watched instead, and the server's socket is nobody's to remove.
  """
  with open("/proc/self/mounts") as file:
    mounts = [line.split()[1:3] for line in file]
  places = [place for place, kind in mounts if kind not in NOT_FILES]
  mine = [p for p in places if os.path.isdir(p) and os.access(p, os.W_OK)]
  return [p for p in mine if p not in NOT_WIPED]


def wipe(folders):
  """Empties the writable folders; False if something stays."""
  try:
    for root in folders:
      if os.stat(root).st_uid == os.getuid():
        os.chmod(root, 0o755)
      for folder, below, files in os.walk(root, topdown=False):
        for path in (os.path.join(folder, name) for name in (*below, *files)):
          if stat.S_ISDIR(os.lstat(path).st_mode):
            os.rmdir(path)
          elif path not in (ASK, ANSWER):
            os.unlink(path)
    os.mkdir("/tmp/home")
    return True
  except (OSError, RecursionError):
    return False


if __name__ == "__main__":
  main()
