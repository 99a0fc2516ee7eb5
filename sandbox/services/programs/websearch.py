#!/usr/bin/python3 -sEB
"""websearch: finds pages of the task's web by words; see pages and ranking."""

from __future__ import annotations

import argparse
import os

import pages
import ranking
import service

COUNT = 5


def search(options):
  query = " ".join(options.query)
  web = pages.load(os.path.join(service.ROOT, "web.jsonl"))
  texts = [pages.readable(page, markdown=False) for page in web]
  titles = [pages.title(page) for page in web]
  ranked = ranking.rank(query, [f"{t}\n{t}\n{x}" for t, x in zip(titles, texts)])
  if not ranked:
    print("(no results)")
  for _, index in ranked[: options.count]:
    service.show(
        {
            "title": titles[index],
            "url": web[index]["url"],
            "snippet": ranking.snippet(query, texts[index]),
        }
    )


def _count(value):
  if not value.isdecimal() or not 1 <= int(value) <= 10:
    raise argparse.ArgumentTypeError("not from 1 to 10")
  return int(value)


def main():
  parser = service.parser(
      "Search the web: title, url and snippet of each page, one JSON object a line,"
      " best first.",
      ["websearch opening hours city library", "websearch --count=3 -- -40 degrees"],
  )
  parser.add_argument("query", nargs="+", type=service.text, help="words to look for")
  parser.add_argument(
      "--count", type=_count, default=COUNT, metavar="N",
      help=f"results at most, from 1 to 10 (default: {COUNT})",
  )  # fmt: skip
  parser.set_defaults(does=search)
  service.run(parser)


if __name__ == "__main__":
  main()
