"""Programs that take more than is theirs, or will not end: each is bounded and said
to be, a neighbour answers meanwhile, and nothing is left after the stop."""

from __future__ import annotations

import asyncio
import errno
import time
from functools import partial
from pathlib import Path

import pytest

from sandbox.backends import Bounds, SandboxError, check_backend
from tests.sandbox import hostile
from tests.sandbox.hostile import ANSWER_SECONDS, MIB, SMALL, outcome


@pytest.fixture(params=["bubblewrap", pytest.param("docker", marks=pytest.mark.slow)])
def backend(request) -> str:
  if request.param == "docker":
    request.getfixturevalue("docker_host")
  check_backend(request.param)
  return request.param


@pytest.fixture
def abuse(backend):
  return partial(hostile.abuse, backend)


PROCESSES = {
    "a fork bomb": "while True:\n  with contextlib.suppress(OSError): os.fork()",
    "a fork bomb of sessions": """
while True:
  with contextlib.suppress(OSError):
    if os.fork() == 0: os.setsid()
""",
    "threads": """
def more():
  while True:
    with contextlib.suppress(RuntimeError): threading.Thread(target=more).start()
more()
""",
    "cores all busy": """
for i in range(16):
  if os.fork() == 0: break
while True: pass
""",
    "signals ignored": """
for n in range(1, 65):
  with contextlib.suppress(OSError, ValueError): signal.signal(n, signal.SIG_IGN)
while True: os.fork() and time.sleep(.5)
""",
    "stopped": "os.fork(); os.kill(os.getpid(), signal.SIGSTOP)",
    "the first thread gone": """
threading.Thread(target=time.sleep, args=(1000,)).start()
call("exit", 0)
""",
    "the first thread gone in a session of its own": """
if os.fork() == 0:
  os.setsid()
  threading.Thread(target=time.sleep, args=(1000,)).start()
  call("exit", 0)
time.sleep(1000)
""",
    "a parent of one's parent": """
pid = call("clone", 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)
if pid == 0: os.setsid()
time.sleep(1000)
""",
    "a tracer and its traced": """
libc.ptrace.argtypes = [ctypes.c_long] * 4
if os.fork() == 0:
  try: c("ptrace", 0, 0, 0, 0)
  except OSError: os.kill(os.getppid(), signal.SIGKILL)  # then no time runs out
  os.kill(os.getpid(), signal.SIGSTOP)
while True: time.sleep(1)
""",
}


@pytest.mark.parametrize("name", PROCESSES)
def test_a_timeout_ends_it_all(abuse, name):
  async def body(sandbox):
    started = time.monotonic()
    said = await outcome(sandbox, PROCESSES[name], 1.5)
    assert time.monotonic() - started < 1.5 + ANSWER_SECONDS
    assert await sandbox.processes() == []
    return said

  said = abuse(body, Bounds(processes=48))
  assert said.endswith("timed out"), said


def test_a_command_that_an_earlier_one_traces_ends(abuse):
  """A traced process that ended is its tracer's to collect, not process 1's."""
  yama = Path("/proc/sys/kernel/yama/ptrace_scope")
  if yama.exists() and yama.read_text().strip() != "0":
    pytest.skip("this kernel lets programs trace their own children alone")
  code = """
libc.ptrace.argtypes = [ctypes.c_long] * 4
def attach(pid):
  with contextlib.suppress(OSError):
    if int(open(f"/proc/{pid}/stat").read().split()[3]) == 1 and pid != os.getpid():
      c("ptrace", 0x4206, pid, 0, 0)
      held.add(pid)
      open("/workspace/held", "a").write(f"{pid}\\n")
if os.fork(): os._exit(0)
os.setsid()
held = set()
for fd in range(3): os.close(fd)
open("/workspace/held", "w").close()
while True:
  for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
    if pid > 1 and pid not in held: attach(pid)
"""

  async def body(sandbox):
    await sandbox.write("tracer.py", hostile.program(code))
    await sandbox.exec("python3 tracer.py", 5)
    while "held" not in [entry["path"] for entry in await sandbox.list()]:
      await asyncio.sleep(0.05)
    for _ in range(10):  # it may come too late for one; it never costs the sandbox
      result = await sandbox.exec("echo $$; exec sleep 1", 2)
      if result.output in (await sandbox.read("held")).decode().splitlines(True):
        break
    else:
      raise AssertionError("nothing was traced")
    assert result.timed_out
    assert (await sandbox.exec("echo serves", 5)).output == "serves\n"

  abuse(body)


# Nothing of these lives long enough to be met twice.
RUNAWAYS = {
    "a chain of sessions": """
while True:
  if os.fork(): os._exit(0)
  os.setsid()
""",
    "a chain of siblings": """
while True:
  pid = call("clone", 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)
  if pid: os._exit(0)
  os.setsid()
""",
    "a bomb that turns over": """
for i in range(20):
  if os.fork() == 0: break
else: os._exit(0)
while True:
  with contextlib.suppress(OSError):
    if os.fork(): os._exit(0)
    os.setsid()
""",
}


@pytest.mark.parametrize("name", RUNAWAYS)
def test_what_runs_away_is_caught(abuse, name):
  async def body(sandbox):
    for _ in range(5):
      await outcome(sandbox, RUNAWAYS[name])
      assert await sandbox.processes() != []
      await sandbox.quiet()
      assert await sandbox.processes() == []

  abuse(body, Bounds(processes=48))


def test_daemons_and_zombies_are_reaped_and_gone_in_the_end(abuse):
  code = """
for i in range(200):
  if os.fork() == 0:
    if os.fork() == 0: os._exit(0)
    os._exit(0)
  os.wait()
for i in range(20):
  if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
      for fd in range(3): os.close(fd)
      time.sleep(1000)
    os._exit(0)
  os.wait()
"""

  async def body(sandbox):
    assert await outcome(sandbox, code) == ""
    for _ in range(50):
      alive = await sandbox.processes()
      if len(alive) == 20:
        return  # and stops with them
      await asyncio.sleep(0.1)
    raise AssertionError(alive)

  abuse(body, Bounds(processes=300))


def test_time_of_cores_is_bounded(abuse):
  async def body(sandbox):
    return await sandbox.exec("while :; do :; done", 20)

  result = abuse(body, Bounds(cpu_seconds=1))
  assert result.exit_code in (137, 152) and not result.timed_out


FLOODS = {
    "ten gigabytes": ("yes | head -c 10G", 3.0),
    "a line without end": ("head -c 60M /dev/zero | tr '\\0' x", 10.0),
    "bytes of any kind": ("head -c 20M /dev/urandom", 10.0),
    "characters of any language": ("LC_ALL=xx_YY.KOI8-R yes $'\\xd0\\xf0…'"
                                   " | LC_ALL=C.UTF-8 head -c 5M", 10.0),
    "many writers": ("for i in $(seq 20); do yes $i & done; wait", 2.0),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOODS)
def test_output_is_bounded_in_size_and_time(abuse, name):
  command, seconds = FLOODS[name]

  async def body(sandbox):
    started = time.monotonic()
    result = await sandbox.exec(command, seconds)
    assert time.monotonic() - started < seconds + ANSWER_SECONDS
    assert await sandbox.processes() == []
    return result

  result = abuse(body)
  assert len(result.output.encode()) < 4 * SMALL.output
  assert "bytes left out" in result.output
  assert result.output_bytes > 2 * SMALL.output
  if not result.timed_out:
    assert result.output_bytes in (60 << 20, 20 << 20, 5 << 20, 10 << 30)


def test_names_and_bytes_of_the_disk_are_bounded(abuse):
  code = """
def fill(folder):
  for i in range(1000): open(f"{folder}/{i}", "w").close()
for folder in ("/workspace", "/tmp"):
  try: fill(folder)
  except OSError as error: print(error.errno)
"""

  async def body(sandbox):
    with pytest.raises(SandboxError) as error:
      result = await sandbox.exec(f"python3 -c '{code}'", 10)
      assert result.output == f"{errno.ENOSPC}\n" * 2
      await sandbox.write("more", b"x")
    assert error.value.code == errno.ENOSPC
    assert (await sandbox.exec("echo serves", 5)).output == "serves\n"
    await sandbox.exec("rm -rf /workspace/* /tmp/*", 5)
    await sandbox.write("more", b"x")

  abuse(body)


def test_descriptors_are_bounded_and_not_those_of_the_server(abuse):
  """Also not by sending them to process 1."""
  code = """
s = socket.socket(socket.AF_UNIX); s.connect("/run/sandbox/report")
r, w = os.pipe()
for i in range(400):
  with contextlib.suppress(OSError):
    s.setblocking(False)
    socket.send_fds(s, [b"x"], [r] * 200)
held = []
try:
  while True: held.append(os.dup(0))
except OSError as error: print(errno.errorcode[error.errno], len(held) < 256)
others = []
try:
  while True:
    held.pop(); s2 = socket.socket(socket.AF_UNIX); s2.setblocking(False)
    s2.connect("/run/sandbox/report"); others.append(s2)
except (OSError, IndexError) as error: print("stopped", flush=True)
time.sleep(.5)
"""

  async def body(sandbox):
    said = await outcome(sandbox, code)
    assert said == "EMFILE True\nstopped\n", said

  abuse(body)


def test_a_flood_of_reports_is_bounded_and_holds_up_nothing(abuse):
  code = """
def flood():
  while True:
    with contextlib.suppress(OSError):
      s = socket.socket(socket.AF_UNIX); s.connect("/run/sandbox/report")
      s.sendall(b'{"service": "x", "data": {"t": "' + b"y" * 9000 + b'"}}\\n')
      s.recv(9); s.close()
for i in range(8):
  if os.fork() == 0: flood()
time.sleep(1000)
"""

  async def body(sandbox):
    task = asyncio.create_task(outcome(sandbox, code, 2.0))
    while not task.done():
      answered = sandbox.exec("echo on", 30)
      assert (await asyncio.wait_for(answered, ANSWER_SECONDS)).output == "on\n"
      await asyncio.wait([task], timeout=0.2)
    assert (await task).endswith("timed out")
    return sandbox.reports, sandbox.bad_reports

  reports, bad = abuse(body)
  assert 0 < len(reports) <= 1000 and bad == 0
  assert sum(len(r["data"]["t"]) for r in reports) < 5 * MIB


def test_frames_that_are_forged_are_output(abuse):
  """Bytes of the protocol, on any descriptor there is, change no answer."""
  code = """
frame = struct.pack("!IBBHQ", 2, 1, 0, 2, 8) + bytes(8)
ready = struct.pack("!IBBHQ", 0, 21, 0, 2, 20) + bytes(20)
for fd in range(256):
  for bad in (frame, ready, frame * 1000, b"\\xff" * 4096):
    with contextlib.suppress(OSError): os.set_blocking(fd, False); os.write(fd, bad)
for pid in (1, os.getppid()):
  for fd in range(120):
    with contextlib.suppress(OSError): put(f"/proc/{pid}/fd/{fd}", ready)
"""

  async def body(sandbox):
    results = await asyncio.gather(
        outcome(sandbox, code),
        *(sandbox.exec(f"sleep .{n}; echo {n}", 10) for n in range(9)),
    )
    assert [r.output for r in results[1:]] == [f"{n}\n" for n in range(9)]
    assert sandbox.reports == [] and sandbox.bad_reports == 0

  abuse(body)


def test_a_terminal_s_escapes_come_back_as_no_input(abuse):
  asks = r"\033[6n\033[c\033[5n\033]0;x\007\033[21t\005\033P$q q\033\\"

  async def body(sandbox):
    number = await sandbox.spawn(
        f"stty raw -echo; printf '{asks}'; timeout 1 cat | wc -c; stty sane", pty=True
    )
    ended = await sandbox.poll(number, 10)
    assert ended.exit_code == 0
    return ended.output

  assert abuse(body).strip().endswith("0")


def test_background_commands_are_bounded(abuse):
  async def body(sandbox):
    with pytest.raises(SandboxError) as error:
      for _ in range(70):
        await sandbox.spawn("sleep 1000")
    assert error.value.code == errno.EAGAIN
    await sandbox.quiet()
    assert (await sandbox.exec("echo serves", 5)).output == "serves\n"

  abuse(body, Bounds(processes=200))


def test_a_thousand_small_commands(abuse):
  async def body(sandbox):
    for n in range(1000):
      assert (await sandbox.exec(f"echo {n}", 10)).output == f"{n}\n"
    assert await sandbox.processes() == []

  abuse(body)


def test_nothing_set_by_a_command_meets_the_next(abuse):
  code = """
home = "/tmp/home"
evil = "echo EVIL\\n"
for name in (".bashrc", ".bash_profile", ".profile", ".bash_login", ".inputrc",
             ".pythonrc", ".bash_logout", ".config", ".env"):
  open(f"{home}/{name}", "w").write(evil)
for name in ("bash", "sh", "python3", "ls", "id", "cat"):
  for folder in ("/workspace", home):
    open(f"{folder}/{name}", "w").write("#!/bin/sh\\n" + evil)
    os.chmod(f"{folder}/{name}", 0o755)
os.environ.update(PATH="/workspace", LD_PRELOAD="/workspace/x.so", IFS="/",
                  BASH_ENV=f"{home}/.bashrc", ENV=f"{home}/.bashrc", SHELLOPTS="xtrace",
                  PROMPT_COMMAND="echo EVIL", PYTHONSTARTUP=f"{home}/.pythonrc")
os.chdir("/"); os.umask(0o777)
os.rename("/workspace/id", "/workspace/[")
"""

  async def body(sandbox):
    plain = await sandbox.exec("env; umask; pwd; ulimit -a; ls /bin/ls; id -u", 5)
    await outcome(sandbox, code)
    await sandbox.exec("exec > /dev/null; export BASH_ENV=x; cd /; ulimit -n 5", 5)
    after = await sandbox.exec("env; umask; pwd; ulimit -a; ls /bin/ls; id -u", 5)
    assert after.output == plain.output and "EVIL" not in after.output

  abuse(body)


def test_a_lease_on_a_file_holds_up_nobody(abuse):
  """The kernel has whoever opens it wait, for 45 s by default."""
  code = """
fd = os.open("/workspace/held", os.O_RDWR | os.O_CREAT)
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
fcntl.flock(fd, fcntl.LOCK_EX); fcntl.lockf(fd, fcntl.LOCK_EX)
print("held", flush=True)
while True: time.sleep(1)
"""

  async def body(sandbox):
    await sandbox.write("held.py", hostile.program(code))
    number = await sandbox.spawn("python3 held.py")
    assert (await sandbox.poll(number, 1.0)).output == "held\n"
    for do in (sandbox.read("held"), sandbox.write("held", b"x"), sandbox.snapshot()):
      try:
        await asyncio.wait_for(do, ANSWER_SECONDS)
      except SandboxError as error:
        assert error.code == errno.EAGAIN
    await sandbox.quiet()
    assert await sandbox.read("held") in (b"", b"x")

  abuse(body)
