"""The programs of the services outside a sandbox, and who takes their reports."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clawgym_jax.contracts.task import Task
from sandbox import services

PYTHON = "/usr/bin/python3"


class Staged:
  """A folder like /services; `reports` is what was reported to it."""

  def __init__(self, root: Path):
    self.root = root
    self.reports: list[dict[str, Any]] = []
    self.answer = b"ok\n"
    self.listener = socket.socket(socket.AF_UNIX)
    self.listener.bind(str(root / "report"))
    self.listener.listen(64)
    threading.Thread(target=self._serve, daemon=True).start()

  def command(self, program: str, *argv: str) -> list[str]:
    return [PYTHON, "-sEB", str(self.root / "bin" / program), *argv]

  def run(
      self, program: str, *argv: str, data: bytes = b"", report: str = "report"
  ) -> tuple[int, str]:
    """Exit code, and stdout and stderr together."""
    done = subprocess.run(
        self.command(program, *argv),
        input=data, capture_output=True, timeout=30, cwd=self.root,
        env={"CLAWGYM_REPORT": str(self.root / report), "LC_ALL": "C.UTF-8",
             "CLAWGYM_NOW": "2026-01-05T09:00:00Z"},
    )  # fmt: skip
    return done.returncode, (done.stdout + done.stderr).decode().rstrip("\n")

  def records(self, program: str, *argv: str) -> list[dict[str, Any]]:
    """The JSON lines that a program prints."""
    code, said = self.run(program, *argv)
    assert code == 0, said
    return [json.loads(line) for line in said.splitlines()]

  def _serve(self) -> None:
    with contextlib.suppress(OSError):  # it is closed at the end
      while True:
        channel, _ = self.listener.accept()
        with channel, channel.makefile("rb") as lines:
          self.reports.append(json.loads(lines.readline()))
          channel.sendall(self.answer)


@contextlib.contextmanager
def staged(seeds: dict[str, Any] = {}) -> Iterator[Staged]:
  """Every program beside these seed files (values, or the lines of a .jsonl)."""
  root = Path(tempfile.mkdtemp(prefix="sv"))  # short: a socket's path is bounded
  try:
    (root / "task").mkdir()
    (root / "task" / "services").mkdir()
    for name, value in seeds.items():
      lines = value if name.endswith(".jsonl") else [value]
      text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
      (root / "task" / "services" / name).write_text(text)
    task = Task(
        "t", "i", "f", "train", "c", ("o",),
        requires=tuple(services.PROGRAMS), root=root / "task",
    )  # fmt: skip
    for name, data in services.files(task).items():
      (root / name).parent.mkdir(exist_ok=True)
      (root / name).write_bytes(data)
    box = Staged(root)
    yield box
    box.listener.close()
  finally:
    shutil.rmtree(root)
