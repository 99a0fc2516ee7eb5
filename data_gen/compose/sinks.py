"""Deliverables: how a table is handed over, and what the checks then expect.

`code` writes `rows` to a path; `expected` is the record that `checker` judges
by. The request says the form so that there is one right answer. A sink may
hand over a few of the columns only, which are its `view`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from data_gen.compose.setting import Setting
from data_gen.compose.table import Table

_OPEN = 'import os\nos.makedirs("{folder}", exist_ok=True)\n'
_FILE = _OPEN + 'with open("{path}", "w") as file:\n'
_NUMBERS = ("money", "integer")
_WORDS = ("id", "category", "text")


def _whole(table: Table) -> Table:
  return table


@dataclass(frozen=True)
class Sink:
  """A kind of deliverable; see the module's docstring.

  Attributes:
    said: how the request names it, in three or more wordings, with {path},
      {columns}, {first}, {second} and {stem}, the file's name without suffix.
    code: Python that writes `rows`, with these and {folder} and {names}.
    fits: whether the view of a table can be handed over so.
    view: the columns handed over, as a table.
    look: the command that shows it, with {path}; empty where `read` does.
  """

  name: str
  suffix: str
  atomic: str
  said: tuple[str, ...]
  code: str
  fits: Callable[[Table], bool] = lambda table: True
  view: Callable[[Table], Table] = _whole
  look: str = ""

  def takes(self, table: Table) -> bool:
    view = self.view(table)
    return bool(view.columns) and self.fits(view)

  def request(self, setting: Setting, path: str, table: Table) -> str:
    """What the instruction says of it, after "Save the result"."""
    return setting.rng.choice(self.said).format(**self._names(path, table))

  def writing(self, path: str, table: Table) -> str:
    """The Python that an agent writes it by."""
    return self.code.format(**self._names(path, table))

  def expected(self, path: str, table: Table, ordered: bool) -> dict[str, Any]:
    view = self.view(table)
    return {
        "kind": self.name,
        "path": path,
        "columns": view.names,
        "rows": view.cells(),
        "ordered": ordered,
    }

  def _names(self, path: str, table: Table) -> dict[str, Any]:
    names = self.view(table).names
    return {
        "path": path,
        "folder": path.rpartition("/")[0] or ".",
        "stem": PurePosixPath(path).name.partition(".")[0],
        "columns": ", ".join(names),
        "names": names,
        "first": names[0],
        "second": [*names, ""][1],
    }


def _columns(table: Table, chosen: list[str]) -> Table:
  at = [table.index(name) for name in chosen]
  return Table(
      tuple(table.columns[i] for i in at),
      tuple(tuple(row[i] for i in at) for row in table.rows),
  )


def _days(table: Table) -> Table:
  """What an event is called, and its day."""
  names, dates = table.of_type(*_WORDS), table.of_type("date")
  return _columns(table, [names[0], dates[0]] if names and dates else [])


def _two(table: Table) -> Table:
  return _columns(table, table.names[:2] if len(table.columns) > 1 else [])


def _map(table: Table) -> bool:
  return len(table.columns) == 2 and _keyed(table) and table.columns[1].type in _NUMBERS


def _keyed(table: Table) -> bool:
  """Whether the first column names each row."""
  keys = table.column(table.names[0])
  words = table.columns[0].type in _WORDS
  return words and len(table.columns) > 1 and len(set(keys)) == len(keys)


def _short(table: Table) -> bool:
  cells = [cell for row in table.cells() for cell in row]
  return _map(table) and len(table.rows) <= 12 and not any(
      ", " in cell or ": " in cell for cell in cells
  )


def _identifiers(table: Table) -> bool:
  return all(name.isidentifier() for name in table.names)


def _delimited(delimiter: str, opened: str = 'open("{path}", "w", newline="")') -> str:
  return (
      _OPEN + "import csv\n"
      f"with {opened} as file:\n"
      f'  writer = csv.DictWriter(file, {{names}}, delimiter="{delimiter}",'
      ' lineterminator="\\n")\n'
      "  writer.writeheader()\n"
      "  writer.writerows(rows)"
  )


_ESCAPED = (
    'escape = lambda v: v.replace("\\\\", "\\\\\\\\").replace(",", "\\\\,")'
    '.replace(";", "\\\\;")\n'
)

SINKS = {
    sink.name: sink
    for sink in (
        Sink(
            "csv", ".csv", "file writing",
            (
                "as CSV with the header {columns} in {path}",
                "to {path}, a CSV file whose header is {columns}",
                "in {path} as comma-separated values, first line {columns}",
            ),
            _delimited(","),
        ),
        Sink(
            "tsv", ".tsv", "file writing",
            (
                "as tab-separated values with the header {columns} (between tabs as"
                " well) in {path}",
                "to {path}, a TSV file with the columns {columns} and a header line",
                "in {path}, separated by tabs, with a first line that names the columns"
                " {columns}",
            ),
            _delimited("\\t"),
        ),
        Sink(
            "csv_semicolon", ".csv", "format conversion",
            (
                "as CSV with semicolons between the values, columns {columns} and a"
                " header, in {path}",
                "to {path} as the spreadsheet wants it: separated by ; with a header of"
                " the columns {columns}",
                "in {path}, a file of semicolon-separated values whose header has the"
                " columns {columns}",
            ),
            _delimited(";"),
        ),
        Sink(
            "csv_gz", ".csv.gz", "archiving",
            (
                "as CSV with the header {columns}, compressed with gzip, in {path}",
                "to {path}, a gzipped CSV file with the header {columns}",
                "in {path}: comma-separated, first line {columns}, packed by gzip",
            ),
            _delimited(",", 'gzip.open("{path}", "wt", newline="")').replace(
                "import csv\n", "import csv, gzip\n"
            ),
            look="gzip -dc {path}",
        ),
        Sink(
            "json", ".json", "file writing",
            (
                "as a JSON list of objects with the keys {columns}, all values strings,"
                " in {path}",
                "to {path} as JSON, a list with one object a row (keys {columns}, every"
                " value a string)",
                "in {path}, a JSON array of objects that have {columns}, with strings"
                " as values",
            ),
            _FILE + "  json.dump(rows, file, indent=1)",
        ),
        Sink(
            "jsonl", ".jsonl", "file writing",
            (
                "as JSON Lines, one object a row with the keys {columns}, all values"
                " strings, in {path}",
                "to {path}, one JSON object a line with {columns}, every value a"
                " string",
                "in {path} in JSONL form (keys {columns}, string values)",
            ),
            _FILE + '  file.writelines(json.dumps(r) + "\\n" for r in rows)',
        ),
        Sink(
            "json_map", ".json", "file writing",
            (
                "as one JSON object from {first} to {second} (numbers, not strings)"
                " in {path}",
                "to {path}, a JSON object whose keys are the {first} and whose values"
                " are the {second} as numbers",
                "in {path} as a single JSON object that maps each {first} to its"
                " {second}, a number",
            ),
            _FILE
            + '  json.dump({{r["{first}"]: float(r["{second}"]) for r in rows}}, file)',
            fits=_map,
        ),
        Sink(
            "json_columns", ".json", "format conversion",
            (
                "as one JSON object with a list of strings for each of the columns"
                " {columns} in {path}",
                "to {path} column by column: a JSON object with the keys {columns},"
                " each a list of all its values as strings",
                "in {path}, a JSON object of columns ({columns}), every one a list of"
                " strings in the order of the rows",
            ),
            _FILE + "  json.dump({{n: [r[n] for r in rows] for n in {names}}}, file)",
        ),
        Sink(
            "yaml", ".yaml", "format conversion",
            (
                "as a YAML list of mappings with the keys {columns}, all values in"
                " double quotes, in {path}",
                "to {path} in YAML, one list item a row with {columns}, values in"
                " double quotes",
                "in {path}, a YAML sequence whose items map {columns} to double-quoted"
                " values",
            ),
            _FILE
            + "  for r in rows:\n"
            "    for number, name in enumerate({names}):\n"
            '      print("  " if number else "- ", name, ": ", json.dumps(r[name]),'
            ' sep="", file=file)',
        ),
        Sink(
            "xml", ".xml", "format conversion",
            (
                "as XML in {path}: a root element records, in it a record for each row"
                " with the elements {columns}",
                "to {path}, an XML file whose records element holds a record a row,"
                " each with {columns} as elements",
                "in {path} as XML, records at the top, below it one record a row, below"
                " that {columns}",
            ),
            _OPEN + "import xml.etree.ElementTree as ET\n"
            'root = ET.Element("records")\n'
            "for r in rows:\n"
            '  record = ET.SubElement(root, "record")\n'
            "  for name in {names}:\n"
            "    ET.SubElement(record, name).text = r[name]\n"
            "ET.indent(root)\n"
            'ET.ElementTree(root).write("{path}", encoding="utf-8")',
            fits=_identifiers,
        ),
        Sink(
            "html", ".html", "report writing",
            (
                "as an HTML page with one table, header cells {columns}, in {path}",
                "to {path}, a web page that has a table with the columns {columns} (th"
                " cells in its first row)",
                "in {path} as an HTML table whose first row has {columns} as th and"
                " whose other rows are td",
            ),
            _FILE.replace("import os\n", "import html, os\n")
            + '  print("<html><body><table>", file=file)\n'
            '  print("<tr>" + "".join(f"<th>{{n}}</th>" for n in {names}) + "</tr>",'
            " file=file)\n"
            "  for r in rows:\n"
            '    cells = "".join(f"<td>{{html.escape(r[n])}}</td>" for n in {names})\n'
            '    print("<tr>" + cells + "</tr>", file=file)\n'
            '  print("</table></body></html>", file=file)',
        ),
        Sink(
            "markdown", ".md", "report writing",
            (
                "as a Markdown table with the columns {columns}, nothing beside it, in"
                " {path}",
                "to {path}, which is to hold a table in Markdown and nothing else:"
                " {columns}",
                "in {path} as just a Markdown table with {columns} at the top",
            ),
            _OPEN + "names = {names}\n"
            'lines = [names, ["---"] * len(names), *([r[n] for n in names] for r in'
            ' rows)]\nwith open("{path}", "w") as file:\n'
            "  for line in lines:\n"
            '    print("| " + " | ".join(line) + " |", file=file)',
            fits=lambda t: not any("|" in c for row in t.cells() for c in row),
        ),
        Sink(
            "report", ".md", "report writing",
            (
                "as a short report in {path}: the heading \"# {stem}\", a line \"-"
                " {first}: {second}\" for each row with its values, and at the end"
                " \"Total: \" with the sum of {second}",
                "to {path} in Markdown, headed \"# {stem}\", then for each row its"
                " {first} and {second} in the form \"- {first}: {second}\", and a last"
                " line \"Total: \" and all {second} added up",
                "in {path}, a Markdown report with the title \"# {stem}\", one bullet"
                " \"- {first}: {second}\" a row (the values, of course), and the sum of"
                " {second} after \"Total: \" in the last line",
            ),
            _FILE.replace("import os\n", "import os\nfrom decimal import Decimal\n")
            + '  print("# {stem}\\n", file=file)\n'
            "  for r in rows:\n"
            '    print(f\'- {{r["{first}"]}}: {{r["{second}"]}}\', file=file)\n'
            '  total = sum(Decimal(r["{second}"]) for r in rows)\n'
            '  print(f"\\nTotal: {{total}}", file=file)',
            fits=lambda t: _map(t) and _short(t),
        ),
        Sink(
            "sentence", ".txt", "report writing",
            (
                "as one line in {path}: for each row \"{first}: {second}\" with its"
                " values, joined by \", \", and a full stop at the end",
                "to {path} as a single sentence that goes through the rows as"
                " \"{first}: {second}\" (their values), with \", \" between them and a"
                " full stop",
                "in {path}, all in one line: the rows' values in the form \"{first}:"
                " {second}\", \", \" between two, \".\" at the end",
            ),
            _FILE
            + '  parts = [f\'{{r["{first}"]}}: {{r["{second}"]}}\' for r in rows]\n'
            '  print(", ".join(parts) + ".", file=file)',
            fits=_short,
        ),
        Sink(
            "sqlite", ".db", "database writing",
            (
                "in a new SQLite database {path}, table {stem}, columns {columns}, all"
                " of type text",
                "to the SQLite file {path}: a table {stem} with the text columns"
                " {columns}",
                "as the table {stem} of a SQLite database in {path}, with {columns} as"
                " text",
            ),
            _OPEN + "import sqlite3\n"
            "names = {names}\n"
            'db = sqlite3.connect("{path}")\n'
            "columns = \", \".join(f'\"{{n}}\" text' for n in names)\n"
            "db.execute(f'create table \"{stem}\" ({{columns}})')\n"
            'marks = ", ".join("?" * len(names))\n'
            "db.executemany(f'insert into \"{stem}\" values ({{marks}})',"
            " [[r[n] for n in names] for r in rows])\n"
            "db.commit()",
            look='python3 -c \'import sqlite3; db = sqlite3.connect("{path}");'
            ' print(*db.iterdump(), sep="\\n")\'',
        ),
        Sink(
            "sql", ".sql", "database writing",
            (
                "as SQL in {path}: CREATE TABLE {stem} with the text columns {columns},"
                " then one INSERT for each row",
                "to {path}, an SQL script that creates the table {stem} ({columns}, all"
                " text) and inserts the rows, a statement each",
                "in {path} as SQL statements for SQLite that create {stem} with"
                " {columns} as text and INSERT every row",
            ),
            _FILE
            + "  columns = \", \".join(f'\"{{n}}\" text' for n in {names})\n"
            "  print(f'create table \"{stem}\" ({{columns}});', file=file)\n"
            "  quote = lambda v: \"'\" + v.replace(\"'\", \"''\") + \"'\"\n"
            "  for r in rows:\n"
            '    values = ", ".join(quote(r[n]) for n in {names})\n'
            "    print(f'insert into \"{stem}\" values ({{values}});', file=file)",
        ),
        Sink(
            "ini", ".ini", "format conversion",
            (
                "as INI in {path}: a section for each {first}, in it the other columns"
                " as keys ({columns})",
                "to {path}, an INI file with one section a row, named by its {first},"
                " and the rest of {columns} as its keys",
                "in {path} in INI form, {first} as section, and below it what else"
                " there is of {columns}, key = value",
            ),
            _FILE
            + "  for r in rows:\n"
            '    print(f\'[{{r["{first}"]}}]\', file=file)\n'
            "    for name in {names}[1:]:\n"
            '      print(name, "=", r[name], file=file)',
            fits=lambda t: _keyed(t) and _identifiers(t) and len(t.columns) > 1,
        ),
        Sink(
            "ics", ".ics", "calendar keeping",
            (
                "as an iCalendar file {path} with one all-day event a row: SUMMARY is"
                " the {first}, DTSTART the {second}",
                "to {path} for the calendar (ICS), each row a whole-day event with"
                " {first} as SUMMARY and {second} as DTSTART",
                "in {path}, an .ics file in which every row is an all-day VEVENT on its"
                " {second}, with the {first} as SUMMARY",
            ),
            _FILE
            + "  "
            + _ESCAPED
            + '  print("BEGIN:VCALENDAR\\nVERSION:2.0", file=file)\n'
            '  print("PRODID:-//rows//EN", file=file)\n'
            "  for number, r in enumerate(rows, 1):\n"
            '    day = r["{second}"].replace("-", "")\n'
            '    print(f"BEGIN:VEVENT\\nUID:{{number}}\\nDTSTART;VALUE=DATE:{{day}}",'
            " file=file)\n"
            '    print("SUMMARY:" + escape(r["{first}"]) + "\\nEND:VEVENT",'
            ' file=file)\n  print("END:VCALENDAR", file=file)',
            view=_days,
        ),
        Sink(
            "vcard", ".vcf", "contact keeping",
            (
                "as vCards (version 4.0) in {path}, one a row: FN is the {first}, NOTE"
                " the {second}",
                "to {path}, a vCard 4.0 file with a card for each row, {first} as FN"
                " and {second} as NOTE",
                "in {path} for the address book: one vCard (4.0) a row with the"
                " {first} in FN and the {second} in NOTE",
            ),
            _FILE
            + "  "
            + _ESCAPED
            + "  for r in rows:\n"
            '    print("BEGIN:VCARD\\nVERSION:4.0", file=file)\n'
            '    print("FN:" + escape(r["{first}"]), file=file)\n'
            '    print("NOTE:" + escape(r["{second}"]) + "\\nEND:VCARD", file=file)',
            fits=_keyed,
            view=_two,
        ),
        Sink(
            "log", ".log", "format conversion",
            (
                "as log lines in {path}, one a row: key=\"value\" for each of"
                " {columns}, blanks between",
                "to {path} with a line a row, in it {columns} as key=\"value\","
                " separated by blanks",
                "in {path}, every row one line of key=\"value\" pairs ({columns}) with"
                " a blank between two",
            ),
            _FILE
            + "  for r in rows:\n"
            '    print(*(f"{{n}}={{json.dumps(r[n])}}" for n in {names}), file=file)',
            fits=_identifiers,
        ),
    )
}  # fmt: skip
