"""memory_search and memory_get: the notes alone, ranked by words, with lines."""

from __future__ import annotations

import json

from tests.sandbox.test_tools import results

OFFERED = ("memory_search", "memory_get")
FILES = {
    "MEMORY.md": (
        "# Facts\n\nAda likes tea.\nShe lives in Graz.\n\nThe cat is grey.\n".encode()
    ),
    "memory/2026-01-05.md": "Bought green tea — 200 g.\n".encode(),
    "memory/deep/x.md": b"tea tea tea\n",
    "notes.md": b"tea tea tea\n",
    "memory/bytes.md": b"\xff\xfe tea-house\n",
}


def asked(*calls):
  return [json.loads(text) for text in results(list(calls), FILES, offered=OFFERED)]


def test_search_gives_lines_and_scores():
  both, one, none, sure = asked(
      ("memory_search", {"query": "TEA in Graz"}),
      ("memory_search", {"query": "tea", "maxResults": 1}),
      ("memory_search", {"query": "zebra"}),
      ("memory_search", {"query": "tea", "minScore": 1}),
  )
  first = both["results"][0]
  assert (first["path"], first["startLine"], first["endLine"]) == ("MEMORY.md", 3, 4)
  assert first["snippet"] == "Ada likes tea.\nShe lives in Graz."
  assert {r["path"] for r in both["results"]} == {
      "MEMORY.md", "memory/2026-01-05.md", "memory/bytes.md",
  }  # fmt: skip
  scores = [r["score"] for r in both["results"]]
  assert scores == sorted(scores, reverse=True) and 0 < scores[-1] < scores[0] < 1
  assert len(one["results"]) == 1 and none == sure == {"results": []}


def test_get_gives_an_excerpt():
  whole, part, beyond, named = asked(
      ("memory_get", {"path": "memory/2026-01-05.md"}),
      ("memory_get", {"path": "MEMORY.md", "from": 3, "lines": 2}),
      ("memory_get", {"path": "MEMORY.md", "from": 300}),
      ("memory_get", {"file_path": "/workspace/MEMORY.md", "lines": 1}),
  )
  assert whole == {
      "path": "memory/2026-01-05.md",
      "text": "Bought green tea — 200 g.\n",
  }
  assert part["text"] == "Ada likes tea.\nShe lives in Graz."
  assert beyond["text"] == "" and named == {"path": "MEMORY.md", "text": "# Facts"}


def test_notes_alone_are_read():
  bad = [
      {"path": "notes.md"}, {"path": "memory/../notes.md"}, {"path": "/etc/passwd"},
      {"path": "memory/deep/x.md"}, {"path": "memory/none.md"}, {"path": 3}, {},
      {"path": "MEMORY.md", "from": 0}, {"path": "MEMORY.md", "lines": "x"},
  ]  # fmt: skip
  for answer in asked(*(("memory_get", args) for args in bad)):
    assert answer["status"] == "error" and answer["tool"] == "memory_get"


def test_without_notes_and_with_many():
  many = {"MEMORY.md": b"\n\n".join(b"tea %d " % i + b"x" * 900 for i in range(300))}
  (empty,) = results([("memory_search", {"query": "tea"})], {}, offered=OFFERED)
  assert json.loads(empty) == {"results": []}
  text, note = results(
      [("memory_search", {"query": "tea", "maxResults": 50}),
       ("memory_get", {"path": "MEMORY.md"})],
      many, offered=OFFERED,
  )  # fmt: skip
  assert len(json.loads(text)["results"]) > 3 and len(text) <= 4000
  assert "left out" in json.loads(note)["text"] and len(note) <= 4000
