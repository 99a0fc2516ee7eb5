"""The pool's tables in SQLite.

A group has `samples` samples; a sample has one attempt that counts and any
number of superseded ones, kept for the count of what was dropped and why.

  groups.state    open → ready → leased → done; dead if no sample was judged,
                  stale if its tokens were older than a consumer allows
  attempts.state  waiting → running → finished, or superseded by another
  attempts.spent  1 if the attempt used up one of the sample's max_attempts
"""

VERSION = 1

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE channels (channel TEXT PRIMARY KEY, closed INTEGER NOT NULL)
  WITHOUT ROWID;
CREATE TABLE groups (
  position INTEGER PRIMARY KEY,
  group_id TEXT NOT NULL UNIQUE,
  channel TEXT NOT NULL,
  task_dir TEXT NOT NULL,
  samples INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  state TEXT NOT NULL DEFAULT 'open',
  owner TEXT,
  expires REAL
);
CREATE INDEX groups_by_state ON groups (channel, state, position);
CREATE TABLE attempts (
  trajectory_id TEXT PRIMARY KEY,
  channel TEXT NOT NULL,
  position INTEGER NOT NULL,
  group_id TEXT NOT NULL,
  sample_index INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  state TEXT NOT NULL DEFAULT 'waiting',
  spent INTEGER NOT NULL DEFAULT 0,
  owner TEXT,
  expires REAL,
  token_hash TEXT,
  status TEXT,
  cause TEXT,
  tokens INTEGER NOT NULL DEFAULT 0,
  min_version INTEGER,
  record BLOB
) WITHOUT ROWID;
CREATE INDEX attempts_by_state ON attempts (channel, state, position, sample_index);
CREATE INDEX attempts_by_group ON attempts (group_id, state);
CREATE TABLE steps (
  trajectory_id TEXT NOT NULL,
  number INTEGER NOT NULL,
  step_id TEXT NOT NULL,
  tokens INTEGER NOT NULL,
  min_version INTEGER,
  record BLOB NOT NULL,
  PRIMARY KEY (trajectory_id, number),
  UNIQUE (trajectory_id, step_id)
);
"""
