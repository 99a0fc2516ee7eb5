"""The literals of a Python program, by its tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from data_gen.audit.literals.texts import (
    SQL,
    Printed,
    loose,
    plain,
    sql,
    unformatted,
    unpatterned,
)

_CALLS_FREE = frozenset(
    "round range enumerate zfill split rsplit splitlines rjust ljust center exit pow"
    " islice combinations most_common nlargest nsmallest seek read readline quantize"
    " getcontext sleep group groups int setrecursionlimit zip_longest strftime strptime"
    " encode decode compile".split()
)
_WORDS_FREE = frozenset(
    "indent start step maxsplit ndigits base encoding errors mode newline sep end"
    " delimiter quotechar lineterminator quoting dialect restval timeout check text"
    " capture_output shell default_flow_style width separators ensure_ascii".split()
)
_PATTERNED = frozenset("findall finditer search match fullmatch sub subn".split())
_UNITS = frozenset([2, 7, 10, 12, 24, 60, 100, 365, 1000, 1024, 3600, 86400])
_SCALING = (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


def python(code: str) -> Iterator[str]:
  """The literals of a program."""
  try:
    found = list(_Program().literals(ast.parse(code.strip("\n"))))
  except (SyntaxError, ValueError, RecursionError, MemoryError):
    found = list(loose(code))
  yield from found


class _Program:
  """Walks a tree; `_own` are the keys that the program makes for itself."""

  def literals(self, tree: ast.AST) -> Iterator[str]:
    self._own = set(_own_keys(tree))
    yield from self._in(tree)

  def _in(self, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant):
      yield from self._constant(node.value)
    elif isinstance(node, ast.JoinedStr):
      yield from self._text(_joined(node))
      for part in node.values:
        if isinstance(part, ast.FormattedValue):
          yield from self._in(part.value)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
      return  # a docstring, or no use at all
    elif isinstance(node, ast.Call):
      yield from self._call(node)
    elif isinstance(node, ast.Subscript):
      yield from self._in(node.value)
      if not _is_index(node.slice):
        yield from self._in(node.slice)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, _SCALING):
      for side in (node.left, node.right):
        if not (isinstance(side, ast.Constant) and side.value in _UNITS):
          yield from self._in(side)
    elif isinstance(node, ast.Compare) and _asks_name(node):
      return
    else:
      for child in ast.iter_child_nodes(node):
        yield from self._in(child)

  def _call(self, node: ast.Call) -> Iterator[str]:
    yield from self._in(node.func)
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    keywords = [k for k in node.keywords if k.arg not in _WORDS_FREE]
    told = name == "print" and not any(k.arg == "file" for k in node.keywords)
    args = node.args[:1] if name == "open" else node.args
    if name in ("pack", "unpack", "calcsize", "iter_unpack"):  # of struct
      args = args[1:]
    for place, value in enumerate([*args, *(k.value for k in keywords)]):
      if _is_index(value) and name in _CALLS_FREE:
        continue
      if place == 0 and name in _PATTERNED and isinstance(value, ast.Constant):
        yield from plain(unpatterned(str(value.value)))
        continue
      if told or (name in ("exit", "Exception", "ValueError") and place == 0):
        yield from self._printed(value)
      elif name in ("strftime", "strptime", "encode", "decode", "Decimal", "quantize"):
        yield from self._formatted(value)
      else:
        yield from self._in(value)

  def _printed(self, node: ast.AST) -> Iterator[str]:
    """What is only shown; what it shows may be worked out of values all the same."""
    if isinstance(node, ast.Constant):
      yield Printed(node.value)
    elif isinstance(node, ast.JoinedStr):
      yield Printed(_joined(node))
      for part in node.values:
        if isinstance(part, ast.FormattedValue):
          yield from self._in(part.value)
    else:
      yield from self._in(node)

  def _formatted(self, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
      text = node.value
      if re.fullmatch(r"0*\.?0*1|0+\.?0*", text):  # to what is rounded, or nothing
        return
    yield from self._in(node)

  def _constant(self, value: Any) -> Iterator[str]:
    if isinstance(value, str):
      yield from self._text(value)
    elif isinstance(value, bytes):
      yield from self._text(value.decode("utf-8", "replace"))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
      if value not in (0, 1):
        yield repr(value)

  def _text(self, text: str) -> Iterator[str]:
    if text in self._own:
      return
    if re.match("--?[A-Za-z]", text):  # an option of a command
      text = text.partition("=")[2]
    if SQL.match(text):
      yield from sql(text)
      return
    for line in unformatted(text).splitlines():
      yield from plain(line)


def _joined(node: ast.JoinedStr) -> str:
  parts = (p.value if isinstance(p, ast.Constant) else " " for p in node.values)
  return "".join(map(str, parts))


def _own_keys(tree: ast.AST) -> Iterator[str]:
  """Names in lower case that are set as keys: the program's own, as its variables."""
  for node in ast.walk(tree):
    keys: list[Any] = []
    if isinstance(node, ast.Dict):
      keys = node.keys
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
      keys = [node.slice]
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setdefault":
      keys = node.args[:1]
    for key in keys:
      if isinstance(key, ast.Constant) and isinstance(key.value, str):
        if re.fullmatch(r"[a-z_]+", key.value):
          yield key.value


def _is_index(node: ast.AST) -> bool:
  """Whether it is a number, or a slice of numbers."""
  if isinstance(node, ast.Slice):
    ends = (node.lower, node.upper, node.step)
    return all(end is None or _is_index(end) for end in ends)
  if isinstance(node, ast.UnaryOp):
    return _is_index(node.operand)
  if isinstance(node, ast.Tuple):
    return bool(node.elts) and all(map(_is_index, node.elts))
  return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _asks_name(node: ast.Compare) -> bool:
  return isinstance(node.left, ast.Name) and node.left.id == "__name__"
