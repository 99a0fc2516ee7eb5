"""Producers append steps, trainers lease groups; each sample counts once.

What it promises, over any number of threads and processes on one machine:

* a call that returned survives kill -9 of every party (WAL, synchronous=FULL);
* a sample is finished by exactly one attempt: a claim that expired gets a new
  trajectory id, so what a dead or slow producer still sends is refused;
* an unscored or lost attempt is refilled, `max_attempts` in all; then the
  sample counts as unscored, and a group without a judged sample is dead;
* groups are leased in the order in which they become ready: a slow group
  never holds up the ones behind it;
* a group is consumed once: it is leased to one owner at a time, and returns
  only if its lease expires (or is released) before it is acknowledged.

It does not wait: a caller that finds nothing polls. Times are unix seconds.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from clawgym_jax.contracts import trajectory as records
from clawgym_jax.contracts.errors import UserError, require
from clawgym_jax.contracts.trajectory import Step, Trajectory
from clawgym_jax.pool import attempts
from clawgym_jax.pool.database import Database
from clawgym_jax.pool.records import Attempt, AttemptGone, Group, LeaseLost

_GROUP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]*")  # it is part of URLs


class Pool:
  """One open pool; safe to share between threads, not across a fork."""

  def __init__(self, path: Path) -> None:
    self._db = Database(path)

  @classmethod
  def open(cls, url: str) -> Pool:
    """Opens or creates the pool at `sqlite:///relative` or `sqlite:////absolute`."""
    if url.startswith(("postgresql://", "postgres://")):
      raise UserError(
          "a PostgreSQL pool is not supported yet: use --pool=sqlite:///FILE"
      )
    prefix = "sqlite:///"
    if not url.startswith(prefix) or url == prefix:
      raise UserError(f"{url!r} is not a pool: use sqlite:///FILE")
    return cls(Path(url[len(prefix) :]))

  def close(self) -> None:
    self._db.close()

  # Producers.

  def add_group(
      self,
      group_id: str,
      channel: str,
      task_dir: str | Path,
      samples: int,
      *,
      max_attempts: int = 3,
  ) -> bool:
    """Plans `samples` attempts at a task; False if the group is there already.

    Raises RecordError if it is there with another channel, task or size.
    """
    require(
        _GROUP_ID.fullmatch(group_id) is not None,
        f"group id {group_id!r} may hold letters, digits and . _ : @ + - only",
    )
    require(samples > 0, f"group {group_id}: samples must be positive")
    require(max_attempts > 0, f"group {group_id}: max_attempts must be positive")
    with self._db.transaction():
      found = self._db.one("SELECT * FROM groups WHERE group_id=?", group_id)
      if found:
        same = (channel, str(task_dir), samples)
        there = (found["channel"], found["task_dir"], found["samples"])
        require(
            same == there,
            f"group {group_id} is in the pool as {there}, not as {same}",
        )
        return False
      position = self._db.run(
          "INSERT INTO groups (group_id, channel, task_dir, samples, max_attempts)"
          " VALUES (?, ?, ?, ?, ?)",
          group_id, channel, str(task_dir), samples, max_attempts,
      ).lastrowid  # fmt: skip
      for sample in range(samples):
        attempts.add(self._db, channel, position, group_id, sample, 0)
    return True

  def claim(self, channel: str, owner: str, lease_seconds: float) -> Attempt | None:
    """The next attempt to make, or None if there is none just now."""
    now = time.time()
    with self._db.transaction():
      attempts.expire(self._db, channel, now)
      row = self._db.one(
          "SELECT a.*, g.task_dir FROM attempts a JOIN groups g USING (group_id)"
          " WHERE a.channel=? AND a.state='waiting'"
          " ORDER BY a.position, a.sample_index LIMIT 1",
          channel,
      )
      if row is None:
        return None
      self._db.run(
          "UPDATE attempts SET state='running', owner=?, expires=?"
          " WHERE trajectory_id=?",
          owner, now + lease_seconds, row["trajectory_id"],
      )  # fmt: skip
    return Attempt(
        row["trajectory_id"],
        row["group_id"],
        row["task_dir"],
        row["sample_index"],
        row["attempt"],
    )

  def renew(self, trajectory_id: str, owner: str, lease_seconds: float) -> None:
    """Extends a claim. Raises AttemptGone if the owner no longer holds it."""
    with self._db.transaction():
      done = self._db.run(
          "UPDATE attempts SET expires=?"
          " WHERE trajectory_id=? AND owner=? AND state='running'",
          time.time() + lease_seconds, trajectory_id, owner,
      )  # fmt: skip
      if not done.rowcount:
        raise AttemptGone(f"{owner} does not hold the attempt {trajectory_id}")

  def append_step(self, trajectory_id: str, step: Step) -> None:
    """Stores a step of a running attempt; the same step again is no change.

    Raises AttemptGone if the attempt is not running, RecordError if the step's
    parent is unknown or another step has its id.
    """
    with self._db.transaction():
      attempts.check_running(self._db, trajectory_id)
      attempts.store_step(self._db, trajectory_id, step)

  def complete(self, trajectory: Trajectory) -> bool:
    """Finishes a running attempt; False if it was finished or lost before.

    The steps of record are those in the pool; steps that `trajectory` carries
    beyond them are appended. An unscored attempt is refilled within bounds.
    """
    with self._db.transaction():
      row = self._db.one(
          "SELECT * FROM attempts WHERE trajectory_id=?", trajectory.id
      )
      require(row is not None, f"the pool has no attempt {trajectory.id}")
      for name in ("group_id", "sample_index", "attempt"):
        require(
            row[name] == getattr(trajectory, name),
            f"attempt {trajectory.id} has {name} {row[name]!r},"
            f" the trajectory {getattr(trajectory, name)!r}",
        )
      if row["state"] != "running":
        return False
      for step in trajectory.steps:
        attempts.store_step(self._db, trajectory.id, step)
      attempts.finish(self._db, row, trajectory)
    return True

  def release(self, owner: str) -> int:
    """Gives back all attempts and groups that `owner` holds; returns how many.

    For a program that stops or starts again under the same name: its attempts
    begin anew without using up one of the sample's `max_attempts`. A trainer
    acknowledges what its checkpoint holds before it releases the rest.
    """
    with self._db.transaction():
      held = self._db.all(
          "SELECT * FROM attempts WHERE owner=? AND state='running'", owner
      )
      for row in held:
        attempts.give_back(self._db, row)
      groups = self._db.run(
          "UPDATE groups SET state='ready', owner=NULL, expires=NULL"
          " WHERE owner=? AND state='leased'",
          owner,
      )
    return len(held) + groups.rowcount

  # Consumers.

  def lease_groups(
      self,
      channel: str,
      count: int,
      owner: str,
      lease_seconds: float,
      *,
      min_policy_version: int = 0,
  ) -> list[Group]:
    """Up to `count` finished groups, leased to `owner` until acknowledged.

    A group with a token sampled by a policy older than `min_policy_version`
    is marked stale instead and counted; however long it waited, no such token
    is handed out.
    """
    now = time.time()
    leased = []
    with self._db.transaction():
      attempts.expire(self._db, channel, now)
      rows = self._db.all(
          "SELECT * FROM groups WHERE channel=? AND (state='ready' OR"
          " (state='leased' AND expires<?)) ORDER BY position",
          channel, now,
      )  # fmt: skip
      for row in rows:
        if len(leased) == count:
          break
        oldest = self._db.one(
            "SELECT min(min_version) FROM attempts"
            " WHERE group_id=? AND state='finished' AND status<>'unscored'",
            row["group_id"],
        )[0]
        if oldest is not None and oldest < min_policy_version:
          self._db.run(
              "UPDATE groups SET state='stale' WHERE group_id=?", row["group_id"]
          )
          continue
        self._db.run(
            "UPDATE groups SET state='leased', owner=?, expires=? WHERE group_id=?",
            owner, now + lease_seconds, row["group_id"],
        )  # fmt: skip
        leased.append(row)
    return [self._group(row) for row in leased]

  def ack(self, group_ids: list[str], owner: str) -> None:
    """Marks groups as consumed, all or none; again is no change.

    A lease that expired still counts while nobody else took the group, so a
    trainer that resumes acknowledges what its checkpoint holds. Raises
    LeaseLost otherwise.
    """
    with self._db.transaction():
      for group_id in group_ids:
        done = self._db.run(
            "UPDATE groups SET state='done', expires=NULL"
            " WHERE group_id=? AND owner=? AND state IN ('leased', 'done')",
            group_id, owner,
        )  # fmt: skip
        if not done.rowcount:
          raise LeaseLost(f"{owner} does not hold the group {group_id}")

  # Both.

  def policy_version(self) -> int:
    """The version of the weights that producers should be sampling from."""
    row = self._db.read("SELECT value FROM meta WHERE key='policy_version'")
    return int(row[0]["value"]) if row else 0

  def set_policy_version(self, version: int) -> None:
    with self._db.transaction():
      self._db.run(
          "INSERT OR REPLACE INTO meta VALUES ('policy_version', ?)", str(version)
      )

  def close_channel(self, channel: str) -> None:
    """Tells producers that no more groups come: they end once it is drained."""
    with self._db.transaction():
      self._db.run("INSERT OR REPLACE INTO channels VALUES (?, 1)", channel)

  def closed(self, channel: str) -> bool:
    row = self._db.read("SELECT closed FROM channels WHERE channel=?", channel)
    return bool(row and row[0]["closed"])

  def pending(self, channel: str) -> int:
    """How many samples are not finished yet."""
    return self._db.read(
        "SELECT count(*) FROM attempts"
        " WHERE channel=? AND state IN ('waiting', 'running')",
        channel,
    )[0][0]

  def counts(self, channel: str) -> dict[str, int]:
    """What was planned and what became of it.

    Groups by state; `samples` planned, and of them waiting, running, scored,
    truncated, unscored; `refilled` attempts beyond the first of a sample;
    `sampled_tokens` in all and `dropped_tokens` of attempts that don't count.
    """
    counts = dict.fromkeys(
        ("groups", "open", "ready", "leased", "done", "dead", "stale", "samples",
         "waiting", "running", "scored", "truncated", "unscored", "refilled",
         "sampled_tokens", "dropped_tokens"), 0,
    )  # fmt: skip
    for row in self._db.read(
        "SELECT state, count(*) AS n, sum(samples) AS samples FROM groups"
        " WHERE channel=? GROUP BY state",
        channel,
    ):
      counts["groups"] += row["n"]
      counts[row["state"]] += row["n"]
      counts["samples"] += row["samples"]
    for row in self._db.read(
        "SELECT state, status, count(*) AS n, sum(tokens) AS tokens FROM attempts"
        " WHERE channel=? GROUP BY state, status",
        channel,
    ):
      counts["sampled_tokens"] += row["tokens"]
      if row["state"] == "superseded":
        counts["refilled"] += row["n"]
      else:
        counts[row["status"] or row["state"]] += row["n"]
      if row["state"] == "superseded" or row["status"] == "unscored":
        counts["dropped_tokens"] += row["tokens"]
    return counts

  def dropped(self, channel: str) -> dict[str, int]:
    """Attempts that don't count, by cause: unscored, lost or released."""
    return {
        row["cause"]: row["n"]
        for row in self._db.read(
            "SELECT cause, count(*) AS n FROM attempts WHERE channel=?"
            " AND (state='superseded' OR status='unscored') GROUP BY cause",
            channel,
        )
    }

  def finished(self, channel: str) -> list[str]:
    """Ids of the finished trajectories, one a sample, in the order of planning."""
    rows = self._db.read(
        "SELECT trajectory_id FROM attempts WHERE channel=? AND state='finished'"
        " ORDER BY position, sample_index",
        channel,
    )
    return [row["trajectory_id"] for row in rows]

  def trajectory(self, trajectory_id: str) -> Trajectory:
    """A finished trajectory with its steps."""
    (row,) = self._db.read(
        "SELECT record FROM attempts WHERE trajectory_id=?", trajectory_id
    )
    steps = self._db.read(
        "SELECT record FROM steps WHERE trajectory_id=? ORDER BY number",
        trajectory_id,
    )
    record = attempts.unpack(row["record"])
    record["steps"] = [attempts.unpack(step["record"]) for step in steps]
    return records.trajectory_from_record(record)

  def trajectories(self, channel: str) -> Iterator[Trajectory]:
    """Those of `finished`, read one after the other."""
    return map(self.trajectory, self.finished(channel))

  def steps(self, trajectory_id: str) -> list[Step]:
    """The steps stored so far, in the order in which they were appended."""
    rows = self._db.read(
        "SELECT record FROM steps WHERE trajectory_id=? ORDER BY number",
        trajectory_id,
    )
    return [Step(**attempts.unpack(row["record"])) for row in rows]

  def register(self, trajectory_id: str, token: str) -> None:
    """Lets whoever knows `token` record steps; only its hash is stored.

    Raises AttemptGone unless the attempt is running.
    """
    with self._db.transaction():
      attempts.check_running(self._db, trajectory_id)
      self._db.run(
          "UPDATE attempts SET token_hash=? WHERE trajectory_id=?",
          hash_token(token), trajectory_id,
      )  # fmt: skip

  def registration(self, trajectory_id: str) -> str | None:
    """The hash of a running attempt's token, or None."""
    rows = self._db.read(
        "SELECT token_hash FROM attempts WHERE trajectory_id=? AND state='running'",
        trajectory_id,
    )
    return rows[0]["token_hash"] if rows else None

  # Reading and writing.

  def _group(self, row: sqlite3.Row) -> Group:
    ids = self._db.read(
        "SELECT trajectory_id FROM attempts WHERE group_id=? AND state='finished'"
        " AND status<>'unscored' ORDER BY sample_index",
        row["group_id"],
    )
    trajectories = [self.trajectory(found["trajectory_id"]) for found in ids]
    return Group(
        row["group_id"],
        row["task_dir"],
        trajectories,
        row["samples"] - len(trajectories),
    )


def hash_token(token: str) -> str:
  """What the pool stores of a session's token."""
  return hashlib.sha256(token.encode()).hexdigest()
