"""The literals of shell commands, and of what sed, awk and jq are told in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from data_gen.audit.literals.files import PYTHONS, document
from data_gen.audit.literals.python import python
from data_gen.audit.literals.texts import (
    QUOTED,
    SQL,
    Printed,
    loose,
    numbers,
    plain,
    prose,
    sql,
    unformatted,
    unpatterned,
)

_OPERATORS = set(";&|()<>\n")
_KEYWORDS = frozenset(
    "then do else fi done esac if elif while until ! { } time env sudo nohup exec"
    " command builtin".split()
)
_COUNTING = frozenset(
    "head tail cut sort column fold nl sleep tr xargs chmod kill exit return seq split"
    " timeout nice set shift uniq wc paste touch gzip tar zip unzip".split()
)
_HEREDOC = re.compile(
    r"^(?P<head>[^\n]*?)<<-?[ \t]*(?P<q>['\"]?)(?P<tag>\w+)(?P=q)(?P<rest>[^\n]*)\n"
    r"(?P<body>.*?)^[ \t]*(?P=tag)[ \t]*$",
    re.DOTALL | re.MULTILINE,
)


def shell(command: str, depth: int = 0) -> Iterator[str]:
  """The literals of a command line or script."""
  bodies: list[tuple[str, str]] = []

  def taken(found: re.Match[str]) -> str:
    line = found["head"] + " " + found["rest"]
    bodies.append((line, found["body"]))
    return line

  text = _HEREDOC.sub(taken, command).replace("\\\n", " ")
  text = re.sub(r"(?m)^\s*#.*$", "", text)
  text = re.sub(r"(?<=\s)\d(?=[<>])", "", text)  # the numbers of streams
  text, inner = _substituted(text)
  for part in inner if depth < 5 else ():
    yield from shell(part, depth + 1)
  lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()<>\n")
  lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
  try:
    tokens = list(lexer)
  except ValueError:
    yield from loose(command)
    return
  for line, body in bodies:
    yield from document(line, body, shell)
  yield from _commands(tokens, depth)


def _substituted(text: str) -> tuple[str, list[str]]:
  """The text without its command substitutions, and those."""
  found: list[str] = []
  while (start := text.find("$(")) >= 0:
    open_, end = 1, start + 2
    while end < len(text) and open_:
      open_ += {"(": 1, ")": -1}.get(text[end], 0)
      end += 1
    if text[start : start + 3] != "$((":
      found.append(text[start + 2 : end - 1])
    text = f"{text[:start]}${{x}}{text[end:]}"
  return text, found


def _commands(tokens: list[str], depth: int) -> Iterator[str]:
  command: list[str] = []
  redirect = False  # the next token is a file
  writes = False
  for token in [*tokens, ";"]:
    if token and set(token) <= _OPERATORS:
      if set(token) & set("<>"):
        redirect, writes = True, writes or ">" in token
        continue
      yield from _simple(command, writes or token == "|", depth)
      command, redirect, writes = [], False, False
    elif redirect:
      redirect = False
      if not token.isdigit():
        yield from _value(token)
    else:
      command.append(token)


def _simple(tokens: list[str], kept: bool, depth: int) -> Iterator[str]:
  """A command with its arguments; `kept` where what it prints goes somewhere."""
  while tokens and (tokens[0] in _KEYWORDS or re.match(r"[A-Za-z_]\w*\+?=", tokens[0])):
    head, *tokens = tokens
    if head not in _KEYWORDS:
      yield from _value(head.partition("=")[2])
  if not tokens:
    return
  name, args = tokens[0], tokens[1:]
  if name in ("for", "case", "select", "function"):
    for arg in args[1:]:
      if arg != "in":
        yield from _value(arg)
    return
  if "/" in name:
    yield from _value(name)
  name = name.rpartition("/")[2]
  if name == "xargs":
    rest = [a for a in args if not a.startswith("-")]
    yield from _simple([r for r in rest if not r.isdigit()], kept, depth)
    return
  if PYTHONS.fullmatch(name) or name in ("bash", "sh"):
    yield from _interpreted(name, args, depth)
    return
  if name in ("echo", "printf"):
    said = " ".join(a for a in args if not re.fullmatch("-[neE]+", a))
    for line in unformatted(said).splitlines():
      yield from plain(line) if kept else [Printed(line)]
    return
  yield from _arguments(name, args)


def _interpreted(name: str, args: list[str], depth: int) -> Iterator[str]:
  for place, arg in enumerate(args):
    if arg == "-c":
      code = args[place + 1] if place + 1 < len(args) else ""
      if name in ("bash", "sh"):
        yield from shell(code, depth + 1) if depth < 5 else ()
      else:
        yield from python(code)
      args = args[place + 2 :]
      break
    if arg == "-m":
      args = args[place + 2 :]
      break
    if not arg.startswith("-"):
      args = args[place:]
      break
  else:
    return
  for arg in args:
    yield from _value(arg)


_SERVICES = ("outbox", "calendar", "cron")  # whose first argument is an action
_CHOSEN = ("--mode", "--enabled", "--channel", "--every-ms")  # of a few, or in units
_NAMING = frozenset("-name -iname -path -ipath -newer".split())
_PATTERNED = frozenset("grep egrep fgrep zgrep rg".split())
_PROGRAMS = frozenset("sed awk gawk mawk jq perl".split())


def _arguments(name: str, args: list[str]) -> Iterator[str]:
  program = name in _PROGRAMS
  before = ""
  if name == "git":
    args = _of_git(args)
  if name in _SERVICES:
    args = args[1:]
  if name == "websearch":
    yield from prose(" ".join(args))
    return
  if name == "tar" and args and re.fullmatch("[A-Za-z]+", args[0]):
    args = args[1:]
  for arg in args:
    option, _, value = arg.partition("=")
    if arg.startswith("--") and value:
      yield from _value(value) if option not in _CHOSEN else ()
    elif arg.startswith(("-", "+")) and len(arg) > 1:
      pass
    elif name == "find" and before.startswith("-") and before not in _NAMING:
      pass
    elif before == "-c" and name == "git":
      yield from _value(arg.partition("=")[2])
    elif before in ("-A", "-B", "-C", "-m", "-F", "-d", "-t", "-k", "-n") and (
        arg.isdigit() or len(arg) <= 2
    ):
      pass
    elif program and before not in ("-v", "-f", "--arg", "-i", "--argjson"):
      program = before == "-e"  # there may be another
      yield from _script(name, arg)
    elif name in _PATTERNED and not before.startswith("--"):
      yield from plain(unpatterned(arg))
    elif name in ("sqlite3", "psql") and SQL.match(arg):
      yield from sql(arg)
    elif name in ("[", "[[", "test") and arg in ("0", "1"):
      pass
    elif not (name in _COUNTING and re.fullmatch(r"[\d,.$-]+[kKMG]?", arg)):
      yield from _value(arg)
    before = arg


def _of_git(args: list[str]) -> list[str]:
  """What follows the name of git's command."""
  for place, arg in enumerate(args):
    if arg.isalpha() and (place == 0 or args[place - 1] not in ("-c", "-C")):
      return args[:place] + args[place + 1 :]
  return args


def _script(name: str, text: str) -> Iterator[str]:
  """The literals of a program for sed, awk or jq."""
  if name == "sed":
    text = re.sub(r"(?<![\w/])\d*,?[+~$]?\d*\s*[pdqaicn=](?![\w])", " ", text)
    yield from _value(re.sub(r"\b[sygpdIe]\b", " ", unpatterned(text)))
    return
  for found in QUOTED.finditer(text):
    yield from plain(unformatted(found[1] or found[2] or ""))
  bare = QUOTED.sub(" ", text)
  if name != "jq":
    for pattern in re.findall(r"/([^/\n]+)/", bare):
      yield from plain(unpatterned(pattern))
    bare = re.sub(r"/[^/\n]+/", " ", bare)
  bare = re.sub(r"\$\(?[\w+-]+\)?|\b(NR|NF|FNR)\s*[=!<>%]+\s*\d+|\[[^\]]*\]", " ", bare)
  yield from numbers(bare)


def _value(text: str) -> Iterator[str]:
  """An argument, without its variables."""
  text = re.sub(r"\$\{[^}]*\}|\$[\w@#*?!]+", " ", text)
  yield from plain(text)
