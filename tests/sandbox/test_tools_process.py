"""exec with process beside it: sessions, terminals, keys, and equal runs alike."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import weakref

from sandbox import tools
from sandbox.backends import open_sandbox
from sandbox.tools.commands import sessions

OFFERED = tools.offered(("process",))
ECHO = "while read -r line; do echo got:$line; done; echo end"


def results(*calls, seconds=20.0, then=None):
  async def whole():
    async with open_sandbox() as sandbox:
      await sandbox.start({"d/f": b""})
      said = []
      for name, args in calls:
        if name == "wait":  # until the output of session `args[0]` has `args[1]`
          await _wait(sandbox, *args)
          continue
        said.append(
            await tools.execute(sandbox, name, args, offered=OFFERED, seconds=seconds)
        )
      if then is not None:
        await then(sandbox)
      return said

  return asyncio.run(whole())


async def _wait(sandbox, name, part):
  session = sessions(sandbox)[name]
  for _ in range(1000):
    await tools.execute(
        sandbox, "process", {"action": "log", "sessionId": name}, offered=OFFERED
    )
    if part in session.log or session.ending:
      return
    await asyncio.sleep(0.01)
  raise AssertionError(f"{part!r} never came: {session.log!r}")


def of(action, name="exec-1", **more):
  return ("process", {"action": action, "sessionId": name, **more})


def test_a_short_command_is_as_without_process():
  assert results(
      ("exec", {"command": "echo é; echo x >&2"}),
      ("exec", {"command": "true"}),
      ("exec", {"command": "pwd; exit 4", "workdir": "d", "env": {"A": "b"}}),
      ("exec", {"command": "sleep 9", "timeout": 0.2}),
      ("exec", {"command": "sleep 9; echo x", "timeout": 0.2, "yieldMs": 900}),
      ("process", {"action": "list"}),
  ) == [
      "é\nx",
      "(no output)",
      "/workspace/d\n\n(Command exited with code 4)",
      "(no output)\n\n(Command timed out after 0.2 seconds)",
      "(no output)\n\n(Command timed out after 0.2 seconds)",
      "(no sessions)",
  ]


def test_a_session_from_start_to_end():
  said = results(
      ("exec", {"command": ECHO, "background": True}),
      ("process", {"action": "list"}),
      of("write", data="one é\n"),
      ("wait", ("exec-1", "one")),
      of("poll"),
      of("submit", data="two"),
      ("wait", ("exec-1", "two")),
      of("write", data="", eof=True),
      of("poll", timeout=5000),
      of("log"),
      ("process", {"action": "list"}),
      of("clear"),
      of("poll"),
  )
  assert said[:-1] == [
      "The command is still running as session exec-1. Use process to poll it, read"
      " its log, write to it or kill it.",
      f"exec-1: is running: {ECHO}",
      "Sent 7 bytes to exec-1",
      "got:one é\n\n(Command is running)",
      "Sent 4 bytes to exec-1",
      "Sent 0 bytes and the end of its input to exec-1",
      "got:two\nend\n\n(Command exited with code 0)",
      "got:one é\ngot:two\nend",
      f"exec-1: exited with code 0: {ECHO}",
      "Cleared exec-1",
  ]
  assert json.loads(said[-1])["error"] == "no session 'exec-1'; there are none"


def test_what_outlives_its_yield_goes_on():
  first, number, second = results(
      ("exec", {"command": "echo a; sleep 0.6; echo b", "yieldMs": 100}),
      of("poll", timeout=10_000),
      of("poll"),
  )
  assert "session exec-1" in first
  assert number == "a\nb\n\n(Command exited with code 0)"
  assert second == "(no new output)\n\n(Command exited with code 0)"


def test_kill_remove_and_timeouts():
  said = results(
      ("exec", {"command": "sleep 99 & sleep 99", "background": True}),
      ("exec", {"command": "sleep 99", "background": True}),
      ("exec", {"command": "echo x; sleep 99", "background": True, "timeout": 0.3}),
      of("clear"),
      of("kill"),
      of("kill"),
      of("remove", "exec-2"),
      ("exec", {"command": "sleep 0.6; pgrep -c sleep"}),
      ("process", {"action": "list"}),
      of("poll", "exec-3"),
      of("write", "exec-3", data="x"),
  )
  assert json.loads(said[3])["error"] == "exec-1 is running; kill or remove it"
  assert said[4:7] == [
      "Killed exec-1", "exec-1 has ended already: was killed", "Removed exec-2",
  ]  # fmt: skip
  assert said[7].startswith("0\n")  # not one of them is left
  assert said[8].splitlines() == [
      "exec-1: was killed: sleep 99 & sleep 99",
      "exec-3: timed out after 0.3 seconds: echo x; sleep 99",
  ]
  assert said[9] == "x\n\n(Command timed out after 0.3 seconds)"
  assert json.loads(said[10])["error"].startswith("exec-3 has ended: timed out")


def test_a_terminal_and_its_keys():
  said = results(
      ("exec", {"command": "tty && stty size && echo $0", "pty": True}),
      ("exec", {"command": "stty -echo; echo ready; cat -v", "pty": True,
                "background": True}),
      ("wait", ("exec-2", "ready")),
      of("send-keys", "exec-2", keys=["a", "Up", "F1", "M-x", "Enter"]),
      ("wait", ("exec-2", "^[x")),
      of("send-keys", "exec-2", hex=["0x62", "0a"], literal="é\n"),
      of("paste", "exec-2", text="p\n"),
      of("paste", "exec-2", text="q", bracketed=False),
      of("submit", "exec-2"),
      ("wait", ("exec-2", "q\r")),
      of("send-keys", "exec-2", keys=["C-d"]),
      of("poll", "exec-2", timeout=5000),
  )  # fmt: skip
  assert said[0].startswith("/dev/") and "not a tty" not in said[0]
  assert said[2] == "Sent 10 bytes to exec-2"
  assert said[-1].endswith("(Command exited with code 0)")
  shown = said[-1].replace("\r", "")
  assert "a^[[A^[OP^[x\n" in shown and "\nb\n" in shown and "^[[200~p\n" in shown


def test_a_terminal_outlives_whoever_has_it_open():
  closes = "echo a; exec 0<&- 1>&- 2>&-; sleep 0.3; echo b >/dev/tty; exit 5"
  said = results(("exec", {"command": closes, "pty": True}))
  assert said[0].replace("\r", "") == "a\nb\n\n(Command exited with code 5)"


def test_without_process_a_terminal_is_waited_for():
  async def whole():
    async with open_sandbox() as sandbox:
      await sandbox.start()
      run = lambda **args: tools.execute(sandbox, "exec", {"pty": True, **args})
      return [
          await run(command="test -t 0 && test -t 1 && echo tty"),
          await run(command="echo x; exit 3", background=True),
          await run(command="echo x; sleep 60", timeout=0.4),
      ]

  assert asyncio.run(whole()) == [
      "tty",
      "x\n\n(Command exited with code 3)",
      "x\n\n(Command timed out after 0.4 seconds)",
  ]


def test_a_call_that_is_given_up_leaves_no_command():
  async def whole():
    async with open_sandbox() as sandbox:
      await sandbox.start()
      for args, offered in (({"pty": True}, tools.offered(())), ({}, OFFERED)):
        args["command"] = "sleep 99; true"
        calling = asyncio.create_task(
            tools.execute(sandbox, "exec", args, offered=offered)
        )
        while len(await sandbox.processes()) < 2:
          await asyncio.sleep(0.02)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        assert calling.cancelled()
        while await sandbox.processes():  # they are dead, and may not be reaped yet
          await asyncio.sleep(0.02)

  asyncio.run(asyncio.wait_for(whole(), 20))


def test_a_session_that_was_forgotten_hides_no_other():
  short = ("exec", {"command": "exec sleep 0.01", "yieldMs": 0})
  said = results(
      *[short] * 66, ("exec", {"command": "exec sleep 0.3"}), short,
      ("process", {"action": "list"}), of("poll"), of("remove"), of("poll", "exec-67"),
  )  # fmt: skip
  gone = "has ended, and many others since: how, and what it wrote, is gone"
  lines = said[-4].split("\n")
  assert lines[0] == f"exec-1: {gone}: exec sleep 0.01" and len(lines) == 67
  assert said[-3:-1] == [f"(no new output)\n\n(Command {gone})", "Removed exec-1"]


def test_a_terminal_s_log_is_in_lines():
  said = results(
      ("exec", {"command": "seq 2; printf '\\f3'", "pty": True, "background": True}),
      of("poll", timeout=5000),
      of("log"),
  )
  assert said[-1] == "1\n2\n\f3"


def test_logs_are_paged_and_bounded():
  said = results(
      ("exec", {"command": "seq 1000", "background": True}),
      of("poll", timeout=5000),
      of("log"),
      of("log", offset=10, limit=2),
      of("log", limit=2),
      of("log", offset=5000),
      ("exec", {"command": "true", "background": True}),
      of("log", "exec-2"),
  )
  polled, last, middle, two, beyond, _, nothing = said[1:]
  assert polled.startswith("1\n2\n") and "characters left out" not in polled
  lines = last.splitlines()
  assert (lines[0], lines[-2], lines[-1]) == (
      "801",
      "1000",
      "[lines 801 to 1000 of 1000]",
  )
  assert middle == "11\n12\n[lines 11 to 12 of 1000]"
  assert two == "999\n1000\n[lines 999 to 1000 of 1000]"
  assert beyond == "(no such lines: there are 1000)" and nothing == "(no output yet)"
  flood, log = results(
      (
          "exec",
          {
              "command": "yes | head -c 30000000; printf '\\377\\0end'",
              "yieldMs": 60_000,
          },
      ),
      ("process", {"action": "list"}),
  )
  assert flood.startswith("y\ny\n") and flood.endswith("end") and len(flood) < 4200
  assert log == "(no sessions)"


def test_bad_calls_are_told():
  bad = [
      ({}, "process needs action (string)"),
      ({"action": "fly"}, "action must be one of list, poll"),
      ({"action": "poll"}, "process poll needs sessionId (string)"),
      (
          {"action": "poll", "sessionId": "exec-9"},
          "no session 'exec-9'; there are exec-1",
      ),
      ({"action": "poll", "sessionId": 1}, "sessionId must be a string"),
      ({"action": "poll", "sessionId": "exec-1", "timeout": -1}, "at least 0"),
      (
          {"action": "log", "sessionId": "exec-1", "limit": "x"},
          "limit must be an integer",
      ),
      ({"action": "write", "sessionId": "exec-1"}, "process write needs data"),
      ({"action": "send-keys", "sessionId": "exec-1"}, "needs keys, hex or literal"),
      ({"action": "send-keys", "sessionId": "exec-1", "keys": ["Foo"]}, "no key 'Foo'"),
      ({"action": "send-keys", "sessionId": "exec-1", "keys": ["M-" * 999]}, "no key"),
      ({"action": "send-keys", "sessionId": "exec-1", "keys": "a"}, "must be an array"),
      ({"action": "send-keys", "sessionId": "exec-1", "hex": ["zz"]}, "no hexadecimal"),
      ({"action": "paste", "sessionId": "exec-1"}, "process paste needs text"),
  ]
  _, *said = results(
      ("exec", {"command": "cat", "background": True}),
      *(("process", args) for args, _ in bad),
  )
  for (_, part), text in zip(bad, said, strict=True):
    assert (
        json.loads(text)["tool"] == "process" and part in json.loads(text)["error"]
    ), text


def test_equal_programs_give_equal_answers():
  calls = (
      (
          "exec",
          {"command": "echo $PPID >/dev/null; echo a; read x; echo $x", "yieldMs": 200},
      ),
      ("process", {"action": "list"}),
      of("submit", data="b"),
      of("poll", timeout=5000),
      of("log"),
  )
  assert results(*calls) == results(*calls)


def test_sessions_end_with_their_sandbox():
  held = []

  async def then(sandbox):
    held.append(weakref.ref(sandbox))

  started = time.monotonic()
  results(
      ("exec", {"command": "sleep 99", "background": True, "timeout": 60}), then=then
  )
  gc.collect()
  assert held[0]() is None and time.monotonic() - started < 10
