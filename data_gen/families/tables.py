"""CSV tables: totals with the workspace's own helper, columns, rows."""

from __future__ import annotations

from data_gen.draft import Draft, exec_call, family, number, table, text
from data_gen.world import World

TOTAL_PY = '''"""Adds up one column of a CSV file: total.py FILE COLUMN"""
import csv
import sys

path, column = sys.argv[1:3]
with open(path, newline="") as file:
  print(f"{sum(float(row[column]) for row in csv.DictReader(file)):.2f}")
'''
_ANALYSIS = {
    "category": "analysis and decision support",
    "macro": "Analysis & Reasoning",
}


def ledger(world: World, column: str, rows: int) -> tuple[list[list[str]], str]:
  """Rows [date, client, `column`] and the exact total of `column`."""
  lines = [
      [world.date().isoformat(), client, world.amount(10, 900)]
      for client in world.words("client", rows)
  ]
  cents = sum(int(line[2].replace(".", "")) for line in lines)
  return lines, f"{cents // 100}.{cents % 100:02d}"


@family(
    **_ANALYSIS,
    operations="csv_analysis script_run file_write",
    calls=1,
    templates=(
        "Use tools/total.py FILE COLUMN to add up {column} in {source}; save the output"
        " to {result}.",
        "What is the total {column} in {source}? Run tools/total.py FILE COLUMN and put"
        " the answer in {result}.",
        "Sum the {column} column of {source} with tools/total.py FILE COLUMN, result in"
        " {result}.",
        "I need the {column} total of {source} in {result}; tools/total.py FILE COLUMN"
        " does the adding.",
        "Please total {column} over {source} into {result}. There's tools/total.py FILE"
        " COLUMN for that.",
        "{result} should hold the sum of {column} from {source}: run tools/total.py FILE"
        " COLUMN.",
    ),
    goal="Total one CSV column with tools/total.py FILE COLUMN and save the output.",
    bullets=(("file", "source"), ("column", "column"), ("output to", "result")),
    vocabulary="python3",
)
def csv_total(world: World) -> Draft:
  stem, other = world.words("stem", 2)
  column, second = world.words("amount", 2)
  folder = world.word("folder")
  source = f"{folder}/{stem}.csv"
  result = f"{world.word('target')}/{column}.txt"
  rows, total = ledger(world, column, world.rng.randint(4, 7))
  rows = [[*row, str(world.number(1, 60))] for row in rows]
  return Draft(
      facts={"source": source, "column": column, "result": result},
      workspace={
          source: table(["date", "client", column, second], rows),
          f"{folder}/{other}.csv": table(["date", "client", column], [rows[0][:3]]),
          "tools/total.py": TOTAL_PY,
          f"{result.split('/')[0]}/README.md": f"Totals for {world.project}.\n",
      },
      calls=[exec_call(f"python3 tools/total.py {source} {column} > {result}")],
      deliverables={"total": number(result, float(total))},
      final_message=f"Done, the total is in {result}.",
  )


@family(
    **_ANALYSIS,
    operations="csv_analysis file_write",
    calls=1,
    templates=(
        "Extract column {index} ({column}) of {source}, header included, to {result}.",
        "I only need column {index}, {column}, from {source}. Save it with its header as"
        " {result}.",
        "Cut {source} down to column {index} ({column}); keep the header; write it to"
        " {result}.",
        "Please copy column {index} ({column}) out of {source} into {result}, header"
        " line and all.",
        "{result} should contain just column {index} ({column}) of {source}, the header"
        " too.",
        "From {source}, take column number {index} ({column}) with its header and put it"
        " in {result}.",
    ),
    goal="Copy one CSV column, header included, to a file.",
    bullets=(
        ("table", "source"),
        ("column number", "index"),
        ("column name", "column"),
        ("save as", "result"),
    ),
    vocabulary="cut",
)
def csv_column(world: World) -> Draft:
  stem, other = world.words("stem", 2)
  columns = ["client", "city", *world.words("amount", 2)]
  world.rng.shuffle(columns)
  folder = world.word("folder")
  source = f"{folder}/{stem}.csv"
  rows = [
      [_cell(world, column) for column in columns]
      for _ in range(world.rng.randint(4, 6))
  ]
  index = world.rng.randint(1, 4)
  column = columns[index - 1]
  result = f"{world.word('target')}/{column}.txt"
  return Draft(
      facts={
          "source": source,
          "index": str(index),
          "column": column,
          "result": result,
      },
      workspace={
          source: table(columns, rows),
          f"{folder}/{other}.csv": table(columns, rows[:1]),
          f"{result.split('/')[0]}/README.md": f"Extracts for {world.project}.\n",
      },
      calls=[exec_call(f"cut -d, -f{index} {source} > {result}")],
      deliverables={
          "column": text(result, "\n".join([column, *(r[index - 1] for r in rows)]))
      },
      final_message=f"Done, the column is in {result}.",
  )


@family(
    **_ANALYSIS,
    operations="csv_analysis file_write",
    calls=1,
    templates=(
        "Save the rows of {source} whose status is {value} to {result}, without the"
        " header.",
        "Which rows of {source} are {value}? Put them, no header, in {result}.",
        "Filter {source} by status {value}; the matching rows go into {result}, no"
        " header line.",
        "I need all {value} rows from {source} in {result}. Skip the header.",
        "Please pull the {value} rows out of {source} into {result}, header not needed.",
        "{result} should list just the {value} rows of {source}, as they are, no header.",
    ),
    goal="Save the CSV rows with one status to a file, without the header.",
    bullets=(("table", "source"), ("status", "value"), ("rows go to", "result")),
    vocabulary="grep",
)
def csv_rows(world: World) -> Draft:
  stem, other = world.words("stem", 2)
  value, *rest = world.words("status", 3)
  folder = world.word("folder")
  source = f"{folder}/{stem}.csv"
  result = f"{world.word('target')}/{value}.csv"
  statuses = [value] * world.rng.randint(2, 4) + rest * world.rng.randint(1, 2)
  world.rng.shuffle(statuses)
  rows = [
      [str(world.number(1000, 9999)), client, status, world.amount(5, 700)]
      for client, status in zip(
          world.words("client", len(statuses)), statuses, strict=True
      )
  ]
  header = ["id", "client", "status", world.word("amount")]
  return Draft(
      facts={"source": source, "value": value, "result": result},
      workspace={
          source: table(header, rows),
          f"{folder}/{other}.csv": table(header, rows[:2]),
          f"{result.split('/')[0]}/README.md": f"Extracts for {world.project}.\n",
      },
      calls=[exec_call(f"grep {value} {source} > {result}")],
      deliverables={
          "rows": text(result, "\n".join(",".join(r) for r in rows if r[2] == value))
      },
      final_message=f"Done, the {value} rows are in {result}.",
  )


def _cell(world: World, column: str) -> str:
  if column == "client":
    return world.rng.choice(world.words("client", 1))
  if column == "city":
    return world.word("city")
  return world.amount(5, 800)
