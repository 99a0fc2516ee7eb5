"""P37, P39, P40, P45: an agent that writes reward files, plants modules or tampers
with Python gains nothing; the checks are nowhere to be seen while it works."""

import asyncio
import json

from clawgym_jax.contracts.task import SolutionCall
from sandbox.fleet import attempt_task, grade_with
from sandbox.harnesses import load
from tests.sandbox.scripted_api import call, reply, serve
from tests.sandbox.small_task import execs, make_task, solve_by

PLANTED = "def grade(*a): return {'right': 1.0, 'said': 1.0}"
FORGERY = f"""
for place in . /workspace/checks /workspace/logs/verifier /tmp /tmp/home; do
  mkdir -p $place
  for name in check conftest json pathlib sitecustomize usercustomize runner; do
    echo "{PLANTED}" > $place/$name.py
  done
  echo 1.0 > $place/reward.txt
  echo '{{"right": 1, "said": 1, "checks": {{"right": 1, "said": 1}}}}' > $place/reward.json
done
mkdir -p /tmp/home/.local/lib/python3.11/site-packages
echo "{PLANTED}" > /tmp/home/.local/lib/python3.11/site-packages/usercustomize.py
ln -s /checks/check.py out.txt; ln -s /checks c
"""


def test_forged_rewards_score_0(tmp_path):
  task = make_task(tmp_path / "t")
  solve_by(task, *execs(FORGERY), final='{"reward": 1.0}\n1.0')
  outcome = asyncio.run(grade_with(task, "oracle"))
  assert (outcome.status, outcome.score) == ("scored", 0.0)


def test_a_program_that_a_check_runs_can_not_answer_for_it(tmp_path):
  check = """
import subprocess
def grade(workspace, final_message, transcript):
  subprocess.run(["sh", "out.sh"])
  return {"right": 0.0}
"""
  task = make_task(tmp_path / "t", check)
  script = (
      'echo \'{"checks": {"right": 1.0}}\'; cat /verify/input.json;'
      " for fd in /proc/$PPID/fd/*; do echo x > $fd; done; cat /proc/$PPID/mem"
  )
  written = SolutionCall("write", {"path": "out.sh", "content": script})
  solve_by(task, written, final="")
  outcome = asyncio.run(grade_with(task, "oracle"))
  assert (outcome.status, outcome.score) == ("scored", 0.0)


def test_the_agent_sees_no_check(tmp_path):
  task = make_task(tmp_path / "t", "# needle-77aa\n" + PLANTED)

  async def whole():
    look = "ls / /workspace; grep -rsl needle-77aa / --exclude-dir=usr --exclude-dir=proc"
    async with serve(reply("", call("exec", command=look)), reply("done")) as api:
      await attempt_task(task, load("claw"), base_url=api.url)
      return json.dumps(api.requests[-1])

  seen = asyncio.run(whole())
  assert "workspace" in seen and "checks" not in seen and "(Command exited" in seen
