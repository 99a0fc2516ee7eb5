"""Programs that try to get out of a sandbox or at what holds it: none does, the
sandbox and its neighbour serve on, and nothing is left of either.

All of them run in one sandbox per backend, since none may change it.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from sandbox.backends import check_backend, open_sandbox
from tests.sandbox import hostile

READING = {
    "the host's files by name": """
def contents(path):
  found = os.listdir(path)
  if not found: raise FileNotFoundError(2, "as good as none")
  return found
for path in ("/root", "/home", "/boot", "/srv", "/mnt", "/run/user", "/var/lib/docker",
             os.path.dirname(SECRET)):
  attempt(path, contents, path)
for path in (SECRET, "/etc/shadow", "/etc/ssh/ssh_host_rsa_key", "/etc/machine-id"):
  attempt(path, get, path)
""",
    "the host's files by another's root": """
for pid in os.listdir("/proc"):
  for way in ("root", "cwd") if pid.isdigit() or pid == "self" else ():
    attempt(f"{pid} {way}", get, f"/proc/{pid}/{way}{SECRET}")
    attempt(f"{pid} {way} ..", get, f"/proc/{pid}/{way}/../../../../../../..{SECRET}")
""",
    "memory and log of the kernel": """
for path in ("/proc/kcore", "/proc/kmsg", "/dev/mem", "/dev/kmem", "/dev/kmsg",
             "/dev/port", "/proc/kpageflags", "/proc/vmallocinfo", "/dev/vda",
             "/dev/sda", "/dev/nvme0n1", "/dev/fuse", "/dev/kvm", "/dev/vsock"):
  attempt(path, get, path)
if os.path.exists("/proc/kallsyms"):  # addresses would help an exploit
  shown = {line.split()[0].strip("0") for line in open("/proc/kallsyms")}
  if shown - {""}: print("DONE kallsyms", shown)
""",
    "process 1": """
for name in ("mem", "environ", "maps", "exe", "root", "cwd", "fd/0", "fd/100", "stack",
             "auxv", "pagemap", "syscall", "task/1/mem", "map_files", "io", "ns/mnt"):
  attempt(name, get if name not in ("map_files", "exe", "root", "cwd") else os.listdir,
          f"/proc/1/{name}")
""",
    "files of a handle": """
handle = ctypes.create_string_buffer(struct.pack("IiQ", 8, 1, 2))
attempt("open_by_handle_at", call, "open_by_handle_at", -100, handle, 0)
attempt("with /usr", call, "open_by_handle_at", os.open("/usr", 0), handle, 0)
""",
}

WRITING = {
    "what the whole machine has": """
for path in ("sysrq-trigger", "sys/kernel/core_pattern", "sys/kernel/modprobe",
             "sys/kernel/hostname", "sys/kernel/panic", "sys/vm/drop_caches",
             "sys/vm/overcommit_memory", "sys/kernel/ns_last_pid",
             "sys/net/ipv4/ip_forward", "sys/user/max_user_namespaces",
             "sys/fs/file-max", "sys/kernel/pid_max", "sys/kernel/randomize_va_space",
             "irq/default_smp_affinity", "mtrr", "sys/kernel/sysrq", "acpi/wakeup"):
  attempt(path, put, "/proc/" + path)
""",
    "process 1": """
for name in ("oom_score_adj", "autogroup", "comm", "coredump_filter", "clear_refs",
             "uid_map", "setgroups", "mem", "sched", "attr/current", "timerslack_ns"):
  attempt(name, put, f"/proc/1/{name}")
attempt("exe", put, "/proc/1/exe")
""",
    "its own standing with the kernel": """
attempt("oom_score_adj", put, "/proc/self/oom_score_adj", b"-1000")
attempt("uid_map", put, "/proc/self/uid_map", b"0 0 1")
attempt("nice", os.nice, -10)
for policy in (os.SCHED_FIFO, os.SCHED_RR):
  attempt("realtime", os.sched_setscheduler, 0, policy, os.sched_param(1))
for limit in (resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_DATA):
  hard = resource.getrlimit(limit)[1]
  attempt("limit", call, "prlimit64", 0, limit,
          ctypes.create_string_buffer(struct.pack("QQ", 1 << 40, 1 << 40)), 0)
""",
    "programs of the host": """
attempt("interpreter", put, "/proc/self/exe")
attempt("shell", put, "/bin/bash")
for path in ("/usr/x", "/bin/x", "/etc/x", "/x", "/lib/x", "/proc/x", "/dev/x"):
  attempt(path, os.open, path, os.O_CREAT | os.O_WRONLY)
for path in ("/etc/passwd", "/usr/bin/env", "/etc/ld.so.cache"):
  attempt("rename", os.rename, path, path + "2")
  attempt("remove", os.unlink, path)
  attempt("chmod", os.chmod, path, 0o4777)
""",
    "device nodes": """
for folder in ("/workspace", "/tmp"):
  for kind, number in ((0o20000, (1, 1)), (0o60000, (254, 0)), (0o20000, (5, 1))):
    attempt("mknod", os.mknod, folder + "/node", kind | 0o666, os.makedev(*number))
attempt("by symlink", get, "/dev/../dev/mem")
""",
}

PRIVILEGE = {
    "becoming root": """
for do, args in ((os.setuid, [0]), (os.setgid, [0]), (os.setresuid, [0, 0, 0]),
                 (os.setgroups, [[0]]), (os.seteuid, [0])):
  attempt(do.__name__, unmapped, do, *args)
if set(os.getresuid()) != {os.getuid()} or not os.getuid(): print('DONE')
caps = ctypes.create_string_buffer(struct.pack("6I", *[0xffffffff] * 6))
header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
attempt("capset", call, "capset", header, caps)
""",
    "setuid programs": """
subprocess.run("cp /usr/bin/id ./id; chmod 6755 id", shell=True)
for line in ("./id -u", "timeout .3 su -c 'id -u' root </dev/null",
             "newgrp root -c id </dev/null", "mount -t tmpfs none /tmp", "umount /tmp",
             "chroot / id -u"):
  done = subprocess.run(line, shell=True, capture_output=True, text=True)
  if done.stdout.strip() == "0": print("DONE", line)
me = os.getuid()
owned = os.stat("id").st_uid == me and subprocess.check_output("./id", text=True)
if "euid=0" in owned: print("DONE id", owned)
attempt("a file given to root", unmapped, os.chown, "id", 0, 0)
os.unlink("id")
""",
    "tracing process 1": """
libc.ptrace.argtypes = [ctypes.c_long] * 4
for request in (16, 0x4206):
  attempt("ptrace", c, "ptrace", request, 1, 0, 0)
place = ctypes.create_string_buffer(64)
vector = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(place), 8))
other = ctypes.create_string_buffer(struct.pack("QQ", 0x400000, 8))
for name in ("process_vm_readv", "process_vm_writev"):
  attempt(name, call, name, 1, vector, 1, other, 1, 0)
handle = call("pidfd_open", 1, 0)
for n in (0, 100, 101): attempt("pidfd_getfd", call, "pidfd_getfd", handle, n, 0)
attempt("kcmp", call, "kcmp", 1, os.getpid(), 0, 0, 0)
attempt("migrate_pages", call, "migrate_pages", 1, 1, other, other)
""",
    "starving process 1": """
for what in (resource.RLIMIT_CPU, resource.RLIMIT_STACK, resource.RLIMIT_NOFILE,
             resource.RLIMIT_DATA, resource.RLIMIT_AS, resource.RLIMIT_FSIZE):
  attempt("limit", resource.prlimit, 1, what, (0, 0))
attempt("idle", os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0))
attempt("parameters", os.sched_setparam, 1, os.sched_param(0))
attempt("cores", os.sched_setaffinity, 1, {0})
for which, who in ((os.PRIO_PROCESS, 1), (os.PRIO_PGRP, 1), (os.PRIO_USER, 0),
                   (os.PRIO_USER, os.getuid())):
  attempt("nice", os.setpriority, which, who, 19)
attributes = ctypes.create_string_buffer(struct.pack("IIQiIQQQ", 48, 5, *[0] * 6))
attempt("attributes", call, "sched_setattr", 1, attributes, 0)
for which, who in ((1, 1), (2, 1), (3, os.getuid())):
  attempt("ioprio", call, "ioprio_set", which, who, 3 << 13)
""",
    "mounts": """
attempt("mount", call, "mount", b"none", b"/tmp", b"tmpfs", 0, 0)
attempt("bind", call, "mount", b"/", b"/tmp", 0, 4096, 0)
attempt("remount", call, "mount", 0, b"/", 0, 32, 0)
for path in (b"/proc", b"/workspace", b"/"): attempt("umount", c, "umount2", path, 2)
attempt("pivot_root", call, "pivot_root", b"/workspace", b"/workspace")
attempt("chroot", os.chroot, "/workspace")
attempt("open_tree", call, "open_tree", -100, b"/", 1)
attempt("fsopen", call, "fsopen", b"tmpfs", 0)
attempt("move_mount", call, "move_mount", -100, b"/tmp", -100, b"/workspace", 0)
attempt("swapon", call, "swapon", b"/workspace/id", 0)
""",
    "namespaces": """
for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x8000000, 0x4000000,
             0x2000000, 0x80):
  attempt(f"unshare {flag:x}", call, "unshare", flag)
  def clone(flag=flag):
    pid = call("clone", flag | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0: os._exit(0)
    return pid
  if flag not in (0x80,):  # a process's signal in clone
    try: pid = clone()
    except OSError as error:
      # ENOSPC is of a bound of zero such namespaces
      print("refused clone", error.errno in (1, 28) and "EPERM" or error)
    else: print("DONE clone", hex(flag))
for name in os.listdir("/proc/self/ns"):
  fd = os.open(f"/proc/self/ns/{name}", 0)
  attempt("setns", call, "setns", fd, 0)
""",
    "keys": """
for name, *args in (("keyctl", 0, -4, 0), ("keyctl", 1, 0), ("keyctl", 11, -3, 0, 0),
                    ("add_key", b"user", b"x", b"y", 1, -4),
                    ("request_key", b"user", b"x", 0, -4)):
  attempt(name, call, name, *args)
""",
    "calls that attack the kernel": """
room = ctypes.create_string_buffer(256)
for name, *args in (
    ("bpf", 0, room, 48), ("perf_event_open", room, 0, -1, -1, 0), ("userfaultfd", 1),
    ("io_uring_setup", 8, room), ("kexec_load", 0, 0, 0, 0),
    ("init_module", room, 0, b""), ("finit_module", 0, b"", 0),
    ("delete_module", b"ext4", 2048), ("syslog", 3, room, 64), ("acct", 0),
    ("vhangup",), ("quotactl", 0x80000100, b"/dev/vda", 0, room)):
  attempt(name, call, name, *args)
for name, *args in (("iopl", 3), ("ioperm", 0x80, 1, 1)):
  attempt(name, call, name, *args)
""",
    "other tables of calls": """
def x32():
  if libc.syscall(0x40000000 + 39) < 0: raise OSError(ctypes.get_errno(), "x32")
attempt("x32", x32)
# mov eax, 20; int 0x80; ret: getpid by the table of 32 bits.
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b"\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3")
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
def old():
  result = ctypes.CFUNCTYPE(ctypes.c_int)(at)()
  if result < 0: raise OSError(-result, "int 0x80")
attempt("int 0x80", old)
""",
    "clocks, names and the machine itself": """
zero = ctypes.create_string_buffer(256)
attempt("settimeofday", call, "settimeofday", zero, 0)
attempt("clock_settime", call, "clock_settime", 0, zero)
change = ctypes.create_string_buffer(struct.pack("I", 2) + bytes(252))
attempt("adjtimex", call, "adjtimex", change)
attempt("clock_adjtime", call, "clock_adjtime", 0, change)
for magic in (0x1234567, 0x4321fedc, 0):
  attempt("reboot", call, "reboot", 0xfee1dead, 672274793, magic, 0)
attempt("sethostname", call, "sethostname", b"mine", 4)
attempt("setdomainname", call, "setdomainname", b"mine", 4)
""",
}

NETWORK = {
    "listeners of the host": """
for family, address in (
    (socket.AF_INET, ("127.0.0.1", PORT)), (socket.AF_INET6, ("::1", PORT)),
    (socket.AF_INET, ("0.0.0.0", PORT)), (socket.AF_UNIX, ABSTRACT),
    (socket.AF_UNIX, PLACE)):
  s = socket.socket(family); s.settimeout(2)
  attempt(address, s.connect, address)
""",
    "addresses beyond": """
for family, address in (
    (socket.AF_INET, ("1.1.1.1", 443)), (socket.AF_INET, ("169.254.169.254", 80)),
    (socket.AF_INET, ("10.0.0.1", 22)), (socket.AF_INET, ("172.17.0.1", 2375)),
    (socket.AF_INET6, ("2606:4700:4700::1111", 443)),
    (socket.AF_INET6, ("fe80::1", 80, 0, 1))):
  for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    s = socket.socket(family, kind); s.settimeout(2)
    attempt(address, s.connect, address)
""",
    "names": """
for server in ("8.8.8.8", "127.0.0.53", "169.254.169.253"):
  s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1)
  def ask():
    s.connect((server, 53))
    s.send(b"\\0\\1\\1\\0\\0\\1" + bytes(6) + b"\\0\\0\\1\\0\\1")
    return s.recv(99)
  attempt(server, ask)
try: print("DONE", socket.getaddrinfo("example.org", 80))
except socket.gaierror: print("refused getaddrinfo EAI")
""",
    "sockets of other kinds": """
for family, kind, protocol in (
    (2, 3, 1), (2, 3, 255), (10, 3, 58), (17, 3, 0x300), (17, 2, 0x300), (40, 1, 0),
    (38, 5, 0), (31, 3, 1), (29, 3, 1), (15, 3, 2), (44, 3, 0)):
  attempt(f"{family} {kind}", socket.socket, family, kind, protocol)
""",
    "its own interfaces": """
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
def ask(kind, body):
  s.send(struct.pack("=IHHII", 16 + len(body), kind, 0x605, 1, 0) + body)
  answer = s.recv(4096)
  code = struct.unpack_from("=i", answer, 16)[0]
  if code < 0: raise OSError(-code, "netlink")
name = struct.pack("=HH", 8, 3) + b"dum\\0"
kind = struct.pack("=HHHH", 16, 18, 10, 1) + b"dummy\\0\\0\\0"
attempt("an interface", ask, 16, struct.pack("=BxHiII", 0, 0, 0, 0, 0) + name + kind)
attempt("an address", ask, 20, struct.pack("=BBBBI", 2, 24, 0, 0, 1)
        + struct.pack("=HH4B", 8, 2, 10, 9, 8, 7))
attempt("an interface's flags", fcntl.ioctl, socket.socket(), 0x8914,
        struct.pack("16sh14x", b"lo", 0))
""",
}


@pytest.fixture(
    scope="module",
    params=["bubblewrap", pytest.param("docker", marks=pytest.mark.slow)],
)
def place(request, tmp_path_factory):
  """A running loop, canaries, a sandbox and its neighbour; then nothing of them."""
  with pytest.MonkeyPatch.context() as patch:
    if request.param == "docker":
      patch.setenv("DOCKER_HOST", request.getfixturevalue("dockerd").url)
    check_backend(request.param)
    before = hostile.left()
    canaries = hostile.Canaries(tmp_path_factory.mktemp("canaries"))
    with asyncio.Runner() as runner, canaries.out():
      inside, beside = open_sandbox(request.param), open_sandbox(request.param)
      try:
        runner.run(inside.start({"mine": b"1"}))
        runner.run(beside.start({"secret": canaries.word.encode()}))
        runner.run(beside.spawn(f"exec -a {canaries.word} sleep 1000"))
        yield runner, inside, beside, canaries
      finally:
        runner.run(inside.stop())
        runner.run(beside.stop())
      runner.run(hostile.nothing_left(before))


@pytest.fixture
def attack(place):
  """Runs a program inside, then looks at the canaries and the neighbour."""
  runner, inside, beside, canaries = place

  def attack(code):
    result = runner.run(
        hostile.run(
            inside, code, SECRET=str(canaries.secret), PORT=canaries.port,
            ABSTRACT=canaries.abstract.encode(), PLACE=str(canaries.path),
        )
    )  # fmt: skip
    canaries.check()
    assert canaries.word not in result.output
    assert not result.timed_out
    assert runner.run(beside.read("secret")) == canaries.word.encode()
    assert runner.run(beside.exec("echo beside", 10)).output == "beside\n"
    return result.output

  return attack


CASES = {"read": READING, "write": WRITING, "privilege": PRIVILEGE, "network": NETWORK}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, cases in CASES.items() for name in cases]
)
def test_it_is_refused(attack, kind, name):
  hostile.refused(attack(CASES[kind][name]))


def test_the_neighbour_and_the_controller_are_not_seen(attack, place):
  """Neither in any process nor in any file but the host's programs."""
  _, _, _, canaries = place
  found = attack(
      f"WORD = {canaries.word.encode()[::-1]!r}[::-1]\n"
      "looked = 0\n"
      "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
      "  for name in ('cmdline', 'environ', 'mountinfo', 'cgroup'):\n"
      "    with contextlib.suppress(OSError):\n"
      "      looked += 1\n"
      "      if WORD in open(f'/proc/{pid}/{name}', 'rb').read(): print('DONE', pid)\n"
      "for folder, below, names in os.walk('/'):\n"
      "  below[:] = [b for b in below if b not in ('proc', 'usr', 'sys')]\n"
      "  for name in names:\n"
      "    with contextlib.suppress(OSError):\n"
      "      if WORD in get(f'{folder}/{name}', 1 << 20): print('DONE', name)\n"
      "for name in ('sysvipc/shm', 'net/unix', 'keys', 'net/tcp', 'net/arp'):\n"
      "  with contextlib.suppress(OSError):\n"
      "    text = get('/proc/' + name).decode()\n"
      "    if 'clawgym-test' in text or text.count('\\n') > 8: print('DONE', text)\n"
      "print('looked', looked > 0)\n"
  )
  assert found == "looked True\n"


def test_no_descriptor_is_inherited(attack):
  assert attack("print(sorted(os.listdir('/proc/self/fd'), key=int))") == (
      "['0', '1', '2', '3']\n"
  )


def test_processes_outside_can_not_be_signalled(attack):
  """Ids outside are none inside, and process 1 takes no signal of what it runs."""
  pid = os.getpid()
  said = attack(
      f"for pid in ({pid}, {os.getppid()}):\n"
      "  for number in (0, 9, 19):\n"
      "    if pid > 100:\n"
      "      try: os.kill(pid, number)\n"
      "      except ProcessLookupError: print('refused', pid, 'ENOENT')\n"
      "me = os.getpid()\n"
      "signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {9, 19})\n"
      "for number in range(1, 65):\n"
      "  with contextlib.suppress(OSError):\n"
      "    os.kill(1, number)\n"
      "handle = call('pidfd_open', 1, 0)\n"
      "for number in (9, 19): call('pidfd_send_signal', handle, number, 0, 0)\n"
      "for number in (9, 19, 11):  # a signal that the kernel sends for a socket\n"
      "  a, b = socket.socketpair()\n"
      "  fcntl.fcntl(a, fcntl.F_SETOWN, 1); fcntl.fcntl(a, fcntl.F_SETSIG, number)\n"
      "  fcntl.fcntl(a, fcntl.F_SETFL, fcntl.fcntl(a, fcntl.F_GETFL) | os.O_ASYNC)\n"
      "  b.send(b'x')\n"
      "print('sent')\n"
  )
  assert said.endswith("sent\n"), said


def test_a_storm_of_signals_at_process_1(attack):
  said = attack(
      "end = time.time() + 1\n"
      "for _ in range(6):\n"
      "  if os.fork() == 0:\n"
      "    while time.time() < end:\n"
      "      for n in (17, 10, 12, 34, 64, 18, 28):\n"
      "        with contextlib.suppress(OSError): os.kill(1, n)\n"
      "    os._exit(0)\n"
      "for _ in range(6): os.wait()\n"
      "print('stormed')\n"
  )
  assert said == "stormed\n"
