"""Counting put into a parsed template: what does work calls the sandbox first.

The calls go to the environment's methods `counted_...`. A turn of a loop or
macro pays for all that stands in it, so what is not counted by itself (names,
attributes, conditions) is bounded too.
"""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer


class Counted(NodeTransformer):
  """Adds the counting to a parsed template."""

  def visit_For(self, node: Any) -> Any:
    node = self._with_turn(self.generic_visit(node))
    if node.test is not None:  # asked in every turn; the count itself is falsy
      count = _turn([node.test], node.lineno)
      node.test = nodes.Or(count, node.test, lineno=node.lineno)
    return node

  def visit_Macro(self, node: Any) -> Any:
    node = self.generic_visit(node)
    return self._with_turn(node, *node.defaults)

  visit_CallBlock = visit_Macro

  def visit_Block(self, node: Any) -> Any:
    return self._with_turn(self.generic_visit(node))

  def visit_Compare(self, node: Any) -> Any:
    node = self.generic_visit(node)
    names = nodes.Const(tuple(operand.op for operand in node.ops))
    values = [node.expr, *(operand.expr for operand in node.ops)]
    return _call("counted_compare", [names, *values], node.lineno)

  def visit_Getitem(self, node: Any) -> Any:
    node = self.generic_visit(node)
    cut = isinstance(node.arg, nodes.Slice)
    return _call("counted_slice", [node], node.lineno) if cut else node

  def visit_Concat(self, node: Any) -> Any:
    node = self.generic_visit(node)
    return _call("counted_concat", node.nodes, node.lineno)

  def visit_List(self, node: Any) -> Any:
    node = self.generic_visit(node)
    return _call("counted_value", [node], node.lineno)

  visit_Dict = visit_List

  def visit_Tuple(self, node: Any) -> Any:
    return node if node.ctx != "load" else self.visit_List(node)

  def _with_turn(self, node: Any, *more: Any) -> Any:
    count = _turn([*node.body, *more], node.lineno)
    node.body.insert(0, nodes.ExprStmt(count, lineno=node.lineno))
    return node


def _turn(body: list[Any], line: int) -> Any:
  """A call that counts one turn through `body`."""
  parts = [n for top in body for n in (top, *top.find_all(nodes.Node))]
  texts = [getattr(part, "data", getattr(part, "value", None)) for part in parts]
  written = sum(len(text) for text in texts if isinstance(text, str))
  sizes = [nodes.Const(len(parts)), nodes.Const(written)]
  return _call("counted_turn", sizes, line)


def _call(name: str, arguments: list[Any], line: int) -> Any:
  return nodes.Call(
      nodes.EnvironmentAttribute(name), arguments, [], None, None, lineno=line
  )
