"""Small Python scripts of the workspace: change a constant, mend a path, run."""

from __future__ import annotations

from data_gen.draft import Draft, edit_call, exec_call, family, number, table, text
from data_gen.families.tables import ledger
from data_gen.world import World

_DEVELOPMENT = {"category": "software development", "macro": "Software Development"}


def _script(path: str, column: str, constant: str, factor: str, result: str) -> str:
  return f'''"""Writes the {column} total, times {constant}."""
import csv

{constant} = {factor}
with open("{path}") as file:
  total = sum(float(row["{column}"]) for row in csv.DictReader(file))
with open("{result}", "w") as file:
  print(f"{{total * {constant}:.2f}}", file=file)
'''


@family(
    **_DEVELOPMENT,
    operations="script_edit script_run",
    calls=2,
    templates=(
        "Set {constant} to {value} in {script}, then run the script.",
        "In {script}, {constant} must be {value}. Change it and run it once.",
        "Please change {constant} in {script} to {value} and run {script} with python3.",
        "{script} has an old {constant}. Make it {value}, then run it.",
        "Update {script}: {constant} is {value} now. Run it afterwards.",
        "Put {value} as {constant} into {script} and execute it so {result} is written.",
    ),
    goal="Change a constant in a script, then run it with python3.",
    bullets=(("script", "script"), ("constant", "constant"), ("new value", "value")),
    vocabulary="sed python3",
)
def script_constant(world: World) -> Draft:
  stem, topic = world.word("stem"), world.word("topic")
  constant, column = world.word("rate"), world.word("amount")
  old, new = str(world.number(2, 60)), str(world.number(2, 60))
  source, script = f"{world.word('folder')}/{stem}.csv", f"tools/{topic}.py"
  result = f"{world.word('target')}/{stem}.txt"
  rows, total = ledger(world, column, world.rng.randint(3, 5))
  value = round(float(total) * int(new), 2)
  return Draft(
      facts={"script": script, "constant": constant, "value": new, "result": result},
      workspace={
          script: _script(source, column, constant, old, result),
          source: table(["date", "client", column], rows),
          f"{result.split('/')[0]}/README.md": f"For {world.project}.\n",
      },
      calls=[
          exec_call(f"sed -i 's/^{constant} = .*/{constant} = {new}/' {script}"),
          exec_call(f"python3 {script}"),
      ],
      deliverables={
          "script": text(script, _script(source, column, constant, new, result)),
          "result": number(result, value),
      },
      changed=frozenset({script}),
      final_message=f"Done, {constant} is {new} and {script} ran.",
  )


@family(
    **_DEVELOPMENT,
    operations="script_run script_debugging script_edit",
    calls=3,
    templates=(
        "Run {script} with python3; it fails on a missing file. Edit it to use {source},"
        " then run it again.",
        "{script} crashes because its input moved to {source}. Run it with python3 to see"
        " the old path, edit that, run it again.",
        "Run python3 {script}, look at the path in the error, edit the script to read"
        " {source} instead and run it again.",
        "Please repair {script}: run it, replace the missing path from the error by"
        " {source}, run it once more.",
        "The file {script} wants is gone; it's {source} now. Run it, edit the bad path,"
        " and run it again.",
        "Start {script}, it stops with a wrong path. The right one is {source}: edit the"
        " script and start it again.",
    ),
    goal="Run the script, mend the missing path that the error shows, run it again.",
    bullets=(("script", "script"), ("right path", "source")),
    vocabulary="python3",
)
def script_path(world: World) -> Draft:
  stem, wrong, topic = world.word("stem"), world.word("stem"), world.word("topic")
  column = world.word("amount")
  folder = world.word("folder")
  source, missing = f"{folder}/{stem}.csv", f"{folder}/{wrong}.csv"
  script = f"tools/{topic}.py"
  result = f"{world.word('target')}/{topic}.txt"
  rows, total = ledger(world, column, world.rng.randint(3, 5))
  factor = str(world.number(2, 30))
  constant = world.word("rate")
  value = round(float(total) * int(factor), 2)
  return Draft(
      facts={"script": script, "source": source},
      workspace={
          script: _script(missing, column, constant, factor, result),
          source: table(["date", "client", column], rows),
          f"{result.split('/')[0]}/README.md": f"For {world.project}.\n",
      },
      calls=[
          exec_call(f"python3 {script}"),
          edit_call(script, missing, source),
          exec_call(f"python3 {script}"),
      ],
      deliverables={
          "result": number(result, value),
          "runs": {
              "kind": "script",
              "path": script,
              "source": source,
              "row": f"{world.today.isoformat()},{world.first},100.00\n",
              "result": result,
              "value": value + 100 * int(factor),
          },
      },
      changed=frozenset({script}),
      final_message=f"Done, {script} reads {source} and runs.",
  )
