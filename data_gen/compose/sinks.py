"""Deliverables: how a table is handed over, and what the checks then expect.

`code` writes `rows` to a path; `expected` is the record that `checker` judges
by. The request says the form so that there is one right answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from data_gen.compose.table import Table

_OPEN = 'import os\nos.makedirs("{folder}", exist_ok=True)\n'


@dataclass(frozen=True)
class Sink:
  """A kind of deliverable; see the module's docstring.

  Attributes:
    said: how the request names it, with {path} and {columns}.
    fits: whether a table can be handed over so.
  """

  name: str
  suffix: str
  atomic: str
  said: str
  code: str
  fits: Callable[[Table], bool] = lambda table: True

  def expected(self, path: str, table: Table, ordered: bool) -> dict[str, Any]:
    return {
        "kind": self.name,
        "path": path,
        "columns": table.names,
        "rows": table.cells(),
        "ordered": ordered,
    }


SINKS = {
    sink.name: sink
    for sink in (
        Sink(
            "csv", ".csv", "file writing",
            "as CSV with the header {columns} in {path}",
            _OPEN + 'import csv\n'
            'with open("{path}", "w", newline="") as file:\n'
            '  writer = csv.DictWriter(file, {names}, lineterminator="\\n")\n'
            '  writer.writeheader()\n'
            '  writer.writerows(rows)',
        ),
        Sink(
            "json", ".json", "file writing",
            "as a JSON list of objects with the keys {columns}, all values strings,"
            " in {path}",
            _OPEN + 'with open("{path}", "w") as file:\n  json.dump(rows, file, indent=1)',
        ),
        Sink(
            "json_map", ".json", "file writing",
            "as one JSON object from {first} to {second} (numbers, not strings)"
            " in {path}",
            _OPEN + 'with open("{path}", "w") as file:\n'
            '  json.dump({{r["{first}"]: float(r["{second}"]) for r in rows}}, file)',
            fits=lambda t: len(t.columns) == 2 and t.columns[1].type in ("money", "integer"),
        ),
        Sink(
            "markdown", ".md", "report writing",
            "as a Markdown table with the columns {columns} in {path}",
            _OPEN + 'names = {names}\n'
            'lines = [names, ["---"] * len(names), *([r[n] for n in names] for r in rows)]\n'
            'with open("{path}", "w") as file:\n'
            '  for line in lines:\n'
            '    print("| " + " | ".join(line) + " |", file=file)',
        ),
    )
}  # fmt: skip
