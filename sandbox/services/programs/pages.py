"""The task's web: pages of web.jsonl, and their readable text from HTML.

A page is one JSON object a line: `url`, and `html` or `text` (Markdown), and
a `title` where it isn't in the HTML. What is not for reading (scripts, styles,
forms' controls) is left out. Standard library only, Python 3.9 or newer.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

_SKIPPED = {
    "script", "style", "noscript", "template", "svg", "select", "button", "head",
}  # fmt: skip
_BLOCKS = {
    "p", "div", "section", "article", "main", "header", "footer", "nav", "aside",
    "form", "ul", "ol", "dl", "dt", "dd", "figure", "figcaption", "address", "fieldset",
    "details", "summary", "table", "caption", "body", "html", "center",
}  # fmt: skip
_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*"}
_HEADING = re.compile(r"h([1-6])")


def load(path):
  """The pages of web.jsonl, in order; none where there is no such file."""
  try:
    with open(path, encoding="utf-8") as file:
      return [json.loads(line) for line in file if line.strip()]
  except FileNotFoundError:
    return []


def find(url, pages):
  """The page at `url`; scheme, case of the host, fragment and last / don't count."""
  for page in pages:
    if page["url"] == url:
      return page
  wanted = _plain(url)
  for page in pages:
    if _plain(page["url"]) == wanted:
      return page
  return None


def title(page):
  if page.get("title"):
    return page["title"]
  if "html" not in page:
    heading = re.search(r"^#+\s+(.+)$", page["text"], re.MULTILINE)
    return heading.group(1).strip() if heading else page["url"]
  return _read(page).title or page["url"]


def readable(page, markdown=True):
  """The page's text, as Markdown or without any marks."""
  if "html" in page:
    return _read(page, markdown).text()
  if markdown:
    return page["text"].strip()
  text = re.sub(r"!?\[([^\]\n]*)\]\([^)\n]*\)", r"\1", page["text"])
  text = re.sub(r"^(#+|>|[-*+])\s+", "", text, flags=re.MULTILINE)
  return re.sub(r"(\*\*|`)(?=\S)(.+?)(?<=\S)\1", r"\2", text).strip()


def _read(page, markdown=True):
  reader = _Reader(page["url"], markdown)
  reader.feed(page["html"])
  reader.close()
  return reader


def _plain(url):
  try:
    parts = urlsplit(url if "//" in url else "//" + url)
  except ValueError:  # brackets around what is no address
    return url
  query = "?" + parts.query if parts.query else ""
  return f"{parts.netloc.casefold()}{parts.path.rstrip('/')}{query}"


def _joined(url, address):
  try:
    return urljoin(url, address)
  except ValueError:
    return address


class _Reader(HTMLParser):
  """Gathers `lines` of the page; see `readable`."""

  def __init__(self, url, markdown):
    super().__init__(convert_charrefs=True)
    self.url, self.markdown = url, markdown
    self.title = ""
    self.lines = [""]
    self.skipped = 0  # depth within what is not for reading
    self.in_title = False
    self.preformatted = 0
    self.lists = []  # of open lists: how many items, or None without numbers
    self.links = []
    self.row = None  # cells of an open table row
    self.rows = 0

  def text(self):
    text = "\n".join(line.rstrip() for line in self.lines)
    return re.sub(r"\n{3,}", "\n\n", text).strip()

  def handle_starttag(self, tag, attributes):
    if tag == "title":
      self.in_title = True
    elif tag == "body":
      self.skipped = 0  # of a head that was never closed
    elif tag in _SKIPPED:
      self.skipped += 1
    if self.skipped:
      return
    given = dict(attributes)
    heading = _HEADING.fullmatch(tag)
    if heading:
      self.block(self.mark("#" * int(heading.group(1)) + " "))
    elif tag in ("ul", "ol"):
      self.block() if not self.lists else None
      self.lists.append(0 if tag == "ol" else None)
    elif tag == "li":
      self.item()
    elif tag == "blockquote":
      self.block(self.mark("> "))
    elif tag == "pre":
      self.block(self.mark("```\n"))
      self.preformatted += 1
    elif tag == "code" and not self.preformatted:
      self.add(self.mark("`"))
    elif tag == "br":
      self.lines.append("")
    elif tag == "hr":
      self.block(self.mark("---"))
      self.block()
    elif tag == "a":
      self.links.append(given.get("href") or "")
      self.add(self.mark("[") if self.links[-1] else "")
    elif tag == "img" and given.get("alt"):
      self.add(given["alt"])
    elif tag == "table":
      self.block()
      self.rows = 0
    elif tag == "tr":
      self.row = []
    elif tag in ("td", "th") and self.row is not None:
      self.row.append("")
    elif tag in _MARKS:
      self.add(self.mark(_MARKS[tag]))
    elif tag in _BLOCKS:
      self.block()

  def handle_endtag(self, tag):
    if tag == "title":
      self.in_title = False
    elif tag in _SKIPPED:
      self.skipped = max(0, self.skipped - 1)
      return
    if self.skipped:
      return
    if tag in ("ul", "ol"):
      if self.lists:
        self.lists.pop()
      self.block() if not self.lists else None
    elif tag == "pre":
      self.preformatted = max(0, self.preformatted - 1)
      self.add(self.mark("\n```"))
      self.block()
    elif tag == "code" and not self.preformatted:
      self.add(self.mark("`"))
    elif tag == "a" and self.links:
      address = self.links.pop()
      if address:
        self.add(self.mark(f"]({_joined(self.url, address)})"))
    elif tag == "tr" and self.row is not None:
      self.end_row()
    elif tag in _MARKS:
      self.add(self.mark(_MARKS[tag]))
    elif tag in _BLOCKS or tag == "blockquote" or _HEADING.fullmatch(tag):
      self.block()

  def handle_data(self, data):
    if self.in_title:
      self.title += " ".join(data.split())
    elif not self.skipped:
      self.add(data if self.preformatted else re.sub(r"\s+", " ", data))

  def mark(self, text):
    return text if self.markdown else text if not text.strip() else ""

  def add(self, text):
    if self.row:
      self.row[-1] += text
    elif self.preformatted:
      first, *more = text.split("\n")
      self.lines[-1] += first
      self.lines += more
    elif text.strip() or self.lines[-1]:
      space = self.lines[-1].endswith((" ", "\u00a0")) or not self.lines[-1]
      self.lines[-1] += text.lstrip(" ") if space else text

  def block(self, start=""):
    """A new paragraph that starts with `start`."""
    if self.row is not None:
      return
    if self.lines[-1].strip():
      self.lines += ["", ""]
    elif len(self.lines) > 1 and self.lines[-2].strip():
      self.lines.append("")
    first, *more = start.split("\n")
    self.lines[-1] = first
    self.lines += more

  def item(self):
    depth = max(0, len(self.lists) - 1)
    sign = "- "
    if self.lists and self.lists[-1] is not None:
      self.lists[-1] += 1
      sign = f"{self.lists[-1]}. "
    if self.lines[-1].strip():
      self.lines.append("")
    self.lines[-1] = "  " * depth + sign

  def end_row(self):
    cells = [" ".join(cell.split()) for cell in self.row]
    self.row = None
    if self.lines[-1].strip():
      self.lines.append("")
    self.lines[-1] = self.mark("| ") + (" | ".join(cells)) + self.mark(" |")
    self.rows += 1
    if self.rows == 1 and self.markdown:
      self.lines.append("|" + " --- |" * len(cells))
