"""A local endpoint that writes tasks as a model would: well, or as it is told to.

Which stage asks is seen from how the system's words begin, which task it is from
the word caseNNNN that goes through all of them. `script` has for each stage what is
answered first, one a request; then the answers are good:

  str            the text of a reply
  dict           a choice: message, finish_reason
  (code, headers, text)  another status
  float          seconds, then the good answer
  CUT            a connection that ends in the middle of the answer
  a function     of the case and the request's body, giving one of these

`always` has the same for every request of a stage.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from clawgym_jax.web import serve
from data_gen.llm import prompts, run
from data_gen.llm.settings import Settings

CUT = object()
KEY = "canary-key-5511"
_STAGES = ("idea", "task", "checks", "rubric", "repair")
_OPENINGS = {prompts.opening(stage): stage for stage in _STAGES}


class Fake:
  """See the module's docstring. `asked` has (stage, body, headers) of each request."""

  def __init__(self) -> None:
    self.script: dict[str, list[Any]] = {}
    self.always: dict[str, Any] = {}
    self.asked: list[tuple[str, dict[str, Any], dict[str, str]]] = []
    route = Route("/v1/chat/completions", self._chat, methods=["POST"])
    self.app = Starlette(routes=[route])

  def count(self, stage: str) -> int:
    return sum(asked == stage for asked, _, _ in self.asked)

  async def _chat(self, http: Request) -> Response:
    body = json.loads(await http.body())
    first = body["messages"][0]["content"].partition("\n")[0]
    stage = _OPENINGS.get(first, "solve")
    self.asked.append((stage, body, dict(http.headers)))
    case = case_of(body)
    scripted = self.script.get(stage)
    answer = scripted.pop(0) if scripted else self.always.get(stage)
    if callable(answer):
      answer = answer(case, body)
    if isinstance(answer, float):
      await asyncio.sleep(answer)
      answer = None
    if answer is None:
      answer = GOOD[stage](case, body)
    if answer is CUT:
      return StreamingResponse(_cut(), headers={"Content-Length": "1000"})
    if isinstance(answer, tuple):
      status, headers, text = answer
      return Response(text, status, headers, media_type="application/json")
    if isinstance(answer, str):
      answer = {"message": {"role": "assistant", "content": answer}}
    text = json.dumps(answer["message"])
    usage = {"prompt_tokens": len(json.dumps(body)), "completion_tokens": len(text)}
    return JSONResponse({
        "choices": [{"index": 0, "finish_reason": "stop", **answer}], "usage": usage
    })  # fmt: skip


@contextlib.contextmanager
def serving(fake: Fake) -> Iterator[str]:
  """The endpoint's URL while it answers."""
  url, stop = serve(fake.app)
  try:
    yield f"{url}/v1"
  finally:
    stop()


def case_of(body: dict[str, Any]) -> int:
  """The number of the task that a request is about; an idea's is of its words."""
  said = json.dumps(body["messages"])
  found = re.search(r"case(\d{4})", said)
  return int(found.group(1)) if found else 1000 + zlib.crc32(said.encode()) % 9000


def settings(url: str, **given: Any) -> Settings:
  return Settings(**{"endpoint": url, "model": "fake-1", "concurrency": 1} | given)


def carried_out(fake: Fake, out: Path, count: int = 1, **given: Any) -> dict[str, Any]:
  """The summary of a run of so many ideas, one after the other."""
  with serving(fake) as url:
    return run.synthesize(out, count, 0, "train", settings(url, **given))


async def _cut():
  yield b'{"choices": ['
  raise ConnectionResetError


# A good task: which orders are paid, and what they come to.


def orders(case: int) -> list[tuple[str, str, str]]:
  """client, status and amount of each order."""
  rng = random.Random(case)
  clients = ("Acorn", "Beacon", "Driftwood", "Everline", "Fernhill")
  drawn = [
      (rng.choice(clients), rng.choice(("paid", "open")), rng.randint(500, 90000))
      for _ in range(16)
  ]
  return [(c, s, f"{cents / 100:.2f}") for c, s, cents in drawn] + [
      ("Goldcrest", "paid", "12.40")
  ]


def expected(case: int) -> dict[str, Any]:
  paid = [row for row in orders(case) if row[1] == "paid"]
  return {
      "count": len(paid),
      "total": round(sum(float(amount) for _, _, amount in paid), 2),
      "clients": sorted({client for client, _, _ in paid}),
  }


def idea(case: int, body: dict[str, Any]) -> str:
  return _json({
      "title": f"Paid orders, case{case}",
      "goal": "Find the paid orders and say what they come to, and whose they are.",
      "inputs": [f"data/case{case}.csv: the orders"],
      "deliverables": [f"out/paid{case}.json: count, total and clients"],
  })


def task(case: int, body: dict[str, Any]) -> str:
  rows = [f"{case}-{n},{c},{s},{a}" for n, (c, s, a) in enumerate(orders(case))]
  return _json({
      "instruction": instruction(case),
      "files": [
          {"path": f"data/case{case}.csv",
           "content": "\n".join(["id,client,status,amount", *rows]) + "\n"},
          {"path": "notes.md", "content": f"# Orders\n\nThe list is case{case}.\n"},
      ],
      "requires": [],
      "difficulty": 2,
  })  # fmt: skip


def instruction(case: int) -> str:
  return (
      f"From data/case{case}.csv take the orders whose status is paid. Write"
      f" out/paid{case}.json: one object with count (how many they are), total (the sum"
      " of their amounts as a number, rounded to two decimals) and clients (a list of"
      " their clients, each once, sorted by name). Leave the input as it is."
  )


def program(case: int) -> str:
  return f'''"""Paid orders."""
import hashlib
import json
import os

EXPECTED = {expected(case)!r}


def read(path):
  try:
    with open(path, "rb") as file:
      return file.read(1000000)
  except OSError:
    return b""


def grade(workspace, final_message, transcript, services):
  try:
    got = json.loads(read(os.path.join(workspace, "out", "paid{case}.json")))
  except (ValueError, RecursionError):
    got = None
  right = got == EXPECTED
  with open(os.path.join(os.path.dirname(__file__), "inputs.json")) as file:
    inputs = json.load(file)
  kept = all(
      hashlib.sha256(read(os.path.join(workspace, path))).hexdigest() == digest
      for path, digest in inputs.items()
  )
  return {{
      "count": float(right), "total": float(right), "clients": float(right),
      "inputs_kept": float(right and kept),
  }}
'''


def checks(case: int, body: dict[str, Any]) -> str:
  return f"```python\n{program(case)}```"


def rubric(case: int, body: dict[str, Any]) -> str:
  levels = {"0": "no", "0.25": "hardly", "0.5": "half", "0.75": "mostly", "1": "yes"}
  return _json({
      "criteria": [
          {"name": "plain_words", "file_path": "", "scores": levels, "weight": 1,
           "criterion": "Does the closing message plainly say what was made?"},
          {"name": "readable", "file_path": f"out/paid{case}.json", "scores": levels,
           "criterion": "Is the file laid out so that a person can read it?"},
      ]
  })  # fmt: skip


def solve(case: int, body: dict[str, Any]) -> str | dict[str, Any]:
  turn = sum(message["role"] == "assistant" for message in body["messages"])
  if turn == 0:
    return call("read", path=f"data/case{case}.csv")
  if turn == 1:
    return call("exec", command=command(case))
  return f"The paid orders are in out/paid{case}.json."


def command(case: int) -> str:
  return (
      'python3 -c "import csv, json, os\n'
      f"rows = [r for r in csv.DictReader(open('data/case{case}.csv'))"
      " if r['status'] == 'paid']\n"
      "os.makedirs('out', exist_ok=True)\n"
      "found = {'count': len(rows),\n"
      "  'total': round(sum(float(r['amount']) for r in rows), 2),\n"
      "  'clients': sorted({r['client'] for r in rows})}\n"
      f"json.dump(found, open('out/paid{case}.json', 'w'), indent=1)\n\""
  )


def repair(case: int, body: dict[str, Any]) -> str:
  return checks(case, body)


def call(name: str, **arguments: Any) -> dict[str, Any]:
  """A choice that calls a tool."""
  function = {"name": name, "arguments": json.dumps(arguments)}
  made = {"id": f"call_{name}", "type": "function", "function": function}
  message = {"role": "assistant", "content": None, "tool_calls": [made]}
  return {"message": message, "finish_reason": "tool_calls"}


GOOD = {
    "idea": idea, "task": task, "checks": checks, "solve": solve, "rubric": rubric,
    "repair": repair,
}  # fmt: skip


def _json(value: Any) -> str:
  return f"```json\n{json.dumps(value, indent=1)}\n```"
