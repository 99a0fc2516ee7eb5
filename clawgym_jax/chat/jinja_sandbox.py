"""Jinja in a sandbox whose work is counted, for templates that come with models.

A template is a stranger's program. It sees plain data, can't name files, and can't
run for long: every turn of a loop, every call and every character that it makes
is counted against a budget, and single operations that could make something
huge at once are refused. The count is of what the template does, so it is the
same on every machine. Not counted is the comparing of deeply nested lists.

What templates written for Hugging Face's tokenizers may use is here: loop
controls, `raise_exception`, `strftime_now`, `tojson` that leaves characters as
they are, and the `{% generation %}` tag.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.utils
from jinja2.sandbox import ImmutableSandboxedEnvironment

_MOST_WIDTH = 1000  # columns of padding or indentation

_REFUSED_FILTERS = (
    "batch", "filesizeformat", "pprint", "random", "slice", "urlize", "wordwrap",
    "xmlattr",
)  # fmt: skip
_TEXT_FILTERS = (
    "capitalize", "center", "e", "escape", "forceescape", "format", "indent", "join",
    "lower", "replace", "safe", "string", "striptags", "title", "tojson", "trim",
    "truncate", "upper", "urlencode", "wordcount",
)  # fmt: skip
_REFUSED_STRING_METHODS = (
    "center", "encode", "expandtabs", "format_map", "ljust", "rjust", "translate",
    "zfill",
)  # fmt: skip
_WIDTH = re.compile(r"%[-#0 +]*[.]?[*\d]")
_FIELD_FORMAT = re.compile(r"\{[^{}]*[:!]")


class Exceeded(Exception):
  """The rendering went beyond its bounds."""


class Budget:
  """What one rendering may still do."""

  def __init__(self, steps: int, characters: int):
    self._steps = steps
    self._characters = characters

  def step(self, characters: int = 0) -> None:
    self._steps -= 1
    if self._steps < 0:
      raise Exceeded("too many turns of loops and calls")
    self.made(characters)

  def made(self, characters: int) -> None:
    self._characters -= characters
    if self._characters < 0:
      raise Exceeded("too many characters")

  def weigh(self, value: Any) -> None:
    """Counts what `value` takes when it is written out."""
    stack = [value]
    while stack:
      value = stack.pop()
      if isinstance(value, str):
        self.made(len(value) + 1)
        continue
      self.made(64)
      if isinstance(value, int) and value.bit_length() > 1024:
        raise Exceeded("a number beyond 1024 bits")
      if isinstance(value, dict):
        stack += [*value.keys(), *value.values()]
      elif isinstance(value, (list, tuple, set, frozenset)):
        stack += value
      elif isinstance(value, _Namespace):
        stack += object.__getattribute__(value, "_Namespace__attrs").values()


_budget: ContextVar[Budget] = ContextVar("budget")


@contextlib.contextmanager
def bounded(budget: Budget) -> Iterator[None]:
  """What templates do meanwhile is counted against `budget`."""
  token = _budget.set(budget)
  try:
    yield
  finally:
    _budget.reset(token)


class _Namespace(jinja2.utils.Namespace):
  """Jinja's namespace, without names that reach into Python."""

  def __init__(*args: Any, **kwargs: Any) -> None:
    self, args = args[0], args[1:]
    values = dict(*args, **kwargs)
    for name in values:
      _check_name(name)
    jinja2.utils.Namespace.__init__(self, values)

  def __setitem__(self, name: str, value: Any) -> None:
    _check_name(name)
    jinja2.utils.Namespace.__setitem__(self, name, value)


def _check_name(name: Any) -> None:
  if not isinstance(name, str) or name.startswith("_"):
    raise jinja2.exceptions.SecurityError(f"a namespace can't hold {name!r}")


class _Generation(jinja2.ext.Extension):
  """`{% generation %}` marks what the model says: its body is written as it is."""

  tags = {"generation"}

  def parse(self, parser: Any) -> jinja2.nodes.Node:
    line = next(parser.stream).lineno
    body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
    return jinja2.nodes.Scope(body, lineno=line)


class _Environment(ImmutableSandboxedEnvironment):
  """The sandbox with its work counted; the nodes that `_Counted` adds call it."""

  intercepted_binops = frozenset(("+", "*", "**", "%"))

  def __init__(self) -> None:
    super().__init__(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, jinja2.ext.loopcontrols],
        finalize=_finalize,
    )
    del self.globals["lipsum"]
    self.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "namespace": _Namespace,
    }
    self.filters["tojson"] = _tojson
    for name in _REFUSED_FILTERS:
      del self.filters[name]
    for name, function in list(self.filters.items()):
      self.filters[name] = _counted_filter(name, function)

  def _parse(self, source: str, name: str | None, filename: str | None) -> Any:
    tree = super()._parse(source, name, filename)
    for kind in ("Include", "Import", "FromImport", "Extends"):
      if tree.find(getattr(jinja2.nodes, kind)) is not None:
        raise jinja2.exceptions.SecurityError(f"it asks for another file ({kind})")
    return _Counted().visit(tree)

  def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
    if isinstance(obj, str) and attr in _REFUSED_STRING_METHODS:
      return False
    return super().is_safe_attribute(obj, attr, value)

  def wrap_str_format(self, value: Any) -> Any:
    wrapped = super().wrap_str_format(value)
    if wrapped is None:
      return None
    if value.__name__ == "format_map" or _FIELD_FORMAT.search(value.__self__):
      raise jinja2.exceptions.SecurityError("format with a width or conversion")
    return wrapped

  def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
    if getattr(__obj, "__func__", None) in _COUNTING:
      return __obj(*args)
    budget = _budget.get()
    budget.step()
    owner = getattr(__obj, "__self__", None)
    if isinstance(owner, str):
      name = __obj.__name__
      if name == "replace":
        budget.made(_replaced(owner, *args))
      elif name == "join":
        args = (list(args[0]), *args[1:])
        budget.made(len(owner) * len(args[0]))
      budget.weigh(args)
    elif getattr(__obj, "__name__", "") == "format":
      budget.weigh([*args, *kwargs.values()])
    result = super().call(__context, __obj, *args, **kwargs)
    budget.weigh(result)
    return result

  def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
    budget = _budget.get()
    budget.step()
    if operator == "**":
      raise jinja2.exceptions.SecurityError("powers")
    if operator == "%" and isinstance(left, str):
      _check_percent(left)
      budget.weigh([left, right])
    elif operator == "*":
      for many, count in ((left, right), (right, left)):
        if isinstance(many, (str, list, tuple)) and isinstance(count, int):
          budget.made(16 * len(many) * max(count, 1))
      budget.weigh([v for v in (left, right) if isinstance(v, int)])
    elif operator == "+" and isinstance(left, (str, list, tuple)):
      if isinstance(right, (str, list, tuple)):
        budget.made(len(left) + len(right))
    return super().call_binop(context, operator, left, right)

  def counted_turn(self, characters: int) -> str:
    """One turn of a loop or call of a macro that writes so much text itself."""
    _budget.get().step(characters)
    return ""

  def counted_concat(self, *parts: Any) -> str:
    """What the template's `~` gives."""
    _budget.get().weigh(parts)
    return "".join(map(str, parts))

  def counted_value(self, value: Any) -> Any:
    """A list or mapping that the template writes down, weighed."""
    _budget.get().weigh(value)
    return value


_COUNTING = (
    _Environment.counted_turn,
    _Environment.counted_concat,
    _Environment.counted_value,
)


class _Counted(jinja2.visitor.NodeTransformer):
  """Adds the counting to a parsed template."""

  def visit_For(self, node: Any) -> Any:
    return self._with_turn(self.generic_visit(node))

  visit_Macro = visit_CallBlock = visit_For

  def visit_Concat(self, node: Any) -> Any:
    node = self.generic_visit(node)
    return _call("counted_concat", node.nodes, node.lineno)

  def visit_List(self, node: Any) -> Any:
    node = self.generic_visit(node)
    return _call("counted_value", [node], node.lineno)

  visit_Dict = visit_List

  def visit_Tuple(self, node: Any) -> Any:
    return node if node.ctx != "load" else self.visit_List(node)

  def _with_turn(self, node: Any) -> Any:
    written = sum(
        len(inner.data)
        for part in node.body
        for inner in ([part] if isinstance(part, jinja2.nodes.TemplateData) else [])
        + list(part.find_all(jinja2.nodes.TemplateData))
    )
    count = _call("counted_turn", [jinja2.nodes.Const(written)], node.lineno)
    node.body.insert(0, jinja2.nodes.ExprStmt(count, lineno=node.lineno))
    return node


def _call(name: str, arguments: list[Any], line: int) -> Any:
  nodes = jinja2.nodes
  return nodes.Call(
      nodes.EnvironmentAttribute(name), arguments, [], None, None, lineno=line
  )


def _finalize(value: Any) -> Any:
  """Counts what is written out, also where the template keeps it."""
  budget = _budget.get(None)
  if budget is not None:
    budget.weigh(value)
  return value


def _counted_filter(name: str, function: Any) -> Any:
  """A built-in filter that counts what it makes and refuses huge paddings."""

  def counted(*args: Any, **kwargs: Any) -> Any:
    budget = _budget.get()  # none while compiling: then nothing is folded
    budget.step()
    given = [*args[taken:], *kwargs.values()]
    if any(isinstance(value, int) and abs(value) > _MOST_WIDTH for value in given[1:]):
      raise jinja2.exceptions.SecurityError(f"the filter {name} with a huge number")
    if name == "map" and "default" in kwargs:
      raise jinja2.exceptions.SecurityError("the filter map with a default")
    if name == "sum" and any(isinstance(v, (list, tuple)) for v in given[1:]):
      raise jinja2.exceptions.SecurityError("the filter sum of lists")
    if name == "join":
      args = (*args[:taken], list(args[taken]), *args[taken + 1 :])
      given[0] = args[taken]
      budget.made(sum(len(v) for v in given[1:] if isinstance(v, str)) * len(given[0]))
    if name in _TEXT_FILTERS:
      budget.weigh(given)
    if name == "replace":
      budget.made(_replaced(str(given[0]), *map(str, given[1:3])))
    if name == "format":
      _check_percent(str(given[0]))
    if name in ("indent", "tojson") and len(given) > 1:
      lines = str(given[0]).count("\n") if name == "indent" else size(given[0])
      wide = max(len(v) if isinstance(v, str) else int(v or 0) for v in given[1:])
      budget.made(lines * wide)
    result = function(*args, **kwargs)
    if isinstance(result, str):
      budget.made(len(result))
    return result

  kind = getattr(function, "jinja_pass_arg", None)  # of what is passed first
  taken = 0 if kind is None else 1
  if kind is not None:
    counted.jinja_pass_arg = kind
  return counted


def _replaced(text: str, old: str, new: str, *_: Any) -> int:
  return len(text) + text.count(old) * len(new)


def _check_percent(text: str) -> None:
  if _WIDTH.search(text):
    raise jinja2.exceptions.SecurityError("% with a width")


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
  return json.dumps(
      value,
      ensure_ascii=ensure_ascii,
      indent=indent,
      separators=separators,
      sort_keys=sort_keys,
  )


def _raise_exception(message: str) -> None:
  raise jinja2.exceptions.TemplateError(message)


def _strftime_now(form: str) -> str:
  if len(form) > 100 or re.search(r"%[^%a-zA-Z]*\d", form):
    raise jinja2.exceptions.SecurityError("a time with a width")
  return datetime.datetime.now().strftime(form)


environment = _Environment()


def literals(source: str) -> str:
  """All text that a template can write by itself, parts kept apart."""
  tree = environment.parse(source)
  found = [node.data for node in tree.find_all(jinja2.nodes.TemplateData)]
  constants = tree.find_all(jinja2.nodes.Const)
  return "\0".join(found + [c.value for c in constants if isinstance(c.value, str)])


def size(value: Any) -> int:
  """Characters of all strings in plain data, and one for everything else."""
  if isinstance(value, str):
    return len(value) + 1
  if isinstance(value, dict):
    return 1 + sum(size(k) + size(v) for k, v in value.items())
  if isinstance(value, (list, tuple)):
    return 1 + sum(map(size, value))
  return 1
