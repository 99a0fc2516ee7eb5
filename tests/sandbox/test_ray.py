"""Rollouts on a real Ray cluster of two nodes, one of which is lost."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys

import pytest

from sandbox.backends.labels import labelled
from sandbox.fleet.job import job_of
from tests.sandbox.scripted_api import call, reply, serve
from tests.sandbox.small_task import make_task
from tests.sandbox.test_fleet import processes, start, summary_of
from tests.sandbox.test_rollout import slow_tasks, trajectories, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster():
  """A head without CPUs, which makes no attempts; tests add the nodes that do."""
  cluster_utils = pytest.importorskip("ray.cluster_utils")
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("PYTHONPATH", os.getcwd())
    made = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    patch.setenv("RAY_ADDRESS", made.address)
    yield made
    made.shutdown()


@pytest.fixture
def nodes(cluster):
  """Two nodes, each with a raylet of its own, as if on two hosts."""
  made = [cluster.add_node(num_cpus=2) for _ in range(2)]
  yield made
  for node in made:
    if node in cluster.worker_nodes:
      cluster.remove_node(node)


def actors():
  """Process ids of the actors that make attempts."""
  return [
      pid
      for pid, (_, _, command) in processes().items()
      if command.startswith("ray::Attempts")
  ]


WORKED = set()  # every actor that was seen with a sandbox


def working():
  """The actors that have sandboxes now."""
  now = {mark.pid for mark in labelled().values()} & set(actors())
  WORKED.update(now)
  return now


def nothing_left():
  """No actor, and no sandbox of one; other runs on the machine have theirs."""
  wait_for(lambda: not actors(), seconds=60)
  wait_for(lambda: not WORKED & {mark.pid for mark in labelled().values()})


def test_a_node_that_is_lost_loses_nothing(tmp_path, cluster, nodes):
  tasks = slow_tasks(tmp_path / "tasks", 16, 2.0)
  out = tmp_path / "out"
  process = start(out, tasks, "--executor=ray", "--concurrency=8")
  wait_for(lambda: len(working()) == 2, process, 120)
  above = {processes()[pid][0] for pid in actors()}
  assert len(actors()) == len(above) == 2  # one on each node
  cluster.remove_node(nodes[0], allow_graceful=False)
  _, said = process.communicate(timeout=240)
  assert process.returncode == 0, said
  summary = summary_of(out)
  assert (summary["planned"], summary["scored"]) == (16, 16)
  assert summary["mean_reward"] == 1.0
  causes = summary["dropped_attempts_by_cause"]
  assert causes and all(cause.startswith("worker_lost: ") for cause in causes)
  assert 1 <= summary["refilled"] <= 4  # what the node had, and no more
  assert len({t.id for t in trajectories(out)}) == 16
  nothing_left()


def test_an_actor_that_is_killed_is_made_anew(tmp_path, nodes):
  tasks = slow_tasks(tmp_path / "tasks", 12, 2.0)
  out = tmp_path / "out"
  process = start(out, tasks, "--executor=ray", "--concurrency=4", "--per_node=2")
  wait_for(lambda: len(working()) == 2, process, 120)
  victim = min(working())
  os.kill(victim, signal.SIGKILL)
  wait_for(lambda: len(working() - {victim}) == 2, process, 60)
  assert len([m for m in labelled().values() if m.pid in working()]) <= 2 * 2 * 4
  _, said = process.communicate(timeout=240)
  assert process.returncode == 0, said
  summary = summary_of(out)
  assert (summary["scored"], summary["mean_reward"]) == (12, 1.0)
  assert 1 <= summary["refilled"] <= 2
  nothing_left()


def test_an_attempt_that_is_given_up_is_stopped_on_its_node(tmp_path, nodes):
  from sandbox.fleet.executor.ray import RayNodes

  job = job_of(slow_tasks(tmp_path / "tasks", 1, 600.0) / "t0", "oracle")

  async def whole():
    async with RayNodes(2, None, "bubblewrap") as executor:
      attempt = asyncio.create_task(executor.run(job))
      while not working():
        await asyncio.sleep(0.05)
      attempt.cancel()
      while working():
        await asyncio.sleep(0.05)
      return len(actors()), executor.host

  living, host = asyncio.run(asyncio.wait_for(whole(), 120))
  assert living == 2 and host
  nothing_left()


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM", "kill -9"])
def test_an_ended_driver_leaves_nothing_on_the_nodes(tmp_path, nodes, how):
  tasks = slow_tasks(tmp_path / "tasks", 4, 600.0)
  out = tmp_path / "out"
  process = start(out, tasks, "--executor=ray", "--concurrency=4")
  wait_for(lambda: len(working()) == 2, process, 120)
  number = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM}.get(how, signal.SIGKILL)
  process.send_signal(number)
  _, said = process.communicate(timeout=60)
  if how == "kill -9":
    assert process.returncode == -9
  else:
    assert process.returncode == 128 + number, said
    assert said.endswith("the same command continues\n") and "Traceback" not in said
  nothing_left()


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs util-linux's unshare")
def test_a_task_travels_to_a_node_that_does_not_see_it(tmp_path, cluster):
  """And the model is asked from there, at the address that was given."""
  make_task(tmp_path / "tasks" / "t")
  out = tmp_path / "out"
  answers = [
      reply("", call("write", path="out.txt", content="7\n")),
      reply("The sum is 7."),
  ]

  async def rolled_out():
    async with serve(*answers) as api:
      process = start(
          out, tmp_path / "tasks", "--executor=ray", "--harness=claw", "--model=m",
          f"--upstream={api.url}", "--gateway_host=127.0.0.2",
      )  # fmt: skip
      _, said = await asyncio.to_thread(process.communicate, timeout=240)
      assert process.returncode == 0, said

  hidden = f"mount -t tmpfs none {tmp_path / 'tasks'} && exec \"$@\""
  flags = ["--mount"] if os.geteuid() == 0 else ["--mount", "--map-root-user"]
  node = subprocess.Popen(
      ["unshare", *flags, "sh", "-c", hidden, "sh",
       sys.executable, "-m", "ray.scripts.scripts", "start", "--block",
       f"--address={cluster.address}", "--num-cpus=2", "--disable-usage-stats"],
      start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
  )  # fmt: skip
  try:
    wait_for(lambda: any(
        each["Alive"] and each["Resources"].get("CPU")
        for each in cluster.global_state.node_table()
    ), node, 120)  # fmt: skip
    asyncio.run(rolled_out())
  finally:
    node.send_signal(signal.SIGTERM)
    node.wait(60)
  assert summary_of(out)["mean_reward"] == 1.0
  (done,) = trajectories(out)
  assert done.metadata["changes"] == {"out.txt": "added"} and len(done.steps) == 2
  nothing_left()
