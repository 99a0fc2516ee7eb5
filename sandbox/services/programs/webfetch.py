#!/usr/bin/python3 -sEB
"""webfetch: the readable text of one page of the task's web; see pages."""

from __future__ import annotations

import argparse
import os

import pages
import service

MOST_CHARS = 50_000


def fetch(options):
  page = pages.find(options.url, pages.load(os.path.join(service.ROOT, "web.jsonl")))
  if page is None:
    raise service.Refused(f"404: there is no page {options.url[:200]}")
  text = pages.readable(page, options.mode == "markdown") or "(no text)"
  if len(text) > options.max_chars:
    left = len(text) - options.max_chars
    text = f"{text[: options.max_chars]}\n[… {left} characters left out …]"
  print(text)


def _chars(value):
  if not value.isdecimal() or not 100 <= int(value) <= 10**9:
    raise argparse.ArgumentTypeError("not a number of at least 100")
  return int(value)


def main():
  parser = service.parser(
      "Print a web page as text.",
      ["webfetch https://example.com/hours", "webfetch --mode=text example.com/hours"],
  )
  parser.add_argument("url", type=service.text, help="its address")
  parser.add_argument(
      "--mode", choices=("markdown", "text"), default="markdown",
      help="with the marks of Markdown, or plain (default: markdown)",
  )  # fmt: skip
  parser.add_argument(
      "--max-chars", type=_chars, default=MOST_CHARS, metavar="N",
      help=f"characters at most, 100 or more (default: {MOST_CHARS})",
  )  # fmt: skip
  parser.set_defaults(does=fetch)
  service.run(parser)


if __name__ == "__main__":
  main()
