"""Tasks travel in every format and come back the same; losses are named."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import xml.etree.ElementTree as ET

import pytest

from clawgym_jax.contracts.errors import RecordError, UserError
from clawgym_jax.contracts.task import (
    Reference,
    SolutionCall,
    Task,
    content_hash,
    list_tasks,
    load_task,
    save_task,
)
from data_gen.convert import (
    Losses,
    arrayrecord,
    clawgym_rl,
    convert,
    detect,
    harbor,
)
from data_gen.convert.contents import read
from sandbox.backends import open_sandbox
from sandbox.backends.base import gather, pack
from sandbox.harnesses import HarnessContext, load
from sandbox.verify import verify, verify_clawgym, verify_many
from sandbox.verify.checks import State
from tests import docs
from tests.contracts.rubrics import criterion

ENDS = {
    "tar": "set.tar", "arrayrecord": "shards", "tfds": "data",
    "clawgym_jsonl": "syn_task.jsonl", "skill2task_jsonl": "skills.jsonl",
    "clawgym_rl": "rl", "harbor": "harbor",
}  # fmt: skip
FOREIGN = {"clawgym_jsonl", "skill2task_jsonl", "clawgym_rl", "harbor"}


GRADER = """import json, pathlib

def grade(workspace, final_message, transcript):
  print("what a check prints goes nowhere")
  root = pathlib.Path(workspace)
  out = root / "out" / "sum.txt"
  right = float(out.is_file() and out.read_text() == "7\\n")
  tidy = sorted(p.name for p in root.iterdir()) == ["in", "out"]
  expected = json.loads(pathlib.Path(__file__).with_name("expected.json").read_text())
  return {"right": right, "tidy": float(right and tidy == expected["tidy"])}
"""
CALLS = [
    SolutionCall("read", {"path": "in/numbers – März.txt"}),
    SolutionCall("write", {"path": "out/sum.txt", "content": "0\n"}),
    SolutionCall("edit", {
        "path": "out/sum.txt", "edits": [{"oldText": "0", "newText": "sum"}]
    }),
    SolutionCall("exec", {"command": "echo $((3 + 4)) > out/sum.txt"}),
]  # fmt: skip


def make(folder, number, split, **fields):
  task_id = f"{split}-{number}"
  save_task(
      folder / task_id,
      Task(
          id=task_id,
          instruction=f"Add in/numbers – März.txt up → out/sum.txt ({number}).",
          family="sums",
          split=split,
          category="office and daily tasks",
          operations=("aggregation", "file writing"),
          **fields,
      ),
      workspace={"in/numbers – März.txt": b"3\r\n4\n", "in/run.sh": b"#!/bin/sh\n"},
      checks={"check.py": GRADER.encode(), "expected.json": b'{"tidy": true}'},
      turns=[Reference(CALLS, "It is 7.")],
      rubric=[criterion(file_path="out/sum.txt")] if number == 2 else [],
  )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  tasks = tmp_path_factory.mktemp("convert") / "tasks"
  for number in range(6):
    weights = {"tidy": 3.0} if number == 1 else {}
    make(tasks, number, "heldout" if number > 3 else "train", check_weights=weights)
  return tasks


def change(directory, **fields):
  """Another record for the task, whole again."""
  raw = {**json.loads((directory / "task.json").read_text()), **fields}
  raw["provenance"]["content_hash"] = content_hash(directory, raw)
  (directory / "task.json").write_text(json.dumps(raw, indent=1) + "\n")


def copy(folder, where, number=1):
  """The first tasks of `folder`, to be spoiled."""
  for directory in list_tasks(folder)[:number]:
    for name, data in gather(directory).items():
      path = where / directory.name / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(data)
  return where


@pytest.mark.parametrize("form", ENDS)
def test_round_trip(folder, tmp_path, form):
  there, back = tmp_path / ENDS[form], tmp_path / "back"
  summary, losses = convert(folder, there, form)
  assert (summary["tasks"], summary["new"], losses.left_out) == (6, 6, {})
  assert bool(losses.parts) == (form in FOREIGN)  # who reads it there sees less
  assert detect(there) == form
  summary, losses = convert(there, back)
  assert (summary["new"], losses.left_out, dict(losses.parts)) == (6, {}, {})
  assert gather(back) == gather(folder)
  assert convert(there, back)[0]["new"] == 0


@pytest.mark.parametrize("form", ENDS)
def test_the_same_tasks_give_the_same_bytes(folder, tmp_path, form):
  (tmp_path / "b").mkdir()
  a, b = tmp_path / ENDS[form], tmp_path / "b" / ENDS[form]
  convert(folder, a, form)
  convert(folder, b, form)
  if a.is_dir():
    assert gather(a) == gather(b)
  else:
    assert a.read_bytes() == b.read_bytes()


def test_a_record_can_be_read_alone_and_shards_are_whole(folder, tmp_path):
  tasks = [read(directory) for directory in list_tasks(folder)]
  arrayrecord.write(tmp_path / "s", tasks, Losses(), shard_tasks=4)
  names = [shard.name for shard in arrayrecord.shards_of(tmp_path / "s")]
  assert names == [f"tasks-0000{n}-of-00002.array_record" for n in (0, 1)]
  (tmp_path / "s" / names[0]).unlink()
  with pytest.raises(UserError, match="1 shards, not the number"):
    convert(tmp_path / "s", tmp_path / "back")
  data = bytearray((tmp_path / "s" / names[1]).read_bytes())
  at = len(data) // 2
  data[at : at + 64] = bytes(64)
  (tmp_path / "bad.array_record").write_bytes(data[:-70_000])
  with pytest.raises(UserError, match="can't be read"):
    convert(tmp_path / "bad.array_record", tmp_path / "back")
  with pytest.raises(UserError, match="is there already"):
    convert(folder, tmp_path / "s", "arrayrecord")


def test_tfds_reads_it_without_tensorflow(folder, tmp_path):
  convert(folder, tmp_path / "data", "tfds")
  program = """
import sys
import tensorflow_datasets as tfds
data = tfds.data_source("clawgym_syndata", split="train", data_dir=sys.argv[1])
held = tfds.data_source("clawgym_syndata", split="heldout", data_dir=sys.argv[1])
print(len(data), len(held), data[2]["id"].decode(), data[2]["instruction"][0].decode())
assert not {"jax", "tensorflow", "torch"} & set(sys.modules)
"""
  said = subprocess.run(
      [sys.executable, "-c", program, tmp_path / "data"], capture_output=True, text=True
  )
  assert said.returncode == 0, said.stderr
  task = load_task([d for d in list_tasks(folder) if "train" in d.name][2])
  assert said.stdout.strip() == f"4 2 {task.id} {task.instruction}"


def test_data_gen_convert_imports_no_jax():
  program = (
      "import sys, data_gen.convert.tfds, data_gen.convert.__main__;"
      "sys.exit(bool({'jax', 'torch', 'tensorflow', 'flax'} & set(sys.modules)))"
  )
  assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_what_is_damaged_is_refused(folder, tmp_path):
  with pytest.raises(UserError, match="no tasks"):
    convert(tmp_path, tmp_path / "a.tar")
  for name in ("bad.tar", "bad.array_record"):
    (tmp_path / name).write_bytes(b"no archive")
    with pytest.raises(UserError, match="can't be unpacked|can't be read"):
      convert(tmp_path / name, tmp_path / "back")
  spoiled = copy(folder, tmp_path / "spoiled")
  victim = list_tasks(spoiled)[0]
  (victim / "checks" / "check.py").write_text("pass\n")
  with pytest.raises(RecordError, match="changed after"):
    convert(spoiled, tmp_path / "a.tar")
  assert not (tmp_path / "a.tar").exists()
  change(victim)
  (victim / "workspace" / "link").symlink_to("/etc/passwd")
  change(victim)
  with pytest.raises(RecordError, match="is a link"):
    convert(spoiled, tmp_path / "a.tar")


def test_a_tar_that_leads_out_is_refused(folder, tmp_path):
  with tarfile.open(tmp_path / "out.tar", "w") as archive:
    for name in ("t/task.json", "t/../../evil"):
      archive.addfile(tarfile.TarInfo(name), io.BytesIO())
  with pytest.raises((UserError, RecordError)):
    convert(tmp_path / "out.tar", tmp_path / "deep" / "back")
  assert not list(tmp_path.rglob("evil"))


def test_what_a_format_cannot_hold_is_named(folder, tmp_path):
  spoiled = copy(folder, tmp_path / "tasks", 3)
  binary, needy, _ = list_tasks(spoiled)
  (binary / "workspace" / "photo.png").write_bytes(b"\x89PNG\xff\x00")
  change(binary)
  change(needy, requires=["outbox"])
  for form, causes in {
      "clawgym_jsonl": {
          "it has a file that is no text": [binary.name],
          "it requires outbox": [needy.name],
      },
      "clawgym_rl": {"it requires outbox": [needy.name]},
      "harbor": {"it requires outbox": [needy.name]},
      "tar": {},
  }.items():
    summary, losses = convert(spoiled, tmp_path / ENDS[form], form)
    assert losses.left_out == causes
    assert summary["new"] == 3 - len(causes)
    assert len([li for li in losses.lines() if "left out" in li]) == len(causes)
  assert not list((tmp_path / "rl").glob(".*"))


def test_one_that_was_changed_abroad_is_no_longer_ours(folder, tmp_path):
  convert(folder, tmp_path / "rl", "clawgym_rl")
  victim = clawgym_rl.directories(tmp_path / "rl")[0]
  inputs = victim / "input_files"
  (inputs / "new.txt").write_text("more\n")
  summary, losses = convert(tmp_path / "rl", tmp_path / "back")
  assert losses.parts == {"the way back to one of ours: it was changed there": 1}
  changed = load_task(tmp_path / "back" / victim.name)
  assert changed.provenance["generator"] == "imported"
  assert (changed.workspace / "new.txt").is_file()


async def solved(task):
  """The workspace after the reference solution."""
  async with open_sandbox(now=task.now) as sandbox:
    await sandbox.start(task.workspace)
    result = await load("oracle").run(HarnessContext(task, sandbox))
    return await sandbox.snapshot(), result


def test_abroad_it_is_judged_as_at_home(folder, tmp_path):
  convert(folder, tmp_path / "rl", "clawgym_rl")
  task = load_task(folder / "train-1")  # its checks have weights
  reward = gather(tmp_path / "rl" / task.id / "reward")
  snapshot, result = asyncio.run(solved(task))
  untidy = pack({"in/a": b"", "out/sum.txt": b"7\n", "more": b""})
  for state, score in (
      (State(snapshot, result.final_message, result.transcript), 1.0),
      (State(untidy), 0.25),
      (State(pack(gather(task.workspace))), 0.0),
  ):
    assert asyncio.run(verify_clawgym(reward, state, {})).score == score
    assert asyncio.run(verify(task, state.snapshot, "", [])).score == score


CHECK = """import json, sys
from pathlib import Path
done = Path(sys.argv[1], "out.txt")
if done.is_file() and done.read_text() == "break":
  raise SystemExit(1)
print(json.dumps({"there": float(done.is_file()), "right": float(
    done.is_file() and done.read_text() == "7")}))
"""
HOOK = "python3 reward/test.py /root/.openclaw/workspace"
LINE = {
    "prompt": "Add the numbers of in.txt into out.txt.",
    "hook_code": HOOK,
    "hook_lang": "bash",
    "rules": [{"name": "tidy", "file_path": "out.txt", "scores": {
        "0": "no", "0.25": "hardly", "0.5": "half", "0.75": "nearly", "1.0": "yes",
    }}, "polite"],
    "category": "office",
    "macro_category": "Productivity",
    "action": ["aggregation"],
    "input_files": [
        {"file_path": "in.txt", "file_format": "txt", "content": "3\n4\n"},
        {"file_path": "reward/test.py", "file_format": "py", "content": CHECK},
    ],
    "origin_template": "---\nid: task_00_sum\n---\n",
}


def foreign(tmp_path):
  (tmp_path / "theirs.jsonl").write_text(
      "\n".join([
          json.dumps(LINE),
          "no json",
          json.dumps({**LINE, "input_files": []}),
          json.dumps({**LINE, "prompt": "Another."}),
      ])
  )
  return tmp_path / "theirs.jsonl"


def test_a_foreign_task_is_imported_judged_and_goes_back_as_it_came(tmp_path):
  summary, losses = convert(foreign(tmp_path), tmp_path / "ours", split="heldout")
  assert losses.left_out == {
      "its line is no JSON": ["line 2"],
      "it has no prompt or no reward package": ["line 3"],
      "another task before it has its name": ["task_00_sum"],
  }
  task = load_task(tmp_path / "ours" / "task_00_sum")
  assert (task.split, task.operations) == ("heldout", ("aggregation",))
  assert losses.parts["rules of a rubric that don't say what earns each level"] == 2
  (one,) = task.rubric()
  assert (one.name, one.file_path, one.criterion) == ("tidy", "out.txt", "tidy")
  assert one.scores["1"] == "yes"
  inputs = gather(task.workspace)
  for out, score in ((b"7", 1.0), (b"8", 0.5), (None, 0.0), (b"break", 0.0)):
    files = inputs if out is None else {**inputs, "out.txt": out}
    assert asyncio.run(verify(task, pack(files), "", [])).score == score
  states = [State(pack({**inputs, "out.txt": b"7"})), State(pack(inputs))]
  outcomes = asyncio.run(verify_many(task, states))
  assert [outcome.score for outcome in outcomes] == [1.0, 0.0]
  convert(tmp_path / "ours", tmp_path / "again.jsonl")
  again = json.loads((tmp_path / "again.jsonl").read_text())
  assert list(again.items()) == list(LINE.items())


@pytest.mark.parametrize("form", sorted(FOREIGN))
def test_a_foreign_task_in_the_formats_of_others(tmp_path, form):
  convert(foreign(tmp_path), tmp_path / "ours")
  there = tmp_path / ENDS[form]
  assert convert(tmp_path / "ours", there, form)[0]["new"] == 1
  summary, losses = convert(there, tmp_path / "back")
  assert not losses.left_out
  task = load_task(list_tasks(tmp_path / "back")[0])
  assert gather(task.workspace) == {"in.txt": b"3\n4\n"}
  good = pack({"in.txt": b"3\n4\n", "out.txt": b"8"})
  assert asyncio.run(verify(task, good, "", [])).score == 0.5


def test_the_pages_commands(folder, tmp_path):
  shutil.copytree(folder, tmp_path / "tasks")
  for block in docs.blocks("task_formats.md"):
    docs.run_block(block, tmp_path)
  assert gather(tmp_path / "again") == gather(folder)


def test_one_that_was_killed_is_made_again(folder, tmp_path):
  convert(folder, tmp_path / "rl", "clawgym_rl")
  for target in ("back/.train-0.partial", ".shards.partial"):
    (tmp_path / target / "workspace").mkdir(parents=True)
    (tmp_path / target / "workspace" / "half").write_text("")
  convert(tmp_path / "rl", tmp_path / "back")
  convert(folder, tmp_path / "shards", "arrayrecord")
  assert gather(tmp_path / "back") == gather(folder)
  assert not (tmp_path / ".shards.partial").exists()


def run_harbor(directory, solve, more=()):
  """Solves and tests as Harbor does, its folders below a scratch folder; `more`
  is what an agent left."""
  root = directory.parent / "root"
  env = {**os.environ, "HOME": str(root)}
  for name in ("tests", "solution"):
    target = root / name
    target.mkdir(parents=True)
    if not (directory / name).exists():
      continue
    for path, data in gather(directory / name).items():
      file = target / path
      file.parent.mkdir(parents=True, exist_ok=True)
      text = data.decode().replace("/logs/", f"{root}/logs/")
      text = text.replace("/tests/check", f"{root}/tests/check")
      text = text.replace("/root/.openclaw/workspace", "/workspace")
      file.write_text(text.replace("/workspace", f"{root}/workspace"))
  workspace = root / "workspace"
  workspace.mkdir()
  inputs = gather(directory / "environment" / "workspace")
  for path, data in {**inputs, **dict(more)}.items():
    (workspace / path).parent.mkdir(parents=True, exist_ok=True)
    (workspace / path).write_bytes(data)
  (root / "logs" / "verifier").mkdir(parents=True)
  (root / "logs" / "verifier" / "reward.json").write_text('{"reward": 1.0}')  # a cheat
  if solve:
    subprocess.run(["bash", root / "solution" / "solve.sh"], env=env, check=True)
  subprocess.run(["bash", root / "tests" / "test.sh"], env=env, check=True)
  assert not (root / "logs" / "verifier" / "reward.json").exists()
  return float((root / "logs" / "verifier" / "reward.txt").read_text())


@pytest.mark.parametrize("solve", [True, False])
def test_a_harbor_directory_runs(folder, tmp_path, solve):
  convert(folder, tmp_path / "harbor", "harbor")
  directory = harbor.directories(tmp_path / "harbor")[0]
  assert run_harbor(directory, solve) == float(solve)
  told = tomllib.loads((directory / "task.toml").read_text())
  task = load_task(folder / directory.name)
  assert told["task"]["name"] == f"clawgym-syndata/{task.id}"
  assert told["agent"]["timeout_sec"] == task.limits.seconds
  assert told["environment"]["network_mode"] == "no-network"


def test_a_reward_package_runs_in_a_harbor_directory(tmp_path):
  convert(foreign(tmp_path), tmp_path / "ours")
  convert(tmp_path / "ours", tmp_path / "harbor", "harbor")
  directory = harbor.directories(tmp_path / "harbor")[0]
  assert run_harbor(directory, False, {"out.txt": b"8"}) == 0.5


def test_a_harbor_task_of_others_is_kept_whole(tmp_path):
  files = {
      "task.toml": 'version = "1.0"\n[metadata]\ncategory = "files"\n'
      "[agent]\ntimeout_sec = 90.0\n",
      "instruction.md": "Sort data/a.txt.\n",
      "environment/Dockerfile": "FROM debian\nWORKDIR /app\nCOPY data/ ./data/\n"
      "COPY conf.ini /etc/conf.ini\nRUN apt-get update \\\n  && true\n",
      "environment/data/a.txt": "b\na\n",
      "environment/conf.ini": "[a]\n",
      "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
      "solution/solve.sh": "sort -o data/a.txt data/a.txt\n",
  }
  for name, text in files.items():
    path = tmp_path / "theirs" / "sort-it" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
  (tmp_path / "theirs" / "steps").mkdir()
  (tmp_path / "theirs" / "steps" / "task.toml").write_text("")
  summary, losses = convert(tmp_path / "theirs", tmp_path / "ours")
  assert losses.parts == {
      "what RUN in a Dockerfile does": 1,
      "files outside the working directory of an image": 1,
  }
  assert list(losses.left_out.values()) == [["steps"]]
  task = load_task(tmp_path / "ours" / "sort-it")
  assert gather(task.workspace) == {"data/a.txt": b"b\na\n"}
  assert task.requires == ("its Harbor image",) and task.limits.seconds == 90.0
  outcome = asyncio.run(verify(task, pack({}), "", []))
  assert outcome.score is None and "need its image" in outcome.cause
  convert(tmp_path / "ours", tmp_path / "again", "harbor")
  assert gather(tmp_path / "again" / "sort-it") == {
      name: text.encode() for name, text in sorted(files.items())
  }


def test_the_card_counts_what_is_there(folder, tmp_path):
  convert(folder, tmp_path / "README.md")
  card = (tmp_path / "README.md").read_text()
  tasks = [load_task(directory) for directory in list_tasks(folder)]
  assert "6 tasks for agents" in card and "| heldout | 2 |" in card
  assert "| office and daily tasks | 6 |" in card
  assert "17% of them are hybrid" in card and "| code and rubric | 1 |" in card
  most = max(len(task.instruction.split()) for task in tasks)
  row = next(li for li in card.splitlines() if "words of the instruction" in li)
  assert row.split("|")[5].strip() == str(most)
  for plot in (tmp_path / "plots").iterdir():
    ET.parse(plot)
    assert f"plots/{plot.name}" in card
  files = ET.parse(tmp_path / "plots" / "input_files.svg").getroot()
  texts = [e.text for e in files if e.tag.endswith("text")][2::2]
  assert sum(map(int, texts)) == 6


def test_the_card_says_of_runs_what_an_audit_wrote_down(folder, tmp_path):
  """Of the very tasks that it admitted, and nothing where there is none."""
  source = shutil.copytree(folder, tmp_path / "tasks")
  convert(source, tmp_path / "a" / "README.md")
  card = (tmp_path / "a" / "README.md").read_text()
  assert "None of them is known to be audited" in card
  one, two, *_ = [load_task(directory) for directory in list_tasks(source)]
  kept = {
      one.root.name: {"verdict": "admitted",
                      "hash": f"4:{one.provenance['content_hash']}"},
      two.root.name: {"verdict": "admitted", "hash": "4:of what it was before"},
  }  # fmt: skip
  (source / "audit.json").write_text(json.dumps({"tasks": kept}))
  convert(source, tmp_path / "b" / "README.md")
  card = (tmp_path / "b" / "README.md").read_text()
  assert "1 of them were audited as they are" in card


def test_losses_are_said_in_full():
  losses = Losses()
  for number in range(5):
    losses.leave_out(f"t{number}", "too big")
  losses.parts["colour"] += 2
  assert losses.lines() == ["left out: too big: 5 (t0, t1, t2, …)", "lost: colour: 2"]
  assert dataclasses.asdict(losses)["left_out"]["too big"][4] == "t4"
