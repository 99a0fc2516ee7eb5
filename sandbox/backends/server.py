"""The program that is process 1 of a sandbox. Standard library only, Python 3.9+.

It is never imported: its source is sent to `python3 -I -S` inside the sandbox,
because the host's paths are not visible there. It mounts the bounded writable
directories, gives up every capability and the right to make user namespaces,
then serves one request at a time over its standard input and output.

Being process 1 it cannot be killed, stopped or traced from inside; it adopts
and reaps every orphan; and when it ends, the kernel kills all the rest. It
never waits for a program: commands run under `poll`, so one that floods its
output or leaves a background process holding the pipe delays nobody.

A frame is `!IQ` (bytes of header, bytes of body), a JSON header, a body.
"""

import contextlib
import ctypes
import errno
import io
import json
import os
import resource
import select
import signal
import stat
import struct
import sys
import tarfile
import time

HEADER = struct.Struct("!IQ")
CHUNK = 1 << 20
KILL_ROUNDS = 20
WATCH_SECONDS = 0.05
KINDS = {stat.S_IFDIR: "dir", stat.S_IFREG: "file", stat.S_IFLNK: "link"}


class Refused(Exception):
  """A request that can't be served, with an errno for the caller."""

  def __init__(self, message, code=errno.EINVAL):
    super().__init__(message)
    self.code = code


def mount_and_drop(config):
  """Mounts the writable directories, then drops all privilege for good."""
  libc = ctypes.CDLL(None, use_errno=True)

  def call(what, name, *args):
    if getattr(libc, name)(*args) != 0:
      code = ctypes.get_errno()
      raise OSError(code, f"{what}: {os.strerror(code)}")

  nosuid_nodev = 2 | 4
  for path, (size, inodes) in config["mounts"].items():
    options = f"size={size},nr_inodes={inodes},mode=0755".encode()
    call(
        f"mount {path}", "mount",
        b"tmpfs", path.encode(), b"tmpfs", nosuid_nodev, options,
    )
  # Without this a user namespace made inside could mount unbounded memory.
  with open("/proc/sys/user/max_user_namespaces", "w") as file:
    file.write("0")
  call("ambient", "prctl", 47, 4, 0, 0, 0)  # PR_CAP_AMBIENT_CLEAR_ALL
  header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
  call("capset", "capset", header, (ctypes.c_uint32 * 6)())
  call("no_new_privs", "prctl", 38, 1, 0, 0, 0)
  call("dumpable", "prctl", 4, 0, 0, 0, 0)  # no ptrace, no /proc/1/fd


class Output:
  """Head and tail of a stream, with a count of what went by."""

  def __init__(self, keep):
    self.keep, self.head, self.tail, self.total = keep, b"", b"", 0

  def add(self, data):
    self.total += len(data)
    room = self.keep - len(self.head)
    self.head += data[:room]
    self.tail = (self.tail + data[room:])[-self.keep:] if room < len(data) else self.tail

  def parts(self):
    return self.head, self.tail, self.total - len(self.head) - len(self.tail)


class Command:
  """One running command and the ids of processes that were there before it."""

  def __init__(self, request_id, pid, pipe, before, deadline, keep):
    self.request_id, self.pid, self.pipe = request_id, pid, pipe
    self.before, self.deadline = before, deadline
    self.output = Output(keep)
    self.started = time.monotonic()
    self.ended = False  # its output
    self.timed_out = self.out_of_memory = False


class Server:
  """The event loop; see the module's docstring."""

  def __init__(self, config, requests, replies):
    self.config, self.requests, self.replies = config, requests, replies
    self.incoming = bytearray()
    self.commands = {}  # pipe -> Command, until it is answered
    self.end = time.monotonic() + config["lifetime_seconds"]
    self.next_watch = 0.0
    self.poll = select.poll()
    self.poll.register(requests, select.POLLIN)
    self.wake, wake_write = os.pipe()
    for fd in (self.wake, wake_write):
      os.set_blocking(fd, False)
    self.poll.register(self.wake, select.POLLIN)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

  def serve(self):
    self.reply({"id": 0, "ready": True})
    while time.monotonic() < self.end:
      for fd, _ in self.poll.poll(self.pause() * 1000):
        if fd == self.requests:
          if not self.receive():
            return
        elif fd == self.wake:
          with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 4096)
        else:
          self.drain(fd)
      self.reap()
      self.watch()

  def pause(self):
    """Seconds until something must be looked at without an event."""
    if self.commands:
      return WATCH_SECONDS
    return min(1.0 if processes() else 60.0, max(0.0, self.end - time.monotonic()))

  # Frames.

  def receive(self):
    data = os.read(self.requests, CHUNK)
    if not data:
      return False
    self.incoming += data
    while len(self.incoming) >= HEADER.size:
      header_size, body_size = HEADER.unpack_from(self.incoming)
      stop = HEADER.size + header_size + body_size
      if len(self.incoming) < stop:
        break
      header = bytes(self.incoming[HEADER.size:HEADER.size + header_size])
      body = bytes(self.incoming[HEADER.size + header_size:stop])
      del self.incoming[:stop]
      self.handle(json.loads(header), body)
    return True

  def reply(self, header, body=b""):
    raw = json.dumps(header).encode()
    data = memoryview(HEADER.pack(len(raw), len(body)) + raw + body)
    while data:
      data = data[os.write(self.replies, data):]

  def handle(self, request, body):
    try:
      answer = getattr(self, "do_" + request["op"])(request, body)
    except Refused as error:
      answer = {"error": str(error), "code": error.code}, b""
    except OSError as error:
      text = error.strerror or str(error)
      answer = {"error": text, "code": error.errno or 0}, b""
    except Exception as error:  # process 1 must outlive any odd request
      answer = {"error": f"{type(error).__name__}: {error}", "code": 0}, b""
    if answer is not None:
      self.reply({"id": request["id"], **answer[0]}, answer[1])

  # Commands.

  def do_exec(self, request, body):
    before = processes()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
      self.become(request["command"], write_end)
    os.close(write_end)
    os.set_blocking(read_end, False)
    self.commands[read_end] = Command(
        request["id"], pid, read_end, before,
        time.monotonic() + request["timeout"], self.config["output"],
    )
    self.poll.register(read_end, select.POLLIN)

  def become(self, command, output):
    """In the child: bounds, streams, then the shell. Never returns."""
    try:
      os.setsid()
      os.dup2(output, 1)
      os.dup2(output, 2)
      signal.set_wakeup_fd(-1)
      for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
      for name, value in self.config["rlimits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
      os.chdir("/workspace")
      shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
      os.execve(shell, [shell, "-c", command], self.config["env"])
    except BaseException as error:  # the parent's code must never run twice
      os.write(2, f"cannot start: {error}".encode())
    os._exit(126)

  def drain(self, fd):
    """Reads what is there, at most a bounded share before others get a turn."""
    command = self.commands.get(fd)
    if command is not None and command.ended:
      return
    for _ in range(16):
      try:
        data = os.read(fd, 1 << 16)
      except BlockingIOError:
        return
      if not data:
        self.poll.unregister(fd)
        if command is None:
          os.close(fd)
        else:
          command.ended = True
        return
      if command is not None:
        command.output.add(data)

  def reap(self):
    by_pid = {c.pid: c for c in self.commands.values()}
    while True:
      try:
        pid, status = os.waitpid(-1, os.WNOHANG)
      except ChildProcessError:
        return
      if pid == 0:
        return
      if pid in by_pid:
        code = os.waitstatus_to_exitcode(status)
        self.finish(by_pid[pid], code if code >= 0 else 128 - code)

  def finish(self, command, exit_code):
    fd = command.pipe
    self.drain(fd)
    del self.commands[fd]
    if command.ended:
      os.close(fd)  # otherwise a background process may go on writing to it
    head, tail, left_out = command.output.parts()
    self.reply(
        {
            "id": command.request_id,
            "exit_code": exit_code,
            "timed_out": command.timed_out,
            "out_of_memory": command.out_of_memory,
            "head": len(head),
            "left_out": left_out,
            "output_bytes": command.output.total,
            "seconds": time.monotonic() - command.started,
        },
        head + tail,
    )

  def watch(self):
    """Kills commands past their deadline, and everything past the memory."""
    now = time.monotonic()
    if now < self.next_watch:
      return
    self.next_watch = now + WATCH_SECONDS
    for command in list(self.commands.values()):
      if now >= command.deadline and not command.timed_out:
        command.timed_out = True
        kill_all_but(command.before)
    if memory_in_use() > self.config["memory"]:
      for command in self.commands.values():
        command.out_of_memory = True
      kill_all_but(set())
    self.reap()

  # Files.

  def do_read(self, request, body):
    # Opening without blocking: a FIFO with no writer must not hold us.
    fd = os.open(request["path"], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
      if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise Refused("not a regular file", errno.EISDIR)
      return {}, file.read(request["limit"])

  def do_write(self, request, body):
    path = os.path.join("/workspace", request["path"])
    os.makedirs(os.path.dirname(path), exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, 0o644)
    with os.fdopen(fd, "wb") as file:
      if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise Refused("not a regular file", errno.EISDIR)
      file.truncate()
      file.write(body)
    return {}, b""

  def do_list(self, request, body):
    entries = []
    for path, info in walk(request["path"]):
      kind = KINDS.get(stat.S_IFMT(info.st_mode), "other")
      entries.append({"path": path, "type": kind, "size": info.st_size})
    return {}, json.dumps(sorted(entries, key=lambda e: e["path"])).encode()

  def do_processes(self, request, body):
    return {"pids": sorted(processes())}, b""

  def do_quiet(self, request, body):
    kill_all_but(set())
    self.reap()
    return {}, b""

  def do_pack(self, request, body):
    """Streams a tar of /workspace in frames marked `more`, then an empty one."""
    stream = Stream(self, request["id"], request["limit"])
    writer = io.BufferedWriter(stream, CHUNK)
    with tarfile.open(fileobj=writer, mode="w|", format=tarfile.PAX_FORMAT) as tar:
      for path, info in walk("/workspace"):
        member = tarfile.TarInfo(path)
        member.mode, member.mtime = stat.S_IMODE(info.st_mode), int(info.st_mtime)
        if stat.S_ISDIR(info.st_mode):
          member.type = tarfile.DIRTYPE
          tar.addfile(member)
        elif stat.S_ISLNK(info.st_mode):
          member.type = tarfile.SYMTYPE
          member.linkname = os.readlink(os.path.join("/workspace", path))
          tar.addfile(member)
        elif stat.S_ISREG(info.st_mode):
          member.size = info.st_size
          with readable(os.path.join("/workspace", path), info) as file:
            tar.addfile(member, file)
    writer.flush()
    return {}, b""

  def do_unpack(self, request, body):
    """Extracts files first and links last; a link that leaves `root` is dropped."""
    root, dropped, links = request["root"], [], []
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
      for member in tar:
        parts = member.name.split("/")
        target = os.path.join(root, member.name)
        if member.name.startswith("/") or ".." in parts:
          dropped.append(member.name)
        elif member.isdir():
          os.makedirs(target, exist_ok=True)
        elif member.issym():
          links.append((member, target))
        elif member.isreg():
          os.makedirs(os.path.dirname(target), exist_ok=True)
          with open(target, "wb") as file:
            source = tar.extractfile(member)
            while data := source.read(CHUNK):
              file.write(data)
          # Whoever reads next is the owner: no file may be shut to him.
          os.chmod(target, member.mode & 0o777 | 0o600)
          os.utime(target, (member.mtime, member.mtime))
        else:
          dropped.append(member.name)
    for member, target in links:
      os.makedirs(os.path.dirname(target), exist_ok=True)
      if not os.path.lexists(target):
        os.symlink(member.linkname, target)
    for member, target in links:
      if not (os.path.realpath(target) + "/").startswith(root + "/"):
        os.unlink(target)
        dropped.append(member.name)
    return {"dropped": dropped}, b""


class Stream(io.RawIOBase):
  """Sends what is written as frames of the answer `request_id`, up to a limit."""

  def __init__(self, server, request_id, limit):
    self.server, self.request_id, self.left = server, request_id, limit

  def writable(self):
    return True

  def write(self, data):
    self.left -= len(data)
    if self.left < 0:
      raise Refused("the workspace is larger than its bound", errno.EFBIG)
    self.server.reply({"id": self.request_id, "more": True}, bytes(data))
    return len(data)


def walk(root):
  """Yields (path relative to root, lstat), parents first, in order of names.

  A directory that its owner shut is opened; what can't be seen (a path longer
  than the system takes) is left out.
  """
  folders = [""]
  while folders:
    folder = folders.pop()
    place = os.path.join("/workspace", root, folder)
    try:
      names = sorted(os.listdir(place))
    except PermissionError:
      try:
        os.chmod(place, 0o700)
        names = sorted(os.listdir(place))
      except OSError:
        continue
    except OSError:
      if not folder:
        raise
      continue
    below = []
    for name in names:
      path = os.path.join(folder, name)
      try:
        info = os.lstat(os.path.join(place, name))
      except OSError:
        continue
      yield path, info
      if stat.S_ISDIR(info.st_mode):
        below.append(path)
    folders += reversed(below)


def readable(path, info):
  """Opens a regular file even where its owner took the right to read it."""
  flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
  try:
    fd = os.open(path, flags)
  except PermissionError:
    os.chmod(path, 0o600)
    fd = os.open(path, flags)
    os.chmod(path, stat.S_IMODE(info.st_mode))
  return os.fdopen(fd, "rb")


def processes():
  """The ids of all processes but this one; zombies count."""
  return {int(n) for n in os.listdir("/proc") if n.isdigit()} - {1}


def memory_in_use():
  """Resident bytes of all processes but this one, shared pages counted twice."""
  total = 0
  for pid in processes():
    try:
      with open(f"/proc/{pid}/statm") as file:
        total += int(file.read().split()[1])
    except (OSError, IndexError):
      continue
  return total * resource.getpagesize()


def kill_all_but(kept):
  """Kills every process not in `kept` and reaps nothing itself.

  A tree that forks faster than it can be walked loses what `kept` holds too:
  `kill(-1)` signals all at once, and a fork under way then fails.
  """
  for _ in range(KILL_ROUNDS):
    victims = [pid for pid in processes() - kept if alive(pid)]
    if not victims:
      return
    for pid in victims:
      with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.002)
  with contextlib.suppress(ProcessLookupError):
    os.kill(-1, signal.SIGKILL)


def alive(pid):
  """Whether `pid` is more than a zombie."""
  try:
    with open(f"/proc/{pid}/stat", "rb") as file:
      return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
  except OSError:
    return False


def main(config):
  requests, replies = os.dup(0), os.dup(1)
  mount_and_drop(config)
  for path in config["folders"]:
    os.makedirs(path, exist_ok=True)
  os.chdir("/workspace")
  null = os.open(os.devnull, os.O_RDWR)
  for fd in (0, 1, 2):
    os.dup2(null, fd)
  Server(config, requests, replies).serve()


if __name__ == "__main__":
  main(json.loads(sys.argv[1]))
