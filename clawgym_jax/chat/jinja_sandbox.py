"""Jinja in a sandbox whose work is counted, for templates that come with models.

A template is a stranger's program. It sees plain data, can't name files, and can't
run for long: every turn of a loop (also one that a loop's `if` leaves out), call,
filter, test, comparison and slice is counted by the sizes of what it is given
(`work`), and single operations that could make something huge at once are refused.
Of Python's own values only the methods listed here are seen, all of known cost.

What templates written for Hugging Face's tokenizers may use is here: loop
controls, `raise_exception`, `strftime_now`, `tojson` that leaves characters as
they are, and the `{% generation %}` tag.
"""

from __future__ import annotations

import datetime
import json
import operator
import re
from collections.abc import Iterator
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.utils
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from clawgym_jax.chat import work
from clawgym_jax.chat.jinja_counting import Counted

_MOST_WIDTH = 1000  # columns of padding or indentation

_REFUSED_FILTERS = (
    "batch", "filesizeformat", "pprint", "random", "slice", "striptags", "unique",
    "urlencode", "urlize", "wordcount", "wordwrap", "xmlattr",
)  # fmt: skip
# Filters that take the same time for every value, that go through its elements
# once, and that compare them; all others read all of what they are given.
_QUICK_FILTERS = {"count", "d", "default", "first", "last", "length"}
_LIST_FILTERS = {
    "items", "join", "list", "map", "reject", "rejectattr", "reverse", "select",
    "selectattr", "sum",
}  # fmt: skip
_SORTING_FILTERS = {"dictsort", "groupby", "max", "min", "sort"}

_STRING_METHODS = {
    "capitalize", "casefold", "count", "endswith", "find", "format", "index", "isalnum",
    "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric",
    "isprintable", "isspace", "istitle", "isupper", "join", "lower", "lstrip",
    "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex",
    "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip",
    "swapcase", "title", "upper",
}  # fmt: skip
_METHODS: tuple[tuple[Any, set[str]], ...] = (
    (str, _STRING_METHODS),
    (dict, {"copy", "get", "items", "keys", "values"}),
    ((list, tuple), {"count", "index"}),
    ((int, float, bytes, range, *map(type, ({}.keys(), {}.values(), {}.items()))), set()),
)
# They compare every place of the text with all of their argument.
_PLACEWISE = {
    "lstrip", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "strip", "trim"
}  # fmt: skip
_COMPARISONS = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "lteq": operator.le,
    "gt": operator.gt, "gteq": operator.ge,
}  # fmt: skip
_WIDTH = re.compile(r"%[-#0 +]*[.]?[*\d]")
_FIELD_FORMAT = re.compile(r"\{[^{}]*[:!]")


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
  """The sandbox with its work counted; the nodes that `Counted` adds call it."""

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
    for name, function in list(self.tests.items()):
      self.tests[name] = _counted_test(name, function)

  def _parse(self, source: str, name: str | None, filename: str | None) -> Any:
    tree = super()._parse(source, name, filename)
    for kind in ("Include", "Import", "FromImport", "Extends"):
      if tree.find(getattr(jinja2.nodes, kind)) is not None:
        raise jinja2.exceptions.SecurityError(f"it asks for another file ({kind})")
    if tree.find(jinja2.nodes.EvalContextModifier) is not None:
      raise jinja2.exceptions.SecurityError("it changes how text is escaped")
    return Counted().visit(tree)

  def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
    for kind, methods in _METHODS:
      if isinstance(obj, kind):
        return attr in methods
    return super().is_safe_attribute(obj, attr, value)

  def wrap_str_format(self, value: Any) -> Any:
    wrapped = super().wrap_str_format(value)
    if wrapped is None:
      return None
    if value.__name__ == "format_map" or _FIELD_FORMAT.search(value.__self__):
      raise jinja2.exceptions.SecurityError("format with a width or conversion")
    return wrapped

  def getitem(self, obj: Any, argument: Any) -> Any:
    work.running().weigh(argument)  # it is hashed, and put into errors
    return super().getitem(obj, argument)

  def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
    if getattr(__obj, "__func__", None) in _COUNTING:
      return __obj(*args)
    budget = work.running()
    budget.step(len(args) + len(kwargs))
    if not isinstance(__obj, (Macro, LoopContext)):  # which count their own turns
      owner = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
      if isinstance(owner, str):
        args = _count_method(budget, owner, __obj.__name__, args, kwargs)
      elif isinstance(owner, (list, tuple)):
        budget.weigh(owner)
      budget.weigh([*args, *kwargs.values()])
    result = super().call(__context, __obj, *args, **kwargs)
    budget.weigh(result)
    return result

  def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
    budget = work.running()
    budget.step()
    if operator == "**":
      raise jinja2.exceptions.SecurityError("powers")
    if operator == "%" and isinstance(left, str):
      _check_percent(left)
      budget.weigh([left, right], times=1 + left.count("%"))
    elif operator == "*":
      for many, count in ((left, right), (right, left)):
        if isinstance(many, (str, list, tuple)) and isinstance(count, int):
          budget.made(16 * len(many) * max(count, 1))
      budget.weigh([v for v in (left, right) if isinstance(v, int)])
    elif operator == "+" and isinstance(left, str) and isinstance(right, str):
      budget.made(len(left) + len(right))
    elif operator == "+" and isinstance(left, (list, tuple)):
      budget.made(8 * (len(left) + len(right)))
    return super().call_binop(context, operator, left, right)

  def counted_turn(self, nodes: int, characters: int) -> str:
    """One turn of a loop or macro with so many parts and so much text of its own."""
    budget = work.running()
    budget.step(nodes)
    budget.made(characters)
    return ""

  def counted_compare(self, names: tuple[str, ...], left: Any, *others: Any) -> Any:
    """Values with operators between them, as in `a < b < c`."""
    budget = work.running()
    result = True
    for name, right in zip(names, others):
      if name in _COMPARISONS:
        budget.compare(left, right)
        result = _COMPARISONS[name](left, right)
      else:
        budget.search(left, right)
        result = (left in right) == (name == "in")
      if not result:
        break
      left = right
    return result

  def counted_slice(self, value: Any) -> Any:
    """A part of a list or text, cut out."""
    budget = work.running()
    budget.step(len(value) if isinstance(value, (list, tuple)) else 0)
    budget.made(len(value) if isinstance(value, str) else 0)
    return value

  def counted_concat(self, *parts: Any) -> str:
    """What the template's `~` gives."""
    work.running().weigh(parts)
    return "".join(map(str, parts))

  def counted_value(self, value: Any) -> Any:
    """A list or mapping that the template writes down, weighed."""
    work.running().weigh(value)
    return value


_COUNTING = (
    _Environment.counted_turn,
    _Environment.counted_compare,
    _Environment.counted_slice,
    _Environment.counted_concat,
    _Environment.counted_value,
)


def _finalize(value: Any) -> Any:
  """Counts what is written out, also where the template keeps it."""
  if (budget := work.running()) is not None:  # else a constant, which turns count
    budget.weigh(value)
  return value


def _count_method(
    budget: work.Budget, owner: str, name: str, args: tuple[Any, ...], kwargs: Any
) -> tuple[Any, ...]:
  """Counts a call of a string's method; returns its arguments, iterators as lists."""
  if name == "join":
    args = (list(args[0]), *args[1:])
    budget.made(len(owner) * len(args[0]))
  elif name == "replace":
    budget.made(_replaced(owner, *args))
  elif name == "format":
    budget.weigh([*args, *kwargs.values()], times=1 + owner.count("{"))
  if name not in ("startswith", "endswith"):
    budget.made(len(owner) * _places(name, [*args, *kwargs.values()]))
  return args


def _counted_filter(name: str, function: Any) -> Any:
  """A built-in filter that counts its work and refuses huge paddings."""

  def counted(*args: Any, **kwargs: Any) -> Any:
    budget = work.running()
    head, value, more = args[:taken], args[taken], args[taken + 1 :]
    given = [*more, *kwargs.values()]
    budget.step(len(given))
    if name in _QUICK_FILTERS:
      return function(*args, **kwargs)
    if any(isinstance(v, int) and abs(v) > _MOST_WIDTH for v in given):
      raise jinja2.exceptions.SecurityError(f"the filter {name} with a huge number")
    if name == "map" and "default" in kwargs:
      raise jinja2.exceptions.SecurityError("the filter map with a default")
    if name == "sum" and any(isinstance(v, (list, tuple)) for v in given):
      raise jinja2.exceptions.SecurityError("the filter sum of lists")
    if name in _LIST_FILTERS | _SORTING_FILTERS:
      value = list(value) if isinstance(value, (Iterator, range)) else value
      elements = len(value) if hasattr(value, "__len__") else 0
      paths = sum(v.count(".") for v in given if isinstance(v, str))
      budget.step(elements * (1 + paths))
      if name in _SORTING_FILTERS:
        budget.weigh(value, times=1 + elements.bit_length())
    if name == "join":
      budget.weigh([value, *given])
      budget.made(sum(len(str(v)) for v in given) * elements)
    elif name not in _LIST_FILTERS | _SORTING_FILTERS:
      budget.weigh([value, *given], times=_places(name, given))
      _check_text_filter(budget, name, value, more, kwargs)
    result = function(*head, value, *more, **kwargs)
    if isinstance(result, Iterator):
      return list(result)  # so that whatever takes it knows its size
    if isinstance(result, (str, int)):
      budget.weigh(result)
    return result

  kind = getattr(function, "jinja_pass_arg", None)  # of what is passed first
  taken = 0 if kind is None else 1
  if kind is not None:
    counted.jinja_pass_arg = kind
  return counted


def _check_text_filter(
    budget: work.Budget, name: str, value: Any, more: tuple[Any, ...], kwargs: Any
) -> None:
  given = [*more, *kwargs.values()]
  if name == "replace":
    named = {**dict(zip(("old", "new"), more)), **kwargs}
    old, new = str(named.get("old")), str(named.get("new"))
    budget.made(_replaced(str(value), old, new))
  elif name == "format":
    _check_percent(str(value))
    budget.weigh(given, times=1 + str(value).count("%"))
  elif name == "indent":
    budget.made((1 + len(str(value).splitlines())) * sum(map(_width, given)))
  elif name == "tojson":
    budget.made(work.size(value) * _levels(value) * sum(map(_width, given)))


def _width(value: Any) -> int:
  """Most characters that an argument adds at one place: a padding or separators."""
  if isinstance(value, (str, int)):
    return len(value) if isinstance(value, str) else abs(value)
  return sum(map(_width, value or ()))


def _levels(value: Any) -> int:
  """How deep lists and mappings are nested, 1 for none; each level is indented."""
  if isinstance(value, dict):
    value = value.values()
  elif not isinstance(value, (list, tuple)):
    return 1
  return 1 + max(map(_levels, value), default=0)


def _counted_test(name: str, function: Any) -> Any:
  """A built-in test that counts its work, also where filters ask it."""

  def counted(*args: Any, **kwargs: Any) -> Any:
    budget = work.running()
    budget.step(len(args))
    if name == "in":
      budget.search(*args[:2])
    elif name in ("lower", "upper"):  # of the value as text
      budget.weigh(args)
    elif len(args) > 1 and kind is None:
      budget.compare(*args[:2])
    return function(*args, **kwargs)

  kind = getattr(function, "jinja_pass_arg", None)
  if kind is not None:
    counted.jinja_pass_arg = kind
  return counted


def _places(name: str, given: Any) -> int:
  """How often a text is read by a filter or method with these arguments."""
  longest = max((len(v) for v in given if isinstance(v, str)), default=0)
  return 1 + (longest // 8 if name in _PLACEWISE else 0)


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
