"""How an attempt moves on. Every function here runs inside a transaction.

An attempt that ends unscored, or whose producer is gone, uses up one of its
sample's `max_attempts` and is replaced by a new one while any are left. The
last one stays as it is: the sample counts as unscored. So does the first of a
sample whose cause no other attempt can change.
"""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts import trajectory as records
from clawgym_jax.contracts.errors import require
from clawgym_jax.contracts.trajectory import Step, Trajectory
from clawgym_jax.pool.database import Database
from clawgym_jax.pool.records import AttemptGone

# Kinds of causes that lie in the task or in what the harness has: see sandbox.fleet.
_LASTING = frozenset({"requires", "network", "bad_task"})
_TOKENS = "(SELECT coalesce(sum(tokens), 0) FROM steps WHERE trajectory_id=?)"


def add(
    db: Database, channel: str, position: int, group_id: str, sample: int, attempt: int
) -> None:
  """Plans an attempt; its trajectory id is its own for ever."""
  db.run(
      "INSERT INTO attempts"
      " (trajectory_id, channel, position, group_id, sample_index, attempt)"
      " VALUES (?, ?, ?, ?, ?, ?)",
      f"{group_id}.{sample}.{attempt}",
      channel, position, group_id, sample, attempt,
  )  # fmt: skip


def check_running(db: Database, trajectory_id: str) -> None:
  """Raises AttemptGone unless the attempt is running."""
  row = db.one("SELECT state FROM attempts WHERE trajectory_id=?", trajectory_id)
  if row is None or row["state"] != "running":
    raise AttemptGone(
        f"the attempt {trajectory_id} is"
        f" {row['state'] if row else 'not in the pool'}"
    )


def store_step(db: Database, trajectory_id: str, step: Step) -> None:
  """Appends a step; the same step again is no change."""
  record = pack(records.to_record(step))
  known = "SELECT record FROM steps WHERE trajectory_id=? AND step_id=?"
  found = db.one(known, trajectory_id, step.step_id)
  if found:
    require(
        found["record"] == record, f"{trajectory_id} has another step {step.step_id}"
    )
    return
  require(
      step.parent_id is None
      or db.one(known, trajectory_id, step.parent_id) is not None,
      f"{trajectory_id}: step {step.step_id} has an unknown parent {step.parent_id}",
  )
  db.run(
      "INSERT INTO steps (trajectory_id, number, step_id, tokens, min_version,"
      " record) SELECT ?, count(*), ?, ?, ?, ? FROM steps WHERE trajectory_id=?",
      trajectory_id,
      step.step_id,
      len(step.response_ids or ()),
      min(step.policy_versions or (), default=None),
      record,
      trajectory_id,
  )


def finish(db: Database, row: sqlite3.Row, trajectory: Trajectory) -> None:
  """Ends a running attempt, and its group if it was the last one."""
  outcome = trajectory.outcome
  record = records.to_record(trajectory)
  record.pop("steps")
  passing = outcome.status == "unscored" and _kind(outcome.cause) not in _LASTING
  refilled = passing and _refill(db, row)
  db.run(
      "UPDATE attempts SET state=?, spent=1, owner=NULL, expires=NULL,"
      f" token_hash=NULL, status=?, cause=?, record=?, tokens={_TOKENS},"
      " min_version=(SELECT min(min_version) FROM steps WHERE trajectory_id=?)"
      " WHERE trajectory_id=?",
      "superseded" if refilled else "finished",
      outcome.status, outcome.cause, pack(record),
      trajectory.id, trajectory.id, trajectory.id,
  )  # fmt: skip
  states = db.one(
      "SELECT sum(state IN ('waiting', 'running')) AS pending,"
      " sum(state='finished' AND status<>'unscored') AS judged"
      " FROM attempts WHERE group_id=?",
      row["group_id"],
  )
  if not states["pending"]:
    db.run(
        "UPDATE groups SET state=? WHERE group_id=?",
        "ready" if states["judged"] else "dead", row["group_id"],
    )  # fmt: skip


def expire(db: Database, channel: str, now: float) -> None:
  """Ends the attempts whose producer let its lease run out."""
  for row in db.all(
      "SELECT a.*, g.task_dir FROM attempts a JOIN groups g USING (group_id)"
      " WHERE a.channel=? AND a.state='running' AND a.expires<?",
      channel, now,
  ):  # fmt: skip
    if _refill(db, row):
      _discard(db, row, "lease expired", spent=True)
    else:
      finish(db, row, _lost(row))


def give_back(db: Database, row: sqlite3.Row) -> None:
  """Begins a running attempt anew at no cost to its sample."""
  _discard(db, row, "released", spent=False)
  _again(db, row)


def _refill(db: Database, row: sqlite3.Row) -> bool:
  """Plans another attempt in place of a running one, if its sample has any left."""
  spent = db.one(
      "SELECT sum(spent) FROM attempts WHERE group_id=? AND sample_index=?",
      row["group_id"], row["sample_index"],
  )[0]  # fmt: skip
  allowed = db.one(
      "SELECT max_attempts FROM groups WHERE group_id=?", row["group_id"]
  )[0]
  if spent + 1 >= allowed:
    return False
  _again(db, row)
  return True


def _again(db: Database, row: sqlite3.Row) -> None:
  add(
      db, row["channel"], row["position"], row["group_id"], row["sample_index"],
      row["attempt"] + 1,
  )  # fmt: skip


def _kind(cause: str | None) -> str:
  return (cause or "").partition(":")[0]


def _discard(db: Database, row: sqlite3.Row, cause: str, *, spent: bool) -> None:
  """Drops an attempt and its steps; how many tokens they had stays known."""
  name = row["trajectory_id"]
  db.run(
      "UPDATE attempts SET state='superseded', spent=?, cause=?, owner=NULL,"
      f" token_hash=NULL, tokens={_TOKENS} WHERE trajectory_id=?",
      int(spent), cause, name, name,
  )  # fmt: skip
  db.run("DELETE FROM steps WHERE trajectory_id=?", name)


def _lost(row: sqlite3.Row) -> Trajectory:
  """Stands for a sample whose last producer died."""
  return Trajectory(
      id=row["trajectory_id"],
      task_id=Path(row["task_dir"]).name,
      group_id=row["group_id"],
      sample_index=row["sample_index"],
      attempt=row["attempt"],
      harness="",
      steps=[],
      outcome=records.unscored("lease expired"),
  )


def pack(record: dict[str, Any]) -> bytes:
  """A record as the pool stores it."""
  return zlib.compress(json_text.dump(record).encode(), 1)


def unpack(data: bytes) -> dict[str, Any]:
  """Undoes `pack`."""
  return json_text.parse(zlib.decompress(data))
