"""Who makes attempts may die, be stopped or be changed: every sample counts once."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.trajectory import scored
from clawgym_jax.pool import Pool
from sandbox.backends.labels import label, labelled
from sandbox.fleet import AttemptResult, RunSettings, driver, roll_out, run_attempts
from sandbox.fleet.executor import InProcess, Processes, WorkerLost, local, worker
from sandbox.fleet.figures import Figures
from sandbox.fleet.job import job_of, make, packed
from sandbox.harnesses import load
from sandbox.reap import reap
from sandbox.verify import Verifiers
from tests.sandbox.scripted_api import call, reply, serve
from tests.sandbox.small_task import execs, make_task, solve_by
from tests.sandbox.test_rollout import slow_tasks, trajectories, wait_for


def processes():
  """Process id -> (parent, session, command line) of those that have not ended; what
  lost its parent waits for process 1 of the machine to collect it."""
  found = {}
  for entry in Path("/proc").iterdir():
    try:
      words = (entry / "stat").read_bytes().rpartition(b")")[2].split()
      if words[0] == b"Z":
        continue
      command = (entry / "cmdline").read_bytes().decode(errors="replace")
      found[int(entry.name)] = (
          int(words[1]), int(words[3]), command.replace("\0", " ")
      )  # fmt: skip
    except (OSError, ValueError):
      continue
  return found


def workers_of(parent):
  return [
      pid
      for pid, (above, _, command) in processes().items()
      if above == parent and "spawn_main" in command
  ]


def worker_with(parent, words):
  """The worker of `parent` below which a process is called `words`, or None."""
  table = processes()
  for pid, (_, _, command) in table.items():
    if command.strip() != words:
      continue
    while pid in table and table[pid][0] != parent:
      pid = table[pid][0]
    if pid in table:
      return pid
  return None


def start(out, tasks, *args):
  return subprocess.Popen(
      [sys.executable, "-m", "sandbox.rollout", "--harness=oracle", f"--out={out}",
       f"--tasks={tasks}", *args],
      env={**os.environ, "PYTHONPATH": os.getcwd()}, start_new_session=True,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
  )  # fmt: skip


def summary_of(out):
  return json.loads((out / "summary.json").read_text())


def pool_with(tmp_path, *tasks, samples=1):
  pool = Pool.open(f"sqlite:///{tmp_path}/pool.db")
  for task in tasks:
    pool.add_group(task.id, "eval", task.root, samples)
  return pool


def test_workers_make_what_this_process_makes(tmp_path):
  tasks = tmp_path / "tasks"
  for name in ("a", "b"):
    make_task(tasks / name)
  make_task(tasks / "broken", "def grade(*a): 1/0")
  (make_task(tasks / "torn").root / "task.json").write_text("{")

  def made(**fields):
    out = tmp_path / str(fields["workers"])
    settings = RunSettings(out=out, harness="oracle", tasks=tasks, samples=2, **fields)
    summary = roll_out(settings)
    assert summary == roll_out(settings) == summary_of(out)
    assert summary["attempts_per_second"] > 0
    for stage in ("boot", "work", "verify"):
      figures = summary["stage_seconds"][stage]
      assert 0 < figures["p50"] <= figures["p95"] < 60
    return [
        (t.id, t.outcome, t.final_message, t.metadata["changes"])
        for t in trajectories(out)
    ]

  alone, shared = made(workers=1), made(workers=2)
  assert len(shared) == 8 and [t[1].status for t in shared].count("scored") == 4
  for one, other in zip(alone, shared, strict=True):
    # A refilled sample has the same number of attempts, whoever made them.
    assert one[0] == other[0] and one[2:] == other[2:]
    assert one[1].status == other[1].status and one[1].cause == other[1].cause


def test_a_killed_worker_loses_nothing(tmp_path):
  tasks = slow_tasks(tmp_path / "tasks", 6, 1.5)
  out = tmp_path / "out"
  process = start(out, tasks, "--workers=2", "--concurrency=4")
  wait_for(lambda: {m.pid for m in labelled().values()} >= set(workers_of(process.pid))
           and len(workers_of(process.pid)) == 2, process)  # fmt: skip
  victim = workers_of(process.pid)[0]
  os.kill(victim, signal.SIGKILL)
  _, said = process.communicate(timeout=60)
  assert process.returncode == 0, said
  summary = summary_of(out)
  assert (summary["planned"], summary["scored"], summary["mean_reward"]) == (6, 6, 1.0)
  (cause,) = summary["dropped_attempts_by_cause"]
  assert cause == "worker_lost: a worker process was ended by SIGKILL"
  assert summary["refilled"] == summary["dropped_attempts_by_cause"][cause] >= 1
  assert sorted(t.task_id for t in trajectories(out)) == [f"t{i}" for i in range(6)]


def test_what_kills_workers_uses_up_its_own_attempts_alone(tmp_path):
  poison, neighbour = (make_task(tmp_path / name) for name in ("poison", "neighbour"))
  for task, seconds in ((poison, "61.5"), (neighbour, "3.5")):
    solve_by(task, *execs(f"sleep {seconds}", "echo 7 > out.txt"))
  pool = pool_with(tmp_path, poison, neighbour)
  killed = []

  async def kill():
    while len(killed) < 3:
      await asyncio.sleep(0.05)
      pid = worker_with(os.getpid(), "sleep 61.5")
      together = worker_with(os.getpid(), "sleep 3.5")
      if pid and pid not in killed and (len(killed) == 2 or together == pid):
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

  async def whole():
    killing = asyncio.create_task(kill())
    async with Processes(1) as executor:
      await run_attempts(
          pool, "eval", load("oracle"), owner="me", concurrency=2, executor=executor
      )
    await killing

  asyncio.run(asyncio.wait_for(whole(), 60))
  lost, kept = sorted(pool.trajectories("eval"), key=lambda t: t.task_id, reverse=True)
  assert lost.outcome.status == "unscored" and lost.attempt == 2
  assert lost.outcome.cause.startswith("worker_lost")
  assert kept.outcome.score == 1.0 and kept.attempt == 2
  assert pool.dropped("eval") == {lost.outcome.cause: 5}
  assert not workers_of(os.getpid())


@pytest.mark.parametrize("how", ["Ctrl-C", "kill -9"])
def test_an_ended_driver_leaves_no_worker(tmp_path, how):
  tasks = slow_tasks(tmp_path / "tasks", 4, 2.0)
  out = tmp_path / "out"
  process = start(out, tasks, "--workers=2", "--concurrency=4")
  wait_for(lambda: {m.pid for m in labelled().values()} >= set(workers_of(process.pid))
           and len(workers_of(process.pid)) == 2, process)  # fmt: skip
  workers = set(workers_of(process.pid))
  if how == "Ctrl-C":
    os.killpg(process.pid, signal.SIGINT)  # a terminal's goes to all of them
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130 and said.endswith("the same command continues\n")
    assert "Traceback" not in said
  else:
    process.kill()
    process.communicate(timeout=30)
  wait_for(lambda: not [
      pid for pid, (_, session, _) in processes().items() if session == process.pid
  ])  # fmt: skip
  wait_for(lambda: not [m for m in labelled().values() if m.pid in workers])
  again = start(out, tasks, "--concurrency=4")  # by another executor, too
  _, said = again.communicate(timeout=60)
  assert again.returncode == 0, said
  summary = summary_of(out)
  assert summary["scored"] == 4 and summary["mean_reward"] == 1.0
  assert set(summary["dropped_attempts_by_cause"]) == {"released"}


def test_a_model_is_reached_from_workers_at_the_given_address(tmp_path):
  make_task(tmp_path / "tasks" / "t")
  answers = [
      reply("", call("write", path="out.txt", content="7\n")),
      reply("The sum is 7."),
  ]
  settings = RunSettings(
      out=tmp_path / "out", harness="claw", tasks=tmp_path / "tasks", model="m",
      concurrency=2, workers=2, gateway_host="127.0.0.2",
  )  # fmt: skip

  async def whole():
    async with serve(*answers) as api:
      changed = {**vars(settings), "upstream": api.url}
      return await asyncio.to_thread(roll_out, RunSettings(**changed))

  assert asyncio.run(whole())["mean_reward"] == 1.0
  (done,) = trajectories(tmp_path / "out")
  assert len(done.steps) == 2 and done.metadata["model_calls"] == 2


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(executor="slurm"), "no executor 'slurm'"),
        (dict(per_node=3), "--per_node is for --executor=ray"),
        (dict(executor="ray", workers=2), "--workers is for --executor=local"),
        (dict(gateway_host="0.0.0.0"), "no address that others can call"),
    ],
)
def test_settings_of_executors_are_checked(tmp_path, fields, message):
  make_task(tmp_path / "tasks" / "t")
  base = dict(out=tmp_path / "out", harness="oracle", tasks=tmp_path / "tasks")
  with pytest.raises(UserError, match=message):
    roll_out(RunSettings(**base, **fields))
  assert not (tmp_path / "out").exists()


def test_what_ray_needs_is_said_where_it_is_missing(tmp_path, monkeypatch):
  make_task(tmp_path / "tasks" / "t")
  monkeypatch.setitem(sys.modules, "ray", None)
  monkeypatch.delitem(sys.modules, "sandbox.fleet.executor.ray", raising=False)
  base = dict(out=tmp_path / "out", harness="oracle", tasks=tmp_path / "tasks")
  with pytest.raises(UserError, match="needs Ray, which isn't installed"):
    roll_out(RunSettings(**base, executor="ray"))


def test_no_more_than_the_bound_is_in_flight(tmp_path):
  tasks = [make_task(tmp_path / f"t{i}") for i in range(7)]
  pool = pool_with(tmp_path, *tasks)
  now, seen = [], []

  class Watched(InProcess):
    async def run(self, job, *, alone=False):
      now.append(job)
      seen.append((len(now), pool.counts("eval")["running"]))
      try:
        return await super().run(job)
      finally:
        now.remove(job)

  finished = []
  asyncio.run(run_attempts(
      pool, "eval", load("null"), owner="me", concurrency=3, executor=Watched(),
      finished=finished.append,
  ))  # fmt: skip
  assert max(flying for flying, _ in seen) == 3
  assert all(claimed <= 3 for _, claimed in seen)
  assert len(seen) == len(finished) == len({t.id for t in finished}) == 7


def test_an_attempt_that_was_given_to_another_is_stopped(tmp_path, monkeypatch):
  monkeypatch.setattr(driver, "LEASE_SECONDS", 0.8)
  slow_tasks(tmp_path / "tasks", 1, 50)
  url = f"sqlite:///{tmp_path}/pool.db"
  pool = Pool.open(url)
  pool.add_group("g", "eval", tmp_path / "tasks" / "t0", 1)
  finished = []

  async def steal():
    while not (pid := worker_with(os.getpid(), "sleep 50")):
      await asyncio.sleep(0.05)
    other = Pool.open(url)
    connection = sqlite3.connect(tmp_path / "pool.db", timeout=30)
    while True:  # between two renewals
      with connection:
        connection.execute("UPDATE attempts SET expires=1 WHERE state='running'")
      attempt = other.claim("eval", "other", 60.0)
      if attempt is not None:
        break
    result = AttemptResult(scored(0.5))
    theirs = driver._trajectory(attempt, "t0", load("oracle"), result, time.time())
    while worker_with(os.getpid(), "sleep 50") == pid:
      await asyncio.sleep(0.05)
    assert other.complete(theirs) and not other.complete(theirs)
    connection.close()
    other.close()

  async def whole():
    async with Processes(2) as executor:
      stealing = asyncio.create_task(steal())
      await run_attempts(
          pool, "eval", load("oracle"), owner="me", concurrency=1,
          executor=executor, finished=finished.append,
      )  # fmt: skip
      await stealing

  asyncio.run(asyncio.wait_for(whole(), 40))
  (only,) = pool.trajectories("eval")
  assert only.attempt == 1 and only.outcome.score == 0.5
  assert finished == [] and pool.dropped("eval") == {"lease expired": 1}


def test_lost_sandboxes_are_made_again_within_bounds(tmp_path):
  slow_tasks(tmp_path / "tasks", 1, 51)
  pool = Pool.open(f"sqlite:///{tmp_path}/pool.db")
  pool.add_group("g", "eval", tmp_path / "tasks" / "t0", 1)
  killed = []

  async def kill():
    while len(killed) < 4:
      await asyncio.sleep(0.05)
      box = worker_with(os.getpid(), "sleep 51")  # here the sandbox's own process
      if box and box not in killed:
        os.kill(box, signal.SIGKILL)
        killed.append(box)

  async def whole():
    killing = asyncio.create_task(kill())
    await run_attempts(
        pool, "eval", load("oracle"), owner="me", concurrency=2, executor=InProcess()
    )
    killing.cancel()

  asyncio.run(asyncio.wait_for(whole(), 60))
  (only,) = pool.trajectories("eval")
  assert len(killed) == 3 and only.attempt == 2
  dropped = pool.dropped("eval")
  assert sum(dropped.values()) == 3
  assert all(cause.startswith("sandbox_lost") for cause in dropped)


def test_a_failure_of_the_run_is_said_as_it_is(tmp_path):
  pool = pool_with(tmp_path, make_task(tmp_path / "t"))

  def full(_):
    raise UserError("the disk is full")

  with pytest.raises(UserError, match="the disk is full"):
    asyncio.run(run_attempts(
        pool, "eval", load("null"), owner="me", concurrency=2, finished=full,
        executor=InProcess(),
    ))  # fmt: skip


def test_what_can_not_be_sent_or_is_gone_is_unscored_with_its_cause(tmp_path):
  task = make_task(tmp_path / "t")
  pool = pool_with(tmp_path, task)
  job, gone = job_of(task.root, "oracle"), make_task(tmp_path / "gone")
  vanished = job_of(gone.root, "oracle")
  shutil.rmtree(gone.root)
  other = job_of(make_task(tmp_path / "other").root, "oracle")
  make_task(tmp_path / "other", difficulty=3)

  async def whole():
    async with Processes(1) as executor:
      await run_attempts(
          pool, "eval", load("oracle"), owner="me", concurrency=1,
          executor=executor, turns=lambda: 8,
      )  # fmt: skip
      for each in (vanished, other):
        result = await executor.run(each)
        assert result.outcome.status == "unscored"
        assert result.outcome.cause.startswith("bad_task: ")
      assert (await executor.run(job)).outcome.score == 1.0

  asyncio.run(whole())
  (unsent,) = pool.trajectories("eval")
  assert unsent.outcome.cause.startswith("internal_error: the job can't be sent")
  assert pool.dropped("eval") == {unsent.outcome.cause: 3}


@pytest.mark.slow
def test_a_worker_that_says_nothing_is_replaced(tmp_path, monkeypatch):
  monkeypatch.setattr(local, "_SILENT_SECONDS", 4.0)
  slow, quick = slow_tasks(tmp_path / "tasks", 1, 50), make_task(tmp_path / "quick")
  hung = job_of(slow / "t0", "oracle")

  async def whole():
    async with Processes(1) as executor:
      waiting = asyncio.create_task(executor.run(hung))
      while not (pid := worker_with(os.getpid(), "sleep 50")):
        await asyncio.sleep(0.05)
      os.kill(pid, signal.SIGSTOP)
      with pytest.raises(WorkerLost, match="said nothing for 12 s"):
        await waiting
      assert pid not in workers_of(os.getpid())
      return await executor.run(job_of(quick.root, "oracle"))

  assert asyncio.run(asyncio.wait_for(whole(), 90)).outcome.score == 1.0


def test_a_result_that_can_not_be_sent_is_unscored(tmp_path, monkeypatch):
  job = job_of(make_task(tmp_path / "t").root, "oracle")

  async def unsendable(*_):
    return AttemptResult(scored(1.0), transcript=[{"role": lambda: 0}])

  monkeypatch.setattr(worker, "make", unsendable)

  async def whole():
    ours, theirs = socket.socketpair()
    serving = asyncio.create_task(worker._serve(theirs))
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    writer.write(worker.frame(1, job))
    number, result = 0, None
    while not number:  # 0 says that it lives
      number, result = await worker.receive(reader)
    writer.close()
    await serving
    return result

  cause = asyncio.run(whole()).outcome.cause
  assert cause.startswith("internal_error: the result can't be sent")


def test_a_task_travels_where_it_can_not_be_seen(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # no older places
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "there"))
  (tmp_path / "there").mkdir()
  task = make_task(tmp_path / "t")
  (task.root / "workspace" / "empty").mkdir()
  job = packed(job_of(task.root, "oracle"))
  shutil.rmtree(task.root)
  assert asyncio.run(make(job, Verifiers())).outcome.score == 1.0
  assert not list((tmp_path / "there").iterdir())
  dead = subprocess.Popen([sys.executable, "-c", ""])
  name = label("run", 60).replace(f":{os.getpid()}:", f":{dead.pid}:")
  dead.wait()
  for folder in (name, label("run", 60), "other"):
    (tmp_path / "there" / folder / "workspace").mkdir(parents=True)
  assert reap()["directories"] == 1
  assert not (tmp_path / "there" / name).exists()
  assert len(list((tmp_path / "there").iterdir())) == 2


def test_speed_leaves_out_the_time_between():
  figures = Figures()
  assert figures.summary() == {"attempts_per_second": None, "stage_seconds": {}}
  spans = [(100, 102), (101, 104), (500, 501), (100.5, 101)]
  for number, (begin, end) in enumerate(spans, start=1):
    figures.add({"span": [begin, end], "seconds": {"boot": number / 10}})
  figures.add({"seconds": {}})  # unscored before it began
  summary = figures.summary()
  assert summary["attempts_per_second"] == 4 / 5
  assert summary["stage_seconds"] == {"boot": {"p50": 0.2, "p95": 0.4}}
