"""SQLite: ask and change a small database with the workspace's own helper."""

from __future__ import annotations

import sqlite3

from data_gen.draft import Draft, exec_call, family, number
from data_gen.world import World

QUERY_PY = '''"""Runs one SQL statement and prints the rows: query.py DATABASE SQL"""
import sqlite3
import sys

with sqlite3.connect(sys.argv[1]) as database:
  for row in database.execute(sys.argv[2]):
    print(*row)
'''
_SQLITE_VERSION = (3_040_000).to_bytes(4, "big")


def _database(table: str, columns: list[str], rows: list[list[object]]) -> bytes:
  """A database file whose bytes do not depend on the SQLite that wrote it."""
  connection = sqlite3.connect(":memory:")
  kinds = ["integer primary key", *["integer"] * (len(columns) - 1)]
  spec = ", ".join(f"{c} {k}" for c, k in zip(columns, kinds, strict=True))
  marks = ", ".join("?" * len(columns))
  with connection:
    connection.execute(f"create table {table} ({spec})")
    connection.executemany(f"insert into {table} values ({marks})", rows)
  raw = connection.serialize()
  connection.close()
  return raw[:96] + _SQLITE_VERSION + raw[100:]


def _rows(world: World, count: int) -> list[list[int]]:
  """Rows [id, client number, value] for about half as many clients."""
  clients = [world.number(100, 999) for _ in range(count // 2)]
  return [
      [world.number(10, 99), clients[i % len(clients)], world.number(5, 500)]
      for i in range(count)
  ]


@family(
    category="analysis and decision support",
    macro="Analysis & Reasoning",
    operations="database_query script_run file_write",
    calls=1,
    templates=(
        "With tools/query.py {base} SQL: get the sum of {column} in table {table} where"
        " client = {value}; save the output as {result}.",
        "Run tools/query.py {base} SQL for the sum of {column} from {table} where client"
        " = {value}. Output to {result}.",
        "I need the sum of {column} for client = {value} from the table {table}, in {result}."
        " Use tools/query.py {base} SQL.",
        "Please use tools/query.py {base} SQL to sum {column} over {table} rows with"
        " client = {value}, into {result}.",
        "{result} should hold the sum of {column} in {table} where client = {value};"
        " tools/query.py {base} SQL can ask for it.",
        "What's the sum of {column} where client = {value} in {table}? Ask with"
        " tools/query.py {base} SQL and save it to {result}.",
    ),
    goal="Query the sum of a column for one client with tools/query.py DATABASE SQL.",
    bullets=(
        ("database", "base"),
        ("table", "table"),
        ("sum of", "column"),
        ("where", "where"),
        ("output to", "result"),
    ),
    vocabulary="python3 select sum from where",
)
def database_sum(world: World) -> Draft:
  table, column = world.word("stem"), world.word("amount")
  base = f"{world.word('folder')}/{world.word('topic')}.db"
  rows = sorted(_rows(world, world.rng.randint(6, 9)))
  client = world.rng.choice(rows)[1]
  result = f"{world.word('target')}/{column}.txt"
  total = sum(row[2] for row in rows if row[1] == client)
  sql = f"select sum({column}) from {table} where client = {client}"
  return Draft(
      facts={
          "base": base,
          "table": table,
          "column": column,
          "value": str(client),
          "where": f"client = {client}",
          "result": result,
      },
      workspace={
          base: _database(table, ["id", "client", column], rows),
          "tools/query.py": QUERY_PY,
          f"{result.split('/')[0]}/README.md": f"Answers for {world.project}.\n",
      },
      calls=[exec_call(f"python3 tools/query.py {base} '{sql}' > {result}")],
      deliverables={"sum": number(result, total)},
      final_message=f"Done, the sum is in {result}.",
  )


@family(
    category="professional domain support",
    macro="Content & Domain",
    operations="database_update script_run",
    calls=1,
    templates=(
        "Use tools/query.py {base} SQL to update {table}: set {column} = {value} where id"
        " = {row}.",
        "In the table {table}, set {column} = {value} where id = {row}. Run"
        " tools/query.py {base} SQL.",
        "Please correct a row of {table} with tools/query.py {base} SQL: {column} ="
        " {value} where id = {row}.",
        "The row with id = {row} in {table} is wrong, {column} = {value} is right."
        " tools/query.py {base} SQL fixes it.",
        "With tools/query.py {base} SQL, update the {table} table so {column} = {value}"
        " where id = {row}.",
        "Row id = {row} of table {table} needs {column} = {value}; update it through"
        " tools/query.py {base} SQL.",
    ),
    goal="Update one row with tools/query.py DATABASE SQL.",
    bullets=(
        ("database", "base"),
        ("table", "table"),
        ("set", "set"),
        ("where", "where"),
    ),
    vocabulary="python3 update set where",
)
def database_update(world: World) -> Draft:
  table, column = world.word("stem"), world.word("amount")
  base = f"{world.word('folder')}/{world.word('topic')}.db"
  rows = sorted(_rows(world, world.rng.randint(5, 8)))
  row = world.rng.choice(rows)[0]
  new = world.number(5, 500)
  sql = f"update {table} set {column} = {new} where id = {row}"
  return Draft(
      facts={
          "base": base,
          "table": table,
          "column": column,
          "value": str(new),
          "row": str(row),
          "set": f"{column} = {new}",
          "where": f"id = {row}",
      },
      workspace={
          base: _database(table, ["id", "client", column], rows),
          "tools/query.py": QUERY_PY,
      },
      calls=[exec_call(f"python3 tools/query.py {base} '{sql}'")],
      deliverables={
          "rows": {
              "kind": "database",
              "path": base,
              "table": table,
              "rows": [[r[0], r[1], new if r[0] == row else r[2]] for r in rows],
          }
      },
      changed=frozenset({base}),
      final_message=f"Done, {column} is {new} for id {row}.",
  )
