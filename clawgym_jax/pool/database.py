"""A pool file: one connection that writes in transactions, one that only reads.

Readers never wait for a writer's disk, so a server may read in its event loop.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.pool import schema

_BUSY_SECONDS = 60.0


class Database:
  """A pool file in WAL mode; safe to share between threads, not across a fork."""

  def __init__(self, path: Path) -> None:
    self._lock = threading.RLock()
    self._read_lock = threading.Lock()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
      self._connection = _connect(path)
      self._to_wal()
      self._connection.execute("PRAGMA synchronous=FULL")
    except sqlite3.Error as error:
      raise UserError(f"can't open the pool {path}: {error}") from None
    with self.transaction():
      version = self.one("PRAGMA user_version")[0]
      if version == 0:
        for statement in schema.TABLES.split(";"):
          self.run(statement)
        self.run(f"PRAGMA user_version={schema.VERSION}")
      elif version != schema.VERSION:
        raise UserError(
            f"the pool {path} has format {version}, this program reads"
            f" {schema.VERSION}: use another file"
        )
    self._reader = _connect(path)
    self._reader.execute("PRAGMA query_only=ON")

  def _to_wal(self) -> None:
    """SQLite doesn't wait for this lock by itself: two programs may open at once."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
      try:
        self._connection.execute("PRAGMA journal_mode=WAL")
        return
      except sqlite3.OperationalError:
        if time.monotonic() > deadline:
          raise
        time.sleep(0.02)

  def close(self) -> None:
    with self._lock, self._read_lock:
      self._reader.close()
      self._connection.close()

  @contextlib.contextmanager
  def transaction(self) -> Iterator[None]:
    """Everything inside is on the disk at its end, or nothing of it."""
    with self._lock:
      try:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
          yield
          self._connection.execute("COMMIT")
        except BaseException:
          if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
          raise
      except sqlite3.OperationalError as error:
        raise UserError(
            f"the pool can't be written: {error}; free space, or stop what holds"
            " it, and run the same command again"
        ) from error

  def run(self, statement: str, *values: Any) -> sqlite3.Cursor:
    """Executes one statement; inside `transaction` only."""
    return self._connection.execute(statement, values)

  def one(self, statement: str, *values: Any) -> sqlite3.Row | None:
    """The first row; inside `transaction` only."""
    return self._connection.execute(statement, values).fetchone()

  def all(self, statement: str, *values: Any) -> list[sqlite3.Row]:
    """All rows; inside `transaction` only."""
    return self._connection.execute(statement, values).fetchall()

  def read(self, statement: str, *values: Any) -> list[sqlite3.Row]:
    """All rows as of the last commit; outside of transactions."""
    with self._read_lock:
      return self._reader.execute(statement, values).fetchall()


def _connect(path: Path) -> sqlite3.Connection:
  connection = sqlite3.connect(
      path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
  )
  connection.row_factory = sqlite3.Row
  return connection
