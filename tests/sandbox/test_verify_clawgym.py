"""Reward packages in ClawGym's format, unchanged and in isolation."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from sandbox.backends.base import gather, pack
from sandbox.verify import State, verify_clawgym

REWARD_SH = b"""#!/usr/bin/env bash
set -euo pipefail
python3 /root/.openclaw/workspace/reward/check.py /root/.openclaw/workspace \\
  | python3 -c 'import json, sys; found = json.load(sys.stdin)
print(sum(found.values()) / len(found))'
"""
CHECK = b"""import json, os, sys
from pathlib import Path

def read(path):
  return path.read_text().strip() if path.is_file() else None

if __name__ == "__main__":
  root = Path(sys.argv[1])
  with open(os.environ["OPENCLAW_REWARD_PAYLOAD"]) as file:
    payload = json.load(file)
  print(json.dumps({
    "sum": float(read(root / "out.txt") == "7"),
    "said": float("7" in payload["final_message"]),
  }))
"""
PACKAGE = {"reward.sh": REWARD_SH, "check.py": CHECK}
PAYLOAD = {
    "task_id": "t1",
    "user_query": "Add.",
    "metadata": {"grading_type": "automated"},
}
INPUTS = {"in.txt": b"3\n4\n"}
GOOD = State(pack({**INPUTS, "out.txt": b"7\n"}), "It is 7.")


def says(*lines: str) -> dict[str, bytes]:
  """A package that prints these lines."""
  return {"reward.sh": "\n".join(f"printf '%s\\n' {line!r}" for line in lines).encode()}


def judge(state=GOOD, package=PACKAGE, payload=PAYLOAD, **settings):
  return asyncio.run(verify_clawgym(package, state, payload, **settings))


def test_the_original_number_is_the_score():
  assert judge().score == 1.0
  half = State(GOOD.snapshot, "Done.")
  outcome = judge(half)
  assert (outcome.status, outcome.score, outcome.code) == ("scored", 0.5, 0.5)
  assert judge(State(pack(INPUTS))).score == 0.0


def test_the_package_finds_what_it_expects():
  check = b"""import json, os, sys
from pathlib import Path
here = Path("/root/.openclaw/workspace")
payload = json.load(open(os.environ["OPENCLAW_REWARD_PAYLOAD"]))
import beside
seen = {
  "home": Path("~/.openclaw/workspace").expanduser() == here,
  "place": Path(__file__) == here / "reward" / "test.py",
  "argument": sys.argv[1] == str(here),
  "input": (here / "in.txt").read_text() == "3\\n4\\n",
  "beside": beside.X == 1,
  "writable": (here / "new").write_text("x") == 1,
  "clock": os.environ["CLAWGYM_NOW"] == "2026-01-05T09:00:00Z",
  "payload": payload == {"task_id": "t1", "user_query": "Add.",
    "metadata": {"grading_type": "automated"}, "final_message": "It is 7.",
    "transcript": [{"role": "user", "content": "Add."}]},
}
print(json.dumps({name: float(value) for name, value in seen.items()}))
"""
  package = {"test.py": check, "beside.py": b"X = 1\n"}
  state = State(GOOD.snapshot, "It is 7.", [{"role": "user", "content": "Add."}])
  outcome = judge(
      state,
      package,
      command="python3 reward/test.py /root/.openclaw/workspace",
      now="2026-01-05T09:00:00Z",
  )
  assert outcome.score == 1.0 and len(outcome.checks) == 8, outcome


@pytest.mark.parametrize(
    "lines, score",
    [
        (["0.25"], 0.25),
        (["noise", "1", ""], 1.0),
        ([".5"], 0.5),
        (['{"reward": 0.25, "a": true, "b": false}'], 0.25),
        (['{"a": true, "b": false, "c": 0.5}'], 0.5),
        (["note", '{"a": 1}'], 1.0),
        (["{", '"a": 0.5', "}"], 0.5),
    ],
)
def test_forms_of_the_result(lines, score):
  assert judge(package=says(*lines)).score == score


@pytest.mark.parametrize(
    "script, cause",
    [
        ("echo nan", "reward = nan is not in [0, 1]"),
        ("echo inf", "reward = inf is not in [0, 1]"),
        ("echo -0.5", "reward = -0.5 is not in [0, 1]"),
        ("echo 1.5", "reward = 1.5 is not in [0, 1]"),
        ("echo '{\"reward\": 0.5, \"a\": 7}'", "a = 7.0 is not in [0, 1]"),
        ("echo '{}'", "its last line is no number"),
        ("echo '{\"a\": [1]}'", "its last line is no number"),
        ("echo 0.5; echo done", "its last line is no number: 'done'"),
        ("true", "it said nothing"),
        ("echo 1.0; echo oh dear >&2; exit 3", "exit code 3: oh dear"),
        ("echo 1.0; kill -9 $$", "exit code 137"),
        ("echo 1.0; sleep 60", "no result within 1 s"),
        ("yes | head -c 9M; echo '[[' ", "its last line is no number"),
    ],
)
def test_no_sound_number_is_no_score(script, cause):
  outcome = judge(package={"reward.sh": script.encode()}, seconds=1.0)
  assert outcome.status == "unscored"
  assert outcome.cause.startswith("check_error: ") and cause in outcome.cause


def test_without_a_package_there_is_no_score():
  outcome = judge(package={"check.py": CHECK})
  assert outcome.status == "unscored" and "reward.sh" in outcome.cause


@pytest.mark.parametrize(
    "left", [b"1/0", b"import time; time.sleep(9)", b"print('nan')"]
)
def test_what_the_agent_left_can_not_escape_its_score(left):
  """A package that works on the untouched workspace fails by the agent's doing."""
  script = b"cd /root/.openclaw/workspace; [ -e x.py ] && exec python3 x.py; echo 0"
  package, untouched = {"reward.sh": script}, pack(INPUTS)
  state = State(pack({**INPUTS, "x.py": left}))
  outcome = judge(state, package, untouched=untouched, seconds=1.5)
  assert (outcome.status, outcome.score) == ("scored", 0.0)
  assert outcome.cause.startswith("checks_ended: ")
  broken = judge(state, {"reward.sh": b"exit 1"}, untouched=untouched)
  assert broken.status == "unscored"


def test_it_runs_in_isolation(tmp_path):
  """No network, no host file, nothing kept: what ClawGym's own runner gave it all."""
  (tmp_path / "host.txt").write_text("x")
  check = f"""import json, os, socket
def connects():
  try: socket.create_connection(("1.1.1.1", 53), 2)
  except OSError: return False
  return True
def writes(path):
  try: open(path, "w")
  except OSError: return False
  return True
print(json.dumps({{
  "no_network": float(not connects()),
  "no_host_file": float(not os.path.exists({str(tmp_path / "host.txt")!r})),
  "not_root": float(os.getuid() != 0),
  "no_writing": float(not writes("/usr/x") and not writes("/etc/x")),
  "no_environment": float(not set(os.environ) - set({sorted(KNOWN)!r})),
}}))
"""
  outcome = judge(package={"reward.sh": REWARD_SH, "check.py": check.encode()})
  assert outcome.score == 1.0, outcome
  hook = judge(package={"c.py": check.encode()}, command="python3 reward/c.py")
  assert hook.checks == dict.fromkeys(hook.checks, 1.0)


KNOWN = {
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "CLAWGYM_NOW", "PWD", "OLDPWD",
    "SHLVL", "_", "OPENCLAW_REWARD_PAYLOAD", "CLAWGYM_REPORT",
}  # fmt: skip


PUBLIC = os.environ.get("CLAWGYM_RL_DATA", "")


@pytest.mark.skipif(
    not PUBLIC,
    reason="set CLAWGYM_RL_DATA to RL/data of a checkout of ClawGym/ClawGym-Agents",
)
def test_published_packages_give_their_number():
  """Doing nothing scores next to nothing in the published tasks, and never fails."""
  tasks = sorted(Path(PUBLIC).glob("clawgym_*/task_*"))[::80]
  assert tasks, "no tasks in CLAWGYM_RL_DATA"
  for directory in tasks:
    entry = json.loads((directory / "data_entry.json").read_text())
    inputs = directory / "input_files"
    untouched = pack(gather(inputs) if inputs.is_dir() else {})
    outcome = judge(State(untouched), gather(directory / "reward"), entry)
    assert outcome.status == "scored" and outcome.score < 0.3, (directory, outcome)
