"""Many states of one task: the outcomes of `verify`, from one warm sandbox."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from clawgym_jax.contracts.task import Limits, Task, load_task, save_task
from data_gen.draft import REGISTRY
from data_gen.mutation import spoiled
from data_gen.compact import make_task as make_procedural
from sandbox.backends import open_sandbox
from sandbox.backends.base import gather, pack
from sandbox.backends.labels import labelled
from sandbox.fleet import grade_with
from sandbox.harnesses import ADVERSARIES, HarnessContext, load
from sandbox.verify import State, Verifier, many, verify, verify_clawgym, verify_many
from tests.sandbox.small_task import make_task as make_foreign

# Every kind of deliverable, and one whose check runs the agent's script.
FEW = (
    "csv_total", "database_update", "json_set", "move_by_type", "pack_folder",
    "script_path",
)  # fmt: skip


def make_task(directory: Path, check: str, **fields) -> Task:
  """A small task that counts as made by our own generator."""
  made_by = {"generator": "procedural-0"}
  return make_foreign(directory, check, provenance=made_by, **fields)


def state(files: dict[str, bytes] = {}, final: str = "", **fields) -> State:
  return State(pack(files), final, **fields)


@pytest.fixture
def fresh(monkeypatch) -> list[State]:
  """The states that were judged in a sandbox of their own, as they come."""
  states = []

  async def counted(task, snapshot, final_message, transcript, **settings):
    states.append(snapshot)
    return await verify(task, snapshot, final_message, transcript, **settings)

  monkeypatch.setattr(many, "verify", counted)
  return states


async def states_of(task: Task) -> list[State]:
  """What the null agent, the adversaries, the oracle and a spoiler leave."""
  states = []
  initial = pack(gather(task.workspace))
  async with open_sandbox(now=task.now) as sandbox:
    await sandbox.start(task.workspace)
    for name in ("null", *ADVERSARIES, "oracle"):
      result = await load(name).run(HarnessContext(task, sandbox))
      snapshot = await sandbox.snapshot()
      states.append(State(snapshot, result.final_message, result.transcript))
      if name != "oracle":
        await sandbox.quiet()
        await sandbox.exec("find . -mindepth 1 -delete")
        await sandbox.restore(initial)
    states.append(spoiled(gather(task.workspace), states[-1]).state)
  return states


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=() if name in FEW else pytest.mark.slow)
        for name in sorted(REGISTRY)
    ],
)
def test_every_state_has_the_outcome_of_verify(tmp_path, family, fresh):
  async def both():
    task = make_procedural(tmp_path / "t", REGISTRY[family], 5, "train", 0)
    states = await states_of(task)
    alone = [
        await verify(task, s.snapshot, s.final_message, s.transcript) for s in states
    ]
    return alone, await verify_many(task, states)

  alone, shared = asyncio.run(both())
  assert shared == alone
  scores = [outcome.score for outcome in shared]
  assert scores[-2] == 1.0 and scores[-1] < 1.0 and not any(scores[:-2])
  runs_scripts = family.startswith("script")
  assert len(fresh) <= (2 if runs_scripts else 0), "most states share a sandbox"


TRIES = {
    "a process": "subprocess.run(['true'])",
    "a shell": "os.system('true')",
    "a fork": "os.fork() or os._exit(0)",
    "another program": "os.execv('/bin/true', ['true'])",
    "a thread": "threading.Thread(target=print).start()",
    "a spawn": "os.posix_spawn('/bin/true', ['true'], {})",
    "a signal": "os.kill(os.getppid(), 0)",
    "machine code": "ctypes.CDLL(None).getpid()",
    "code of the workspace": "sys.path.insert(0, workspace); import planted",
    "code in a string": "exec(open(workspace + '/planted.py').read())",
}


def test_what_needs_a_process_or_runs_code_needs_its_own_sandbox(tmp_path, fresh):
  """Also where the check would take the refusal for an answer."""
  lines = "".join(f"  if final_message == {k!r}: {v}\n" for k, v in TRIES.items())
  check = f"""
import ctypes, os, subprocess, sys, threading
def act(workspace, final_message):
  pass
{lines}
def grade(workspace, final_message, transcript):
  try: act(workspace, final_message)
  except BaseException: return {{"right": 0.0}}
  return {{"right": 1.0}}
"""
  task = make_task(tmp_path / "t", check)
  planted = {"planted.py": b"x = 1\n"}
  states = [state(planted, name) for name in ("nothing", *TRIES)]
  outcomes = asyncio.run(verify_many(task, states))
  assert len(fresh) == len(TRIES)  # all but the first
  ended = {"another program"}  # alone, it replaces the check itself
  for name, outcome in zip(("nothing", *TRIES), outcomes, strict=True):
    if name in ended:
      assert outcome.status == "unscored", name
    else:
      assert outcome.score == 1.0, (name, outcome)


def test_no_process_can_be_had_by_other_means(tmp_path, fresh):
  """Where Python does not say so, the limit of processes does."""
  check = """
import os, _posixsubprocess
def grade(workspace, final_message, transcript):
  if "CLAWGYM_FORKED" not in os.environ:
    return {"refused": 1.0}
  try:
    _posixsubprocess.fork_exec(
      [b"/bin/true"], [b"/bin/true"], True, (), None, None, -1, -1, -1, -1, -1, -1,
      *os.pipe(), False, False, 0, None, None, None, -1, None, False)
  except BlockingIOError:
    return {"refused": 1.0}
  return {"refused": 0.0}
"""
  task = make_task(tmp_path / "t", check)
  assert asyncio.run(verify_many(task, [state()]))[0].score == 1.0
  assert not fresh


LEFT_BEHIND = """
import glob, os
PLACES = ["/workspace", "/tmp", "/tmp/home", "/verify", "/workspace/d"]
PLACES += ["/dev/shm"] * (not os.path.islink("/dev/shm"))
SEEN = []
def grade(workspace, final_message, transcript):
  SEEN.append(1); os.environ["SEEN"] = os.environ.get("SEEN", "") + "x"
  found = [p for place in PLACES for p in glob.glob(place + "/*left*")
           + glob.glob(place + "/.left")]
  values = {
    "clean": float(not found),
    "fresh": float(len(SEEN) == 1 and os.environ["SEEN"] == "x"),
    "own": float(sorted(os.listdir(workspace)) == sorted(final_message.split())),
  }
  for place in PLACES:
    if os.path.isdir(place):
      for name in (".left", "left"):
        open(os.path.join(place, name), "w").write("1")
      os.makedirs(place + "/left.d/a/b", exist_ok=True)
      os.symlink("/checks", place + "/left.link")
  os.chmod(workspace, 0o500); os.chmod("/tmp", 0o500)
  return values
"""


def test_nothing_of_a_state_reaches_the_next(tmp_path, fresh, opened):
  task = make_task(tmp_path / "t", LEFT_BEHIND)
  states = [state({f"{n}.txt": b"1"}, f"{n}.txt") for n in "abc"]
  states.append(state({"d/x": b"1", "e": b""}, "d e"))
  outcomes = asyncio.run(verify_many(task, states))
  assert [outcome.checks for outcome in outcomes] == [
      {"clean": 1.0, "fresh": 1.0, "own": 1.0}
  ] * 4
  assert not fresh and len(opened) == 1


def test_modules_are_imported_once(tmp_path, fresh):
  check = """
import os
PID = os.getpid()
def grade(workspace, final_message, transcript):
  import helper
  here = os.getpid()
  return {"check": float(PID == here), "helper": float(helper.PID == here)}
"""
  helper = b"import os\nPID = os.getpid()\n"
  task = with_check_file(make_task(tmp_path / "t", check), "helper.py", helper)
  outcomes = asyncio.run(verify_many(task, [state()] * 3))
  by_fork = [(o.checks["check"], o.checks["helper"]) for o in outcomes]
  assert by_fork == [(0.0, 1.0), (0.0, 0.0), (0.0, 0.0)] and not fresh


@pytest.mark.parametrize("backend", ["docker", "kubernetes"])
def test_every_backend_judges_alike(tmp_path, request, backend, fresh, opened):
  request.getfixturevalue({"docker": "docker_host"}.get(backend, backend))
  task = make_task(tmp_path / "t", LEFT_BEHIND)
  states = [state({f"{n}.txt": b"1"}, f"{n}.txt") for n in "abc"]
  outcomes = asyncio.run(verify_many(task, states, backend=backend))
  clean = {"clean": 1.0, "fresh": 1.0, "own": 1.0}
  assert [outcome.checks for outcome in outcomes] == [clean] * 3
  assert not fresh and len(opened) == 1
  package = {"reward.sh": b"cat ~/.openclaw/workspace/in.txt"}
  forged = state({"in.txt": b"0.5\n", "reward/reward.sh": b"echo 1"})
  run = verify_clawgym(package, forged, {}, backend=backend)
  assert asyncio.run(run).score == 0.5


def test_a_state_that_can_not_be_wiped_costs_the_sandbox_not_its_score(
    tmp_path, fresh, opened
):
  check = """
import os
def grade(workspace, final_message, transcript):
  os.makedirs(workspace + "/a/b"); os.chmod(workspace + "/a", 0)
  return {"right": 1.0}
"""
  task = make_task(tmp_path / "t", check)
  outcomes = asyncio.run(verify_many(task, [state(), state()]))
  assert [outcome.score for outcome in outcomes] == [1.0, 1.0]
  assert not fresh and len(opened) == 2


@pytest.mark.parametrize(
    "change",
    [
        "open('/checks/check.py', 'a').write('#')",
        "open('/checks/new.py', 'w')",
        "os.chmod('/checks/data.txt', 0)",
        "os.unlink('/checks/data.txt')",
        "os.unlink('/checks/data.txt'); os.symlink('/workspace', '/checks/data.txt')",
        "os.symlink('/workspace', '/checks/json')",
    ],
)
def test_changed_checks_end_their_sandbox(tmp_path, change, fresh, opened):
  check = f"""
import os
def grade(workspace, final_message, transcript):
  if final_message == "change": {change}
  return {{"right": 1.0}}
"""
  task = make_task(tmp_path / "t", check)
  task = with_check_file(task, "data.txt", b"1")
  outcomes = asyncio.run(verify_many(task, [state(final="change"), state(), state()]))
  assert [outcome.score for outcome in outcomes] == [1.0] * 3
  assert len(fresh) == 1 and len(opened) == 2


def with_check_file(task: Task, name: str, data: bytes) -> Task:
  """The same task, whole and hashed, with one file more beside its check."""
  return save_task(
      task.root,
      task,
      workspace=gather(task.workspace),
      checks={**gather(task.checks), name: data},
      turns=task.reference(),
  )


ENDS = """
import os, signal, time
def grade(workspace, final_message, transcript):
  if final_message == "raise": raise ValueError("no")
  if final_message == "exit": os._exit(0)
  if final_message == "stop": signal.raise_signal(signal.SIGSTOP)
  if final_message == "much": return {"x" * 100_000: 1.0}
  if final_message == "kill": signal.raise_signal(signal.SIGKILL)
  if final_message == "eat": [bytes(1 << 20) for _ in range(1 << 12)]
  return {"right": 1.0}
"""


def test_whatever_ends_the_fork_verify_says_what_it_means(tmp_path, fresh):
  task = make_task(tmp_path / "t", ENDS)
  names = ["raise", "exit", "much", "kill", "eat"]
  states = [state(final=name) for name in names]

  async def both():
    alone = asyncio.gather(
        *(verify(task, s.snapshot, s.final_message, []) for s in states)
    )
    mixed = [x for s in states for x in (s, state())]
    return await alone, await verify_many(task, mixed)

  alone, outcomes = asyncio.run(both())
  assert outcomes[::2] == alone
  assert [outcome.score for outcome in outcomes[1::2]] == [1.0] * len(states)
  assert len(fresh) == len(states)


def test_a_fork_that_stands_still_is_killed_in_time(tmp_path, fresh):
  task = make_task(tmp_path / "t", ENDS)
  started = time.monotonic()
  states = [state(final="stop"), state()]
  stopped, after = asyncio.run(verify_many(task, states, seconds=2.0))
  assert (stopped.score, after.score, len(fresh)) == (0.0, 1.0, 1)
  assert stopped.cause == "checks_ended: no result within 2 s"
  assert time.monotonic() - started < 30


def test_checks_that_fail_at_import_are_judged_alone(tmp_path, fresh, opened):
  task = make_task(tmp_path / "t", "raise OSError(1)")
  outcomes = asyncio.run(verify_many(task, [state(), state()]))
  assert {outcome.cause for outcome in outcomes} == {
      "check_error: OSError: 1 (check.py line 1)"
  }
  assert len(fresh) == 2 and len(opened) == 1


def test_foreign_checks_never_share(tmp_path, fresh, opened):
  right = "def grade(*a): return {'right': 1.0}"
  tasks = [
      make_foreign(tmp_path / "none", right),
      make_foreign(tmp_path / "llm", right, provenance={"generator": "llm-1"}),
  ]
  changed = make_task(tmp_path / "changed", right)
  (changed.checks / "check.py").write_text(right + "\n")
  tasks.append(load_task(changed.root))
  for task in tasks:
    outcomes = asyncio.run(verify_many(task, [state(), state()]))
    assert [outcome.score for outcome in outcomes] == [1.0, 1.0]
  assert len(fresh) == 6 and not opened


def test_a_sandbox_judges_a_bounded_number_of_states(
    tmp_path, fresh, opened, monkeypatch
):
  monkeypatch.setattr(many, "_MOST_STATES", 3)
  task = make_task(tmp_path / "t", "def grade(*a): return {'right': 1.0}")
  outcomes = asyncio.run(verify_many(task, [state()] * 7))
  assert len(outcomes) == 7 and len(opened) == 3 and not fresh
  monkeypatch.setattr(many, "_MOST_SECONDS", -1.0)  # each is too old at once
  asyncio.run(verify_many(task, [state()] * 2))
  assert len(opened) == 5


def test_a_lost_sandbox_judges_again_only_what_has_no_result(tmp_path, fresh, opened):
  """Its process 1 is killed between two states and in the middle of one."""
  check = """
import time
def grade(workspace, final_message, transcript):
  time.sleep(float(final_message)); return {"right": 1.0}
"""
  task = make_task(tmp_path / "t", check)

  async def whole():
    async with Verifier(task) as verifier:
      outcomes = [await verifier.judge(state(final="0"))]
      os.kill(opened[-1].pid, signal.SIGKILL)
      outcomes += [await verifier.judge(state(final="0")) for _ in range(2)]
      judging = asyncio.create_task(verifier.judge(state(final="1")))
      await asyncio.sleep(0.5)
      os.kill(opened[-1].pid, signal.SIGKILL)
      outcomes.append(await judging)
      outcomes.append(await verifier.judge(state(final="0")))
      return outcomes

  assert [outcome.score for outcome in asyncio.run(whole())] == [1.0] * 5
  assert len(fresh) == 2 and len(opened) == 3


def test_it_leaves_no_sandbox_behind(tmp_path, opened):
  task = make_task(tmp_path / "t", "import time\ndef grade(*a): time.sleep(9)")

  def alive() -> list[int]:
    return [pid for pid, mark in labelled().items() if mark.run_id == "left-behind"]

  async def cancelled():
    judging = asyncio.create_task(verify_many(task, [state()], run_id="left-behind"))
    while not alive():
      await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    judging.cancel()
    await asyncio.gather(judging, return_exceptions=True)

  started = time.monotonic()
  asyncio.run(cancelled())
  assert not alive() and time.monotonic() - started < 8


def test_services_reach_the_checks_that_ask_for_them(tmp_path):
  check = """
def grade(workspace, final_message, transcript, services):
  return {
    "sent": float([r["data"]["to"] for r in services] == ["a@b"]),
    "said": float(final_message == "sent" and transcript == [{"role": "user"}]),
  }
"""
  reports = [{"service": "outbox", "seconds": 1.5, "data": {"to": "a@b"}}]
  for number, task in enumerate((
      make_task(tmp_path / "own", check), make_foreign(tmp_path / "foreign", check)
  )):
    given = state(final="sent", transcript=[{"role": "user"}], reports=reports)
    outcomes = asyncio.run(verify_many(task, [given, given, state()]))
    assert [outcome.score for outcome in outcomes] == [1.0, 1.0, 0.0], number
    alone = verify(
        task, given.snapshot, "sent", given.transcript, reports=given.reports
    )
    assert asyncio.run(alone).score == 1.0
  keyword = check.replace("transcript, services", "transcript, *, services=()")
  task = make_task(tmp_path / "keyword", keyword)
  assert asyncio.run(verify_many(task, [given, given]))[1].score == 1.0


def test_the_checks_seconds_are_none_of_the_attempts(tmp_path):
  """An attempt that used its whole time is judged for as long as any other."""
  check = "import time\ndef grade(*a):\n  time.sleep(2); return {'right': 0.5}"
  task = make_foreign(tmp_path / "t", check, limits=Limits(turns=1, seconds=1.0))
  outcome = asyncio.run(grade_with(task, "oracle"))
  assert (outcome.status, outcome.score) == ("scored", 0.5)
