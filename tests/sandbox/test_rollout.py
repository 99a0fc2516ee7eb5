"""Whole runs: counted, resumable after any end, and without a trace behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import read_lines, write_json
from clawgym_jax.contracts.rubric import judged, rubric_record
from clawgym_jax.contracts.task import SolutionCall
from clawgym_jax.contracts.trajectory import RUBRIC_UNJUDGED, trajectory_from_record
from clawgym_jax.pool import Pool
from sandbox.backends.labels import labelled
from sandbox.curate import curate
from sandbox.fleet import RunSettings, roll_out
from sandbox.reap import reap
from tests.contracts.rubrics import criterion
from tests.sandbox import service_task
from tests.sandbox.small_task import execs, make_task, solve_by


def trajectories(out):
  return [trajectory_from_record(r) for r in read_lines(out / "trajectories.jsonl")]


def slow_tasks(folder, count, seconds):
  for index in range(count):
    task = make_task(folder / f"t{index}")
    solve_by(task, *execs(f"sleep {seconds}", "echo 7 > out.txt"))
  return folder


def test_any_file_name_can_be_recorded(tmp_path):
  task = make_task(tmp_path / "tasks" / "t")
  command = "touch \"$(printf '\\377')\" 'new\nline' && echo 7 > out.txt"
  solve_by(task, *execs(command))
  settings = RunSettings(
      out=tmp_path / "out", harness="oracle", tasks=tmp_path / "tasks"
  )
  assert roll_out(settings)["mean_reward"] == 1.0
  (done,) = trajectories(tmp_path / "out")
  changes = {"out.txt": "added", "\udcff": "added", "new\nline": "added"}
  assert done.metadata["changes"] == changes
  assert roll_out(settings)["mean_reward"] == 1.0


def test_a_rubric_waits_for_its_judge(tmp_path):
  make_task(tmp_path / "tasks" / "plain")
  hybrid = make_task(tmp_path / "tasks" / "with_rubric").root
  write_json(hybrid / "rubric.json", rubric_record([criterion()]))
  summary = roll_out(
      RunSettings(out=tmp_path / "out", harness="oracle", tasks=tmp_path / "tasks")
  )
  assert (summary["scored"], summary["unscored"], summary["refilled"]) == (2, 0, 0)
  assert (summary["mean_reward"], summary["rubrics_to_judge"]) == (1.0, 1)
  plain, waiting = (t.outcome for t in trajectories(tmp_path / "out"))
  assert plain.score == 1.0
  assert (waiting.status, waiting.score, waiting.code) == ("scored", None, 1.0)
  assert waiting.cause == RUBRIC_UNJUDGED
  assert judged(waiting, [criterion()], {"tone": 0.5}).score == pytest.approx(0.85)


def test_a_file_in_the_place_of_the_folder_is_said(tmp_path):
  make_task(tmp_path / "tasks" / "t")
  (tmp_path / "out").touch()
  process = start(tmp_path / "out", f"--tasks={tmp_path / 'tasks'}")
  _, said = process.communicate(timeout=60)
  assert process.returncode == 1
  assert "give the path of a folder" in said and "Traceback" not in said


def test_one_broken_check_does_not_stop_the_run(tmp_path):
  for name in ("a", "b"):
    make_task(tmp_path / "tasks" / name)
  make_task(tmp_path / "tasks" / "broken", "def grade(*a): 1/0")
  (make_task(tmp_path / "tasks" / "torn").root / "task.json").write_text("{")
  settings = RunSettings(
      out=tmp_path / "out", harness="oracle", tasks=tmp_path / "tasks", samples=2
  )
  summary = roll_out(settings)
  assert (summary["planned"], summary["scored"], summary["unscored"]) == (8, 4, 4)
  assert summary["mean_reward"] == 1.0
  causes = {c.split(":")[0]: n for c, n in summary["unscored_by_cause"].items()}
  assert causes == {"check_error": 2, "bad_task": 2}
  assert summary["check_errors"] == 2
  assert summary["refilled"] == 4  # two samples twice: another try mends no task
  done = trajectories(tmp_path / "out")
  assert len(done) == len({(t.task_id, t.sample_index) for t in done}) == 8
  assert done[0].metadata["changes"] == {"out.txt": "added"}
  assert roll_out(settings) == summary
  with pytest.raises(UserError, match=r"samples \(was 2, is"):
    roll_out(RunSettings(**{**vars(settings), "samples": 3}))


def test_nothing_judged_is_a_failure_with_its_cause(tmp_path):
  make_task(tmp_path / "tasks" / "broken", "def grade(*a): 1/0")
  with pytest.raises(UserError, match="none of 1 samples .* ZeroDivisionError"):
    roll_out(
        RunSettings(out=tmp_path / "out", harness="oracle", tasks=tmp_path / "tasks")
    )


def test_settings_are_checked_before_work_starts(tmp_path):
  make_task(tmp_path / "tasks" / "a")
  (tmp_path / "empty").mkdir()
  for fields, message in (
      (dict(harness="claw"), "needs a model; give --upstream"),
      (dict(harness="pi"), "isn't built in yet"),
      (dict(tasks=tmp_path / "empty"), "holds no tasks"),
      (dict(tasks=None), "give --tasks=DIR"),
      (dict(backend="firejail"), "there is no backend 'firejail'"),
      (dict(pool="postgresql://x/y"), "not supported yet"),
  ):
    base = dict(out=tmp_path / "out", harness="oracle", tasks=tmp_path / "tasks")
    with pytest.raises(UserError, match=message):
      roll_out(RunSettings(**{**base, **fields}))


def test_follow_ends_when_its_channel_is_closed(tmp_path):
  task = make_task(tmp_path / "a")
  url = f"sqlite:///{tmp_path}/pool.db"
  pool = Pool.open(url)
  pool.add_group("g1", "train", task.root, 2)
  process = start(
      tmp_path / "out", "--follow", f"--pool={url}", "--channel=train", "--json"
  )
  wait_for(lambda: pool.pending("train") == 0, process)
  pool.add_group("g2", "train", task.root, 2)
  wait_for(lambda: pool.pending("train") == 0, process)
  assert process.poll() is None
  pool.close_channel("train")
  output, _ = process.communicate(timeout=30)
  assert json.loads(output.splitlines()[-1])["scored"] == 4
  assert len(pool.lease_groups("train", 4, "trainer", 60)) == 2


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_stopped_resumes(tmp_path, how):
  tasks = slow_tasks(tmp_path / "tasks", 6, 1.0)
  out = tmp_path / "out"
  args = (f"--tasks={tasks}", "--concurrency=3")
  process = start(out, *args)
  wait_for(lambda: (out / "pool.db").exists(), process)
  with pytest.raises(UserError, match="another rollout is writing"):
    roll_out(RunSettings(out=out, harness="oracle", tasks=tasks))
  pool = Pool.open(f"sqlite:///{out}/pool.db")
  wait_for(lambda: pool.counts("eval")["scored"] >= 1, process)
  process.send_signal(how)
  _, said = process.communicate(timeout=30)
  assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
  if how == signal.SIGINT:
    assert "the same command continues" in said and "Traceback" not in said
  reap()  # one that was being started may outlive it; a next start reaps too
  wait_for(lambda: not [m for m in labelled().values() if m.pid == process.pid])
  assert not (out / "trajectories.jsonl").exists()
  again = start(out, *args)
  _, said = again.communicate(timeout=60)
  assert again.returncode == 0, said
  done = trajectories(out)
  assert sorted(t.task_id for t in done) == [f"t{i}" for i in range(6)]
  assert all(t.outcome.score == 1.0 for t in done)


def test_curation_counts_every_drop():
  def trajectory(index, *, task="t", text="done", score=1.0, status="scored",
                 finish="stop", name="exec", steps=True, unjudged=False, **said):  # fmt: skip
    call = {"id": f"c{index}", "type": "function",
            "function": {"name": name, "arguments": "{}"}}  # fmt: skip
    tools = [{"type": "function", "function": {"name": "exec"}}]
    made = [
        {"step_id": "s0", "parent_id": None, "tools": tools,
         "messages": [{"role": "user", "content": task}],
         "response": {"role": "assistant", "content": "", "tool_calls": [call]},
         "finish_reason": "tool_calls"},
        {"step_id": "s1", "parent_id": "s0",
         "messages": [{"role": "tool", "tool_call_id": f"c{index}", "content": "x"}],
         "response": {"role": "assistant", "content": text, **said},
         "finish_reason": finish},
    ]  # fmt: skip
    outcome = {"status": status, "cause": "x"}
    if status != "unscored":
      outcome |= {"code": score} if unjudged else {"score": score, "code": score}
    return trajectory_from_record({
        "id": f"i{index}", "task_id": task, "group_id": "g", "sample_index": index,
        "attempt": 0, "harness": "claw", "steps": made if steps else [],
        "outcome": outcome, "final_message": text,
    })  # fmt: skip

  kept, dropped = curate(
      [
          trajectory(0),
          trajectory(1),  # the same but for its ids
          trajectory(2, text="done."),
          trajectory(3, text="done!"),  # beyond the cap
          trajectory(4, task="u", score=0.4),
          trajectory(5, task="u", status="unscored"),
          trajectory(6, task="u", status="truncated"),
          trajectory(7, task="u", finish="length"),
          trajectory(8, task="u", name="fly"),
          trajectory(9, task="u", text="HEARTBEAT_OK"),
          trajectory(10, task="u", steps=False),
          trajectory(11, task="u", parse_error="Error: bad JSON"),
          trajectory(12, task="v", unjudged=True),  # its code is its reward
      ],
      min_reward=0.5,
      max_per_task=2,
  )
  assert [row["messages"][-1]["content"] for row in kept] == ["done", "done.", "done"]
  assert (kept[2]["task_id"], kept[2]["reward"]) == ("v", 1.0)
  assert kept[0]["tools"] and kept[0]["reward"] == 1.0 and kept[0]["task_id"] == "t"
  assert [m["role"] for m in kept[0]["messages"]] == [
      "user", "assistant", "tool", "assistant"
  ]  # fmt: skip
  assert dropped == {
      "duplicate": 1, "over_cap_of_task": 1, "below_min_reward": 1, "unscored": 1,
      "truncated": 1, "cut_response": 1, "unsupported_tool": 1, "heartbeat": 1,
      "no_model_calls": 1, "unread_call": 1,
  }  # fmt: skip


def start(out, *args):
  return subprocess.Popen(
      [sys.executable, "-m", "sandbox.rollout", "--harness=oracle", f"--out={out}", *args],
      env={**os.environ, "PYTHONPATH": os.getcwd()},
      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
  )  # fmt: skip


def wait_for(condition, process=None, seconds=30):
  end = time.monotonic() + seconds
  while not condition():
    if process is not None and process.poll() is not None:
      raise AssertionError(process.communicate()[1])
    assert time.monotonic() < end
    time.sleep(0.02)


def test_reports_that_are_none_are_counted(tmp_path):
  say = (
      "python3 -c \"import os, socket; s = socket.socket(socket.AF_UNIX);"
      " s.connect(os.environ['CLAWGYM_REPORT']); s.sendall(b'{}\\n'); s.recv(9)\""
  )

  def rolled_out(name, command):
    call = SolutionCall("exec", {"command": command})
    service_task.make_task(tmp_path / name / "tasks" / "t", [call])
    out = tmp_path / name / "out"
    tasks = tmp_path / name / "tasks"
    summary = roll_out(RunSettings(out=out, harness="oracle", tasks=tasks, samples=2))
    return summary, trajectories(out)

  summary, done = rolled_out("bad", f"{say}; {say}")
  assert summary["bad_reports"] == 4
  assert [t.metadata["bad_reports"] for t in done] == [2, 2]
  summary, done = rolled_out("good", "outbox send --to=ada@example.com --body=x")
  assert "bad_reports" not in summary and len(done[0].metadata["reports"]) == 1
  assert all("bad_reports" not in t.metadata for t in done)
