"""Replays calls.json beside it in the current folder. Standard library only.

The calls that change files: exec, write and edit. Reading changes nothing.
"""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
  with open(os.path.join(HERE, "calls.json")) as file:
    solution = json.load(file)
  for turn in solution["turns"]:
    for call in turn["calls"]:
      CALLS[call["name"]](call["arguments"])
    print(turn["final_message"])


def execute(given):
  subprocess.run(
      ["bash", "-c", given["command"]],
      cwd=given.get("workdir"),
      stdin=subprocess.DEVNULL,
  )


def write(given):
  folder = os.path.dirname(given["path"])
  if folder:
    os.makedirs(folder, exist_ok=True)
  with open(given["path"], "w", newline="") as file:
    file.write(given["content"])


def edit(given):
  with open(given["path"], newline="") as file:
    text = file.read()
  for change in given["edits"]:
    if text.count(change["oldText"]) != 1:
      sys.exit(f"{given['path']} does not hold once what an edit looks for")
    text = text.replace(change["oldText"], change["newText"])
  with open(given["path"], "w", newline="") as file:
    file.write(text)


CALLS = {
    "exec": execute,
    "write": write,
    "edit": edit,
    "read": lambda given: None,
    "memory_get": lambda given: None,
    "memory_search": lambda given: None,
}

if __name__ == "__main__":
  main()
