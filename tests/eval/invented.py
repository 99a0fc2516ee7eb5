"""Runs of an invented suite, made through the contracts' own classes."""

import json
import math
import random

import tokenizers

from clawgym_jax.chat.template import compact
from clawgym_jax.chat.tokenizer import TURN_END, TURN_START, Tokenizer
from clawgym_jax.contracts import task as tasks
from clawgym_jax.contracts import trajectory as contract
from clawgym_jax.contracts.files import append_line, write_json
from eval import summary

FAMILIES = {
    "csv_totals": "Analysis & Reasoning",
    "inbox_reply": "Productivity & Collaboration",
    "log_triage": "Systems & Automation",
    "notes_merge": "Planning & Knowledge",
    "rename_files": "Systems & Automation",
}
SKILL = {"null": 0.0, "base": 0.08, "sft": 0.55, "rl": 0.56}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": text,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string"} for key in keys},
            },
        },
    }
    for name, text, keys in [
        ("read", "Read a file.", ("path",)),
        ("write", "Write a file.", ("path", "content")),
        ("exec", "Run a shell command.", ("command",)),
    ]
]


def byte_tokenizer():
  """Every byte a token, and the two control tokens."""
  alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
  vocabulary = {character: i for i, character in enumerate(alphabet)}
  backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
  backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
  backend.decoder = tokenizers.decoders.ByteLevel()
  backend.add_special_tokens([TURN_START, TURN_END])
  return Tokenizer(backend, compact())


def make_suite(directory, per_family=8):
  """Tasks as directories, so that hashes and loading are the real ones."""
  result = []
  for family, category in FAMILIES.items():
    for i in range(per_family):
      task_id = f"{family}_{i:03d}"
      result.append(
          tasks.save_task(
              directory / task_id,
              tasks.Task(
                  id=task_id,
                  instruction=(
                      f"Read sales_{i}.csv, add up the amounts of each region and"
                      " write the totals to totals.md as a table, largest first."
                  ),
                  family=family,
                  split="heldout",
                  category=category,
                  operations=("read", "write"),
                  difficulty=1 + i % 3,
              ),
              workspace={f"sales_{i}.csv": b"region,amount\nnorth,4\nsouth,7\n"},
              checks={
                  "check.py": (
                      b"import pathlib\n\n\n"
                      b"def grade(workspace, final_message, transcript):\n"
                      b"  path = pathlib.Path(workspace) / 'totals.md'\n"
                      b"  return {'totals_written': float("
                      b"path.is_file() and 'south' in path.read_text())}\n"
                  )
              },
              turns=[
                  tasks.Reference(
                      [
                          tasks.SolutionCall(
                              "write",
                              {"path": "totals.md", "content": "south 7\nnorth 4\n"},
                          )
                      ],
                      "Done: totals.md holds the totals.",
                  )
              ],
          )
      )
  return result


def _response(text, call=None):
  message = {"role": "assistant", "content": text}
  if call:
    message["tool_calls"] = [{
        "id": "call_0",
        "type": "function",
        "function": {"name": call[0], "arguments": json.dumps(call[1])},
    }]
  return message


def make_trajectory(task, harness, sample, outcome, rng, tokenizer, *, attempt=0):
  """Three model calls, or none for harnesses without a model."""
  identity = f"{harness}-{task.id}-{sample}-{attempt}"
  steps = []
  turns = [
      ("I read the file first.", ("read", {"path": "sales_0.csv"})),
      ("", ("exec", {"command": "awk -F, 'NR>1{s[$1]+=$2}\nEND{for(r in s)\n  print r, s[r]}' sales_0.csv\necho done"})),
      ("Done: totals.md holds the totals — “largest first” ✓.", None),
  ]
  results = ["region,amount\nnorth,4\nsouth,7\n", "south 7\nnorth 4\ndone\n"]
  if harness != "null":
    for i, (text, call) in enumerate(turns):
      ids = tokenizer.encode(text or json.dumps(call)) + [tokenizer.eos_id]
      logprobs = [-round(rng.expovariate(2.5), 4) for _ in ids]
      steps.append(
          contract.Step(
              step_id=f"s{i}",
              parent_id=f"s{i - 1}" if i else None,
              messages=[
                  {"role": "system", "content": "You work in /workspace."},
                  {"role": "user", "content": task.instruction},
              ]
              if i == 0
              else [{"role": "tool", "tool_call_id": "call_0", "content": results[i - 1]}],
              response=_response(text, call),
              finish_reason="tool_calls" if call else "stop",
              tools=TOOLS if i == 0 else None,
              prompt_ids=tokenizer.encode(task.instruction if i == 0 else results[i - 1]),
              response_ids=ids,
              logprobs=[x / 0.7 for x in logprobs],
              untempered_logprobs=logprobs,
              policy_versions=[3] * len(ids),
              sampling={"temperature": 0.7},
              started=100.0 + i,
              finished=100.4 + i,
          )
      )
  return contract.Trajectory(
      id=identity,
      task_id=task.id,
      group_id=task.id,
      sample_index=sample,
      attempt=attempt,
      harness=harness,
      steps=steps,
      outcome=outcome,
      final_message=turns[-1][0] if steps else "",
      metadata={"changes": {"totals.md": "added"}} if steps else {},
  )


def write_run(directory, name, suite, trajectories, samples=1, harness=None):
  """A folder as eval.run leaves it."""
  for trajectory in trajectories:
    append_line(directory / "trajectories.jsonl", contract.to_record(trajectory))
  write_json(
      directory / "summary.json",
      summary.summarise(
          name, harness or ("null" if name == "null" else "claw"), suite, samples, trajectories
      ),
  )
  if name != "null":
    byte_tokenizer().save(directory / "tokenizer")
  return directory


def make_runs(directory, per_family=8, samples=2):
  """Four runs and what training left, all from one seed; returns the paths."""
  rng, tokenizer = random.Random(5), byte_tokenizer()
  suite = make_suite(directory / "suite", per_family)
  ease = {task.id: rng.uniform(-0.35, 0.35) for task in suite}
  for name, skill in SKILL.items():
    trajectories = []
    for task in suite:
      for sample in range(samples):
        share = skill + ease[task.id] + rng.uniform(-0.3, 0.3) if skill else 0.0
        passed = round(4 * min(1.0, max(0.0, share)))
        checks = {f"check_{i}": float(i < passed) for i in range(4)}
        outcome = contract.scored(passed / 4, checks)
        draw = rng.random()
        if name != "null" and draw < 0.06:
          outcome = contract.truncated("turn limit of 8 model calls", passed / 4, checks)
        elif name == "sft" and draw < 0.09:
          outcome = contract.unscored("gateway: upstream did not answer within 60 s")
        trajectories.append(
            make_trajectory(
                task, "null" if name == "null" else "claw", sample, outcome, rng, tokenizer
            )
        )
    write_run(directory / name, name, suite, trajectories, samples)
  for step in range(1, 241):
    append_line(directory / "sft.jsonl", {
        "step": step,
        "tokens": 8192,
        "trained_tokens": 2000 + step % 7,
        "loss": 0.2 + 2.6 * math.exp(-step / 40) + rng.gauss(0, 0.05),
        "learning_rate": 3e-4 * min(1.0, step / 20) * (1 - step / 260),
        "gradient_norm": 0.5 + rng.random(),
        "tokens_per_second": 9000 + 300 * rng.random(),
        **({"eval_loss": 0.28 + 2.5 * math.exp(-step / 38)} if step % 40 == 0 else {}),
    })
  for step in range(1, 61):
    append_line(directory / "rl.jsonl", {
        "step": step,
        "reward_mean": 0.5 + 0.1 * step / 60 + rng.gauss(0, 0.06),
        "sampled_tokens": 64 * (180 + 20 * rng.random()),
        "trajectories": 64,
        "loss": rng.gauss(0, 0.01),
        "dropped_tokens": {"zero_variance": 10},
        "turns_mean": 4 + rng.random(),
        "zero_variance_share": 0.3 + 0.2 * rng.random(),
        "mismatch_max":  0.01 * rng.random(),
    })
  write_json(
      directory / "timings.json",
      [
          {"stage": stage, "title": title, "seconds": seconds}
          for stage, title, seconds in [
              ("tasks", "Synthesise tasks", 41.0),
              ("teacher", "Roll out a teacher", 212.0),
              ("sft", "Supervised fine-tuning", 861.0),
              ("rl", "Reinforcement learning", 1322.4),
              ("eval_rl", "Evaluate after RL", 140.2),
          ]
      ],
  )
  return directory
