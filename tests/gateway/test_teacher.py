"""The scripted teacher through the gateway, in the tools of several harnesses."""

import asyncio
import json
import subprocess
import sys

import aiohttp
import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import read_lines
from clawgym_jax.contracts.task import (
    Reference,
    SolutionCall,
    Task,
    UserTurn,
    save_task,
)
from clawgym_jax.contracts.trajectory import trajectory_from_record
from sandbox.curate import curate
from sandbox.fleet import RunSettings, roll_out
from sandbox.gateway import messages
from sandbox.gateway.errors import CallError
from sandbox.teacher import Teacher, app, translate
from tests.gateway import engine as fakes
from tests.pool.samples import wait_for
from tests.sandbox.small_task import TURNS, make_turns_task

CALLS = [
    SolutionCall("read", {"path": "notes.txt"}),
    SolutionCall("write", {"path": "out/a.txt", "content": "it's\n$HOME `x` \\n\n"}),
    SolutionCall(
        "edit",
        {
            "path": "notes.txt",
            "edits": [
                {"oldText": "old 'one'\n", "newText": "new\n"},
                {"oldText": "two", "newText": "2"},
            ],
        },
    ),
    SolutionCall("exec", {"command": "sort notes.txt"}),
]
NANOBOT = ("exec", "read_file", "write_file", "edit_file")


def _task(root, name, instruction="Sort the notes.", final_message="It's done."):
  return save_task(
      root / name,
      Task(
          id=name,
          instruction=instruction,
          family="f",
          split="train",
          category="c",
          operations=("sort",),
      ),
      workspace={"notes.txt": b"old 'one'\ntwo\n"},
      checks={"check.py": b""},
      turns=[Reference(CALLS, final_message)],
  )


def _request(history, tools, instruction="Sort the notes."):
  return messages.parse({
      "messages": [
          {"role": "system", "content": "s"},
          {"role": "user", "content": f"[Mon 09:18 UTC] {instruction}\nRuntime: x"},
          *history,
      ],
      "tools": [{"type": "function", "function": {"name": name}} for name in tools],
  })


def _play(teacher, tools):
  """All assistant messages until one without a call."""
  history, said = [], []
  for _ in range(10):
    message = teacher.answer(_request(history, tools))
    said.append(message)
    if "tool_calls" not in message or "COMPLETE" in str(message):
      return said
    history += [message, {"role": "tool", "content": "r", "tool_call_id": "x"}]
  raise AssertionError("the teacher never ended")


def _functions(said):
  return [m["tool_calls"][0]["function"] for m in said if "tool_calls" in m]


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        (("read", "write", "edit", "exec"), ["read", "write", "edit", "exec"]),
        (("read", "bash", "edit", "write"), ["read", "write", "edit", "bash"]),
        (NANOBOT, ["read_file", "write_file", "edit_file", "edit_file", "exec"]),
        (("bash",), ["bash"] * 5),
    ],
)
def test_the_reference_in_each_harness_tools(tmp_path, tools, names):
  _task(tmp_path, "t")
  said = _play(Teacher(tmp_path), tools)
  assert [function["name"] for function in _functions(said)] == names
  if tools == ("bash",):
    assert "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" in str(said[-1])
  else:
    assert said[-1]["content"] == "It's done."


def test_bash_commands_do_what_the_tools_would(tmp_path):
  _task(tmp_path / "tasks", "t")
  work = tmp_path / "work"
  work.mkdir()
  (work / "notes.txt").write_text("old 'one'\ntwo\n")
  outputs = [
      subprocess.run(
          json.loads(function["arguments"])["command"],
          shell=True,
          cwd=work,
          capture_output=True,
          text=True,
          check=True,
          timeout=20,
      ).stdout
      for function in _functions(_play(Teacher(tmp_path / "tasks"), ("bash",)))
  ]
  assert outputs[0] == "old 'one'\ntwo\n"
  assert (work / "out/a.txt").read_text() == CALLS[1].arguments["content"]
  assert (work / "notes.txt").read_text() == "new\n2\n"
  assert outputs[3] == "2\nnew\n"
  assert outputs[4] == "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\nIt's done."


def test_content_without_a_last_newline_by_bash(tmp_path):
  for content in ("", "x", "a\nEOF\nb\n"):
    call = SolutionCall("write", {"path": "f", "content": content})
    ((_, arguments),) = translate(call, {"bash": {}})
    subprocess.run(arguments["command"], shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "f").read_text() == content


def test_what_it_does_not_know_it_refuses_by_name(tmp_path):
  with pytest.raises(UserError, match="holds no task"):
    Teacher(tmp_path)
  _task(tmp_path, "t1")
  teacher = Teacher(tmp_path)
  with pytest.raises(CallError, match="Paint the fence") as refusal:
    teacher.answer(_request([], NANOBOT, "Paint the fence."))
  assert refusal.value.status == 400
  with pytest.raises(CallError, match="no tool for read; it offers browser"):
    teacher.answer(_request([], ("browser",)))
  _task(tmp_path, "t2", final_message="Another.")
  with pytest.raises(CallError, match="several tasks have this instruction: t1, t2"):
    Teacher(tmp_path).answer(_request([], NANOBOT))


def _turns_task(root, name, *, third="Print it, by the note.", later="It is printed."):
  """The user speaks three times, the last time in a new conversation."""
  first, second = "Note the printer of room 4.", "And how it is loaded."
  return save_task(
      root / name,
      Task(
          id=name, instruction=first, family="f", split="train", category="c",
          operations=("note",), followups=(UserTurn(second), UserTurn(third, True)),
      ),
      workspace={},
      checks={"check.py": b""},
      turns=[
          Reference([SolutionCall("read", {"path": "a"})], "Noted."),
          Reference([SolutionCall("read", {"path": f}) for f in "bc"], "That, too."),
          Reference([SolutionCall("read", {"path": "MEMORY.md"})], later),
      ],
  )  # fmt: skip


def _said_to(teacher, *texts, tools=("read",)):
  """What it says in a conversation in which the user says `texts`, one a turn."""
  history, said = [], []
  for text in texts:
    history.append({"role": "user", "content": f"[Mon] {text}\n"})
    while True:
      asked = messages.parse({
          "messages": history,
          "tools": [{"type": "function", "function": {"name": n}} for n in tools],
      })
      message = teacher.answer(asked)
      history.append(message)
      if "tool_calls" not in message:
        said.append(message["content"])
        break
      function = message["tool_calls"][0]["function"]
      said.append(json.loads(function["arguments"])["path"])
      history.append({"role": "tool", "content": "r", "tool_call_id": "x"})
  return said


def test_it_finds_the_turn_and_the_conversation_by_what_is_said(tmp_path):
  task = _turns_task(tmp_path, "t")
  first, second, third = (turn.text for turn in task.user_turns)
  teacher = Teacher(tmp_path)
  assert _said_to(teacher, first) == ["a", "Noted."]
  assert _said_to(teacher, first, second) == ["a", "Noted.", "b", "c", "That, too."]
  assert _said_to(teacher, third) == ["MEMORY.md", "It is printed."]
  with pytest.raises(CallError, match="no task has the instruction"):
    _said_to(teacher, second)  # it opens no conversation
  # A turn is over before the next is said: its words in the first are none.
  assert _said_to(teacher, f"{first} {second}") == ["a", "Noted."]


def test_a_conversation_of_two_tasks_is_refused(tmp_path):
  _turns_task(tmp_path, "t1")
  _turns_task(tmp_path, "t2", third="Print it twice, by the note.")
  _turns_task(tmp_path, "t3", later="It is printed, as you said.")
  teacher = Teacher(tmp_path)
  assert _said_to(teacher, "Note the printer of room 4.") == ["a", "Noted."]
  assert _said_to(teacher, "Print it twice, by the note.")[-1] == "It is printed."
  with pytest.raises(CallError, match="several tasks have this instruction: t1, t3"):
    _said_to(teacher, "Print it, by the note.")


def test_the_longest_instruction_within_a_message_counts(tmp_path):
  _task(tmp_path, "a", "Sort the notes.", "short")
  _task(tmp_path, "b", "Sort the notes. Then stop.", "long")
  history = [{"role": "assistant", "content": "x"}] * 4
  tools = ("read", "write", "edit", "exec")
  request = _request(history, tools, "Sort the notes. Then stop.")
  assert Teacher(tmp_path).answer(request)["content"] == "long"


def test_through_the_gateway_its_steps_are_text_only(run, pool, tmp_path):
  _task(tmp_path, "t")
  tools = [
      {"type": "function", "function": {"name": name}}
      for name in ("read", "write", "edit", "exec")
  ]

  async def scenario(harness):
    history = [{"role": "user", "content": "Sort the notes."}]
    while True:
      said = await harness.say(history, tools=tools)
      history.append(said)
      if not said.get("tool_calls"):
        break
      result = {
          "role": "tool",
          "tool_call_id": said["tool_calls"][0]["id"],
          "content": "result",
      }
      history.append(result)
    status, body = await harness.post([{"role": "user", "content": "What?"}])
    assert status == 400 and "no task has the instruction" in str(body)
    return pool.steps(harness.trajectory_id)

  steps = run(scenario, upstream=app(Teacher(tmp_path)))
  assert [s.parent_id for s in steps] == [None, "s0", "s1", "s2", "s3"]
  assert all(s.response_ids is None and s.prompt_ids is None for s in steps)
  assert steps[-1].response["content"] == "It's done."


def test_teacher_and_gateway_as_programs(tmp_path, pool):
  _task(tmp_path / "tasks", "t")

  def start(module, ready, *options):
    process = subprocess.Popen(
        [sys.executable, "-m", module, f"--ready_file={ready}", *options],
        stdout=subprocess.DEVNULL,
    )
    processes.append(process)
    wait_for(lambda: ready.exists() or process.poll() is not None)
    assert process.poll() is None
    return json.loads(ready.read_text())["url"]

  async def ask(url):
    async with aiohttp.ClientSession() as http:
      async with http.post(
          f"{url}/s/g.0.0/v1/chat/completions",
          json={
              "messages": [{"role": "user", "content": "Sort the notes."}],
              "tools": [{"type": "function", "function": {"name": "read"}}]
              + [{"type": "function", "function": {"name": "bash"}}],
          },
          headers={"Authorization": "Bearer secret"},
      ) as response:
        return response.status

  processes = []
  try:
    teacher = start(
        "sandbox.teacher", tmp_path / "teacher.json", f"--tasks={tmp_path}/tasks"
    )
    url = start(
        "sandbox.gateway",
        tmp_path / "gateway.json",
        f"--upstream={teacher}",
        f"--pool=sqlite:///{tmp_path}/pool.db",
    )
    pool.add_group("g", "train", "t", 1)
    pool.register(pool.claim("train", "w", 60).trajectory_id, "secret")
    assert asyncio.run(ask(url)) == 200
    assert len(pool.steps("g.0.0")) == 1
    for process in processes:
      process.send_signal(2)
      assert process.wait(20) == 130
  finally:
    for process in processes:
      process.kill()
      process.wait(10)


def test_a_task_of_several_turns_becomes_chats(tmp_path):
  make_turns_task(tmp_path / "tasks" / "t")
  with fakes.serving(app(Teacher(tmp_path / "tasks"))) as url:
    summary = roll_out(
        RunSettings(
            out=tmp_path / "out", harness="claw", tasks=tmp_path / "tasks", upstream=url
        )
    )
  assert summary["mean_reward"] == 1.0
  (done,) = map(
      trajectory_from_record, read_lines(tmp_path / "out" / "trajectories.jsonl")
  )
  assert [s.step_id for s in done.steps if s.parent_id is None] == ["s0", "s4"]
  assert done.steps[4].fork_cause == "new_conversation"
  kept, dropped = curate([done], min_reward=1.0, max_per_task=1)
  said = [
      [m["content"] for m in line["messages"] if m["role"] == "user"] for line in kept
  ]
  first, second, third = TURNS
  assert said == [[f"[2026-01-05] {first}", second], [f"[2026-01-05] {third}"]]
  assert dropped == {}
