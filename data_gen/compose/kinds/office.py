"""Kinds of an office: spreadsheet, document, printed page.

The smallest packages that the usual programs open: ECMA-376 parts in a ZIP,
PDF 1.4 with one of the fonts that every reader has.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

from data_gen.compose.kinds.kind import Kind, encodable, one_file
from data_gen.compose.table import Table
from data_gen.packing import zipped

_SCHEMAS = "http://schemas.openxmlformats.org"
_LINKS = f"{_SCHEMAS}/officeDocument/2006/relationships"
_OFFICE = "application/vnd.openxmlformats-officedocument"
_LINES_A_PAGE = 40


def _package(parts: dict[str, tuple[str, str]], links: dict[str, str]) -> bytes:
  """An Office package.

  Args:
    parts: path -> (content type, XML); the first part is the document.
    links: paths that the document links to -> relationship type.
  """
  document = next(iter(parts))
  folder, name = document.split("/")

  def linked(targets: dict[str, str]) -> str:
    entries = "".join(
        f'<Relationship Id="rId{number}" Target="{target}"'
        f' Type="{_LINKS}/{kind}"/>'
        for number, (target, kind) in enumerate(targets.items(), 1)
    )
    space = f"{_SCHEMAS}/package/2006/relationships"
    return f'<Relationships xmlns="{space}">{entries}</Relationships>'

  types = "".join(
      f'<Override PartName="/{path}" ContentType="{_OFFICE}.{kind}+xml"/>'
      for path, (kind, _) in parts.items()
  )
  members = {
      "[Content_Types].xml": (
          f'<Types xmlns="{_SCHEMAS}/package/2006/content-types">'
          '<Default Extension="rels" ContentType='
          '"application/vnd.openxmlformats-package.relationships+xml"/>'
          f"{types}</Types>"
      ),
      "_rels/.rels": linked({document: "officeDocument"}),
      f"{folder}/_rels/{name}.rels": linked(links),
      **{path: xml for path, (_, xml) in parts.items()},
  }
  head = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
  return zipped({path: (head + xml).encode() for path, xml in members.items()})


def _xlsx(table: Table, name: str) -> bytes:
  numbers = [column.type in ("integer", "money") for column in table.columns]

  def line(cells: list[str], plain: list[bool]) -> str:
    return "<row>" + "".join(
        f"<c><v>{text}</v></c>"
        if number and text
        else '<c t="inlineStr"><is><t xml:space="preserve">'
        f"{escape(text)}</t></is></c>"
        for text, number in zip(cells, plain)
    ) + "</row>"  # fmt: skip

  rows = [line(table.names, [False] * len(numbers))]
  rows += [line(cells, numbers) for cells in table.cells()]
  space = f'xmlns="{_SCHEMAS}/spreadsheetml/2006/main"'
  return _package(
      {
          "xl/workbook.xml": (
              "spreadsheetml.sheet.main",
              f'<workbook {space} xmlns:r="{_LINKS}">'
              f'<sheets><sheet name="{name[:31]}" sheetId="1" r:id="rId1"/></sheets>'
              "</workbook>",
          ),
          "xl/worksheets/sheet1.xml": (
              "spreadsheetml.worksheet",
              f"<worksheet {space}><sheetData>{''.join(rows)}</sheetData></worksheet>",
          ),
      },
      {"worksheets/sheet1.xml": "worksheet"},
  )


def _docx(table: Table, name: str) -> bytes:
  def paragraph(text: str) -> str:
    return f'<w:p><w:r><w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>'

  def line(cells: list[str]) -> str:
    return "<w:tr>" + "".join(f"<w:tc>{paragraph(c)}</w:tc>" for c in cells) + "</w:tr>"

  grid = "<w:gridCol/>" * len(table.columns)
  rows = "".join(map(line, [table.names, *table.cells()]))
  body = (
      f"{paragraph(name)}<w:tbl><w:tblPr/><w:tblGrid>{grid}</w:tblGrid>{rows}</w:tbl>"
      f"{paragraph('')}<w:sectPr/>"
  )
  space = f'xmlns:w="{_SCHEMAS}/wordprocessingml/2006/main"'
  document = f"<w:document {space}><w:body>{body}</w:body></w:document>"
  return _package(
      {"word/document.xml": ("wordprocessingml.document.main", document)}, {}
  )


def _pdf(table: Table, name: str) -> bytes:
  """A table in Courier, its header on every page; what isn't ASCII is escaped."""
  lines = table.cells()
  widths = [4.8 * (max(map(len, column)) + 2) for column in zip(table.names, *lines)]
  pages = [
      [table.names, *lines[at : at + _LINES_A_PAGE]]
      for at in range(0, max(len(lines), 1), _LINES_A_PAGE)
  ]
  width, height = round(sum(widths)) + 72, 12 * _LINES_A_PAGE + 108
  numbers = [4 + 2 * number for number in range(len(pages))]
  objects = [
      "<< /Type /Catalog /Pages 2 0 R >>",
      f"<< /Type /Pages /Count {len(pages)} /MediaBox [0 0 {width} {height}] /Kids ["
      + " ".join(f"{number} 0 R" for number in numbers)
      + "] >>",
      "<< /Type /Font /Subtype /Type1 /BaseFont /Courier /Encoding /WinAnsiEncoding >>",
  ]
  for number, page in zip(numbers, pages):
    shown = [f"BT /F1 8 Tf 36 {height - 36} Td {_shown(name)} Tj ET"]
    for at, cells in enumerate(page):
      moves = [0.0, *widths]
      drawn = " ".join(f"{x:.1f} 0 Td {_shown(c)} Tj" for x, c in zip(moves, cells))
      shown.append(f"BT /F1 8 Tf 36 {height - 60 - 12 * at} Td {drawn} ET")
    stream = "\n".join(shown)
    objects += [
        "<< /Type /Page /Parent 2 0 R /Resources << /Font << /F1 3 0 R >> >>"
        f" /Contents {number + 1} 0 R >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
    ]
  data, starts = "%PDF-1.4\n", []
  for number, text in enumerate(objects, 1):
    starts.append(len(data))
    data += f"{number} 0 obj\n{text}\nendobj\n"
  table_of = "".join(f"{start:010d} 00000 n \n" for start in starts)
  size = len(objects) + 1
  return (
      f"{data}xref\n0 {size}\n0000000000 65535 f \n{table_of}"
      f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
  ).encode("ascii")


def _shown(text: str) -> str:
  """A string of PDF."""
  return "(" + "".join(
      "\\" + chr(byte) if byte in b"\\()"
      else chr(byte) if 32 <= byte < 127
      else f"\\{byte:03o}"
      for byte in text.encode("cp1252")
  ) + ")"  # fmt: skip


OFFICE = (
    Kind(
        "xlsx", ".xlsx", "Excel workbook", one_file(_xlsx),
        'import xml.etree.ElementTree as ET, zipfile\n'
        'sheet = zipfile.ZipFile("{path}").read("xl/worksheets/sheet1.xml")\n'
        'text = lambda c: "".join(e.text or "" for e in c.iter())\n'
        'cells = [[text(c) for c in r] for r in ET.fromstring(sheet).iter()'
        ' if r.tag.endswith("}}row")]\n'
        'rows = [dict(zip(cells[0], c)) for c in cells[1:]]',
        look="python3 -m zipfile -l {path}", atomics=("document reading",),
    ),
    Kind(
        "docx", ".docx", "Word document", one_file(_docx),
        'import xml.etree.ElementTree as ET, zipfile\n'
        'body = zipfile.ZipFile("{path}").read("word/document.xml")\n'
        'text = lambda c: "".join(e.text or "" for e in c.iter())\n'
        'cells = [[text(c) for c in r] for r in ET.fromstring(body).iter()'
        ' if r.tag.endswith("}}tr")]\n'
        'rows = [dict(zip(cells[0], c)) for c in cells[1:]]',
        look="python3 -m zipfile -l {path}", atomics=("document reading",),
    ),
    Kind(
        "pdf", ".pdf", "PDF", one_file(_pdf),
        'import re\n'
        'pages = open("{path}", encoding="ascii").read().split("\\nstream\\n")[1:]\n'
        'byte = lambda m: chr(int(m[1], 8)) if len(m[1]) == 3 else m[1]\n'
        'plain = lambda t: re.sub(r"\\\\(\\d{{3}}|.)", byte, t)'
        '.encode("latin-1").decode("cp1252")\n'
        'shown = r"\\(((?:[^\\\\()]|\\\\.)*)\\) Tj"\n'
        'rows = []\n'
        'for page in pages:\n'
        '  lines = page.split("endstream")[0].split("\\n")\n'
        '  cells = [[plain(c) for c in re.findall(shown, l)] for l in lines]\n'
        '  rows += [dict(zip(cells[1], c)) for c in cells[2:] if c]',
        fits=encodable("cp1252"), atomics=("document reading",),
    ),
)  # fmt: skip
