"""What programs in a sandbox connect to: the socket for reports, forwarded ports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from pathlib import Path

from sandbox.backends import labels, open_sandbox
from tests.sandbox.started import run

REPORT = (
    "import json, os, socket, sys\n"
    "s = socket.socket(socket.AF_UNIX); s.connect(os.environ['CLAWGYM_REPORT'])\n"
    "s.sendall(sys.stdin.buffer.read())\n"
    "print(s.makefile().read(), end='')\n"
)


def test_reports_arrive_in_order_and_are_bounded():
  async def body(sandbox):
    async def report(line):
      (path,) = [f"r{len(names)}"]
      names.append(path)
      await sandbox.write(path, line)
      return (await sandbox.exec(f"python3 report.py < {path}", 10)).output

    names = []
    for n in range(3):
      line = json.dumps({"service": "outbox", "data": {"n": n, "text": "…"}})
      assert await report(line.encode() + b"\n") == "ok\n"
    seen = [(r["service"], r["data"]["n"]) for r in sandbox.reports]
    assert seen == [("outbox", 0), ("outbox", 1), ("outbox", 2)]
    times = [r["seconds"] for r in sandbox.reports]
    assert times == sorted(times) and 0 < times[0] < 60
    for bad in (
        b"{", b"[]", b"\xff", b'{"service": 1, "data": {}}', b'{"service": "x"}', b"",
        b"[" * 20_000, b'{"service": "x", "data": []}', b'{"a":' * 9000,
    ):  # fmt: skip
      assert await report(bad + b"\n") == "ok\n"  # passed on, and dropped there
    assert (len(sandbox.reports), sandbox.bad_reports) == (3, 9)
    assert "64 KiB" in await report(b"x" * (64 << 10) + b"\n")
    assert await report(b"no end of line") == ""

  run(body, {"report.py": REPORT.encode().replace(
      b"s.sendall(sys.stdin.buffer.read())",
      b"s.sendall(sys.stdin.buffer.read()); s.shutdown(1)",
  )})  # fmt: skip


def test_reports_have_an_end():
  flood = (
      "import os, socket, sys\n"
      "answers = []\n"
      "for i in range(int(sys.argv[1])):\n"
      "  s = socket.socket(socket.AF_UNIX); s.connect(os.environ['CLAWGYM_REPORT'])\n"
      "  line = b'{\"service\": \"s\", \"data\": {}}'.ljust(int(sys.argv[2]))\n"
      "  s.sendall(line + b'\\n')\n"
      "  answers.append(s.recv(99)); s.close()\n"
      "print(answers.count(b'ok\\n'), answers[-1].decode(), end='')\n"
  )

  async def many(sandbox):
    result = await sandbox.exec("python3 flood.py 1010 30", 20)
    assert result.output == "1000 error: too many reports\n"
    assert len(sandbox.reports) == 1000

  async def large(sandbox):
    result = await sandbox.exec("python3 flood.py 70 65000", 20)
    assert result.output == "64 error: the reports are too large together\n"

  async def slow(sandbox):
    mute = "import socket, time\nall = []\n" + (
        "for _ in range(40):\n"
        "  all.append(socket.socket(socket.AF_UNIX))\n"
        "  all[-1].connect('/run/sandbox/report')\n"
        "print('open', flush=True); time.sleep(60)"
    )
    await sandbox.write("mute.py", mute.encode())
    number = await sandbox.spawn("python3 mute.py")
    assert (await sandbox.poll(number, 1.0)).output == "open\n"
    assert (await sandbox.exec("echo on", 5)).output == "on\n"
    removed = await sandbox.exec("rm /run/sandbox/report; touch /run/sandbox/x", 5)
    assert removed.output.count("Read-only") == 2

  for body in (many, large, slow):
    run(body, {"flood.py": flood.encode()})


class Echo:
  """A server on a Unix socket; gives back what it gets, upper case."""

  async def __aenter__(self):
    self.folder = labels.run_directory("test")
    self.path = self.folder / "gateway"
    self.server = await asyncio.start_unix_server(self.answer, self.path)
    return self

  async def __aexit__(self, *_):
    self.server.close()
    self.path.unlink()
    self.folder.rmdir()

  async def answer(self, reader, writer):
    with contextlib.suppress(OSError):
      while data := await reader.read(50_000):
        writer.write(data.upper())
        await writer.drain()
      writer.write(b"bye")
      writer.close()


def free_port():
  with socket.socket() as sock:
    sock.bind(("127.0.0.1", 0))
    return sock.getsockname()[1]


CLIENT = """
import socket, sys, threading
def one(n):
  s = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)
  data = bytes([97 + n]) * int(sys.argv[2])
  def send():
    s.sendall(data); s.shutdown(1)
  t = threading.Thread(target=send); t.start()
  got = b''
  while more := s.recv(65536): got += more
  t.join()
  right[n] = got == data.upper() + b'bye'
right = [False] * int(sys.argv[3])
threads = [threading.Thread(target=one, args=(n,)) for n in range(len(right))]
[t.start() for t in threads]; [t.join() for t in threads]
print(right.count(True))
"""


def test_a_port_inside_is_a_socket_outside():
  port, nowhere = free_port(), free_port()

  async def whole():
    async with Echo() as echo:
      forward = {port: echo.path, nowhere: Path("/nowhere/gateway")}
      async with open_sandbox(forward=forward) as sandbox:
        await sandbox.start({"client.py": CLIENT.encode()})
        small = await sandbox.exec(f"python3 client.py {port} 10 1", 20)
        assert small.output == "1\n"
        large = await sandbox.exec(f"python3 client.py {port} 3000000 8", 60)
        assert large.output == "8\n"
        gone = await sandbox.exec(f"python3 client.py {nowhere} 10 1", 20)
        assert gone.output.endswith("0\n")
        closed = await sandbox.exec(f"python3 client.py {free_port()} 10 1", 20)
        assert "refused" in closed.output
        # One that does not read holds up nothing else.
        deaf = await sandbox.spawn(
            "python3 -c \"import socket, time; s = socket.create_connection("
            f"('127.0.0.1', {port})); s.setblocking(False)\n"
            "while True:\n  try: s.send(b'x' * 65536)\n"
            "  except BlockingIOError: break\n"
            "print('full', flush=True); time.sleep(60)\""
        )
        assert (await sandbox.poll(deaf, 2)).output == "full\n"
        again = await sandbox.exec(f"python3 client.py {port} 100000 4", 20)
        assert again.output == "4\n"

  asyncio.run(whole())
