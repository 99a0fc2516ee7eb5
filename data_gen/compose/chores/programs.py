"""Small programs: mended, written, tested.

What is judged of a program is what it prints for an input that the agent has
not seen; a result that it wrote along the way is judged beside it.
"""

from __future__ import annotations

from typing import Any

from data_gen.compose.chores.registry import chore, kin, lines, text
from data_gen.compose.part import Part
from data_gen.compose.setting import Setting
from data_gen.draft import edit_call, exec_call, read_call, write_call

# what it is for, the line that does it, and how that line is wrong
_FAULTS = (
    (
        "counts the numbers that are at least the limit",
        "    return sum(1 for n in numbers if n >= limit)",
        "    return sum(1 for n in numbers if n > limit)",
        lambda numbers, limit: sum(1 for n in numbers if n >= limit),
    ),
    (
        "adds up the numbers that are below the limit",
        "    return sum(n for n in numbers if n < limit)",
        "    return sum(n for n in numbers if n > limit)",
        lambda numbers, limit: sum(n for n in numbers if n < limit),
    ),
    (
        "gives the largest number that is not above the limit, or 0",
        "    return max((n for n in numbers if n <= limit), default=0)",
        "    return max((n for n in numbers if n < limit), default=0)",
        lambda numbers, limit: max((n for n in numbers if n <= limit), default=0),
    ),
    (
        "counts how many different numbers there are up to the limit",
        "    return len({n for n in numbers if n <= limit})",
        "    return len([n for n in numbers if n <= limit])",
        lambda numbers, limit: len({n for n in numbers if n <= limit}),
    ),
)


def _program(purpose: str, body: str, limit: int) -> list[str]:
  return [
      f'"""Reads numbers, one a line, and {purpose}."""',
      "import sys",
      "",
      f"LIMIT = {limit}",
      "",
      "",
      "def figure(numbers, limit=LIMIT):",
      body,
      "",
      "",
      'if __name__ == "__main__":',
      "    with open(sys.argv[1]) as file:",
      "        print(figure([int(line) for line in file if line.strip()]))",
  ]


def _script(
    path: str, given: bytes, said: str, keeps: list[str] = []
) -> dict[str, Any]:
  """A deliverable: run on `given`, the script at `path` prints `said`; it has
  the lines `keeps`, in their order."""
  return {
      "kind": "script", "path": path, "input": given.decode(), "output": said,
      "keeps": keeps,
  }  # fmt: skip


def _numbers(setting: Setting, limit: int) -> list[int]:
  """Numbers on which every fault shows: the limit itself, twice."""
  numbers = [setting.integer(2, 2 * limit) for _ in range(setting.data.randint(9, 20))]
  numbers += [limit, limit, numbers[0]]
  setting.data.shuffle(numbers)
  return numbers


@chore("script repair")
def fix_script(setting: Setting) -> Part:
  topic, limit = setting.word("topic"), setting.number(20, 90)
  folder = f"tools/{topic}"
  purpose, right, wrong, figure = setting.rng.choice(_FAULTS)
  numbers, hidden = _numbers(setting, limit), _numbers(setting, limit)
  script, tests = f"{folder}/figure.py", f"{folder}/test_figure.py"
  data, result = f"{folder}/numbers.txt", f"{folder}/figure.txt"
  samples = [limit - 1, limit, limit, limit + 1, limit + 1, limit - 1, limit + 9]
  test = [
      "import unittest",
      "",
      "from figure import figure",
      "",
      "",
      "class FigureTest(unittest.TestCase):",
      "    def test_around_the_limit(self):",
      f"        self.assertEqual(figure({samples}), {figure(samples, limit)})",
      "",
      "    def test_nothing(self):",
      "        self.assertEqual(figure([]), 0)",
  ]
  said = setting.rng.choice((
      f"The test in {folder} fails: {script} is meant to be a program that {purpose}."
      f" Mend the line that is wrong, not the test, then run the program on {data} and"
      f" save its output as {result}.",
      f"{script} {purpose}, or should. Make {tests} pass by changing only the wrong"
      f" line of the script, then write what it prints for {data} to {result}.",
      f"Repair {script} ({tests} says how it fails; it {purpose}); one line of it is"
      f" wrong. After that, save what it prints for {data} in {result}. All else"
      " stays.",
  ))  # fmt: skip
  run = f"cd {folder} && python3 -B -m unittest test_figure 2>&1 | tail -n 12"
  return Part(
      said=said,
      calls=[
          exec_call(run),
          read_call(script),
          read_call(tests),
          edit_call(script, wrong, right),
          exec_call(run),
          exec_call(f"python3 -B {script} {data} > {result} && cat {result}"),
      ],
      workspace={
          script: text(_program(purpose, wrong, limit)),
          tests: text(test),
          data: text(map(str, numbers)),
      },
      deliverables={
          "fix_script": _script(
              script, text(map(str, hidden)), str(figure(hidden, limit)),
              [line for line in _program(purpose, wrong, limit) if line != wrong],
          ),
          "fix_script_result": lines(result, [str(figure(numbers, limit))]),
      },
      done=f"{script} is mended and {result} written",
      changed=frozenset({script}),
      leaves=frozenset({f"{folder}/__pycache__/"}),
  )


@chore("script writing")
def write_script(setting: Setting) -> Part:
  """A new program that counts the lines with a word."""
  topic, word = setting.word("topic"), setting.word("level")
  other = setting.word("level")
  script, source = f"tools/{topic}/count.py", f"tools/{topic}/sample.log"
  log = lambda: [
      f"{setting.pick((word, other, 'INFO', word.lower()))} {note}"
      for note in (f"unit {setting.integer(2, 900)}" for _ in range(18))
  ]
  seen, hidden = log(), [*log(), f"{word} last"]
  count = sum(line.startswith(word) for line in hidden)
  said = setting.rng.choice((
      f"Write a Python script {script} that takes a file as its argument and prints how"
      f" many of its lines start with {word} (in capitals); {source} is an example.",
      f"I need {script}: called with a log file such as {source}, it prints the number"
      f" of lines that begin with {word}, nothing else. Capitals matter.",
      f"Make a Python program {script} which counts the lines starting with {word} (not"
      f" in small letters) in the file given to it, as {source}, and prints the count.",
  ))  # fmt: skip
  code = (
      "import sys\n\n"
      "with open(sys.argv[1]) as file:\n"
      f'  print(sum(line.startswith("{word}") for line in file))\n'
  )
  return Part(
      said=said,
      calls=[
          read_call(source),
          write_call(script, code),
          exec_call(f"python3 {script} {source}"),
          exec_call(f"grep -c '^{word}' {source} || true"),
      ],
      workspace={source: text(seen)},
      deliverables={"write_script": _script(script, text(hidden), str(count))},
      done=f"{script} counts the lines with {word}",
  )


@chore("testing")
def failing_tests(setting: Setting) -> Part:
  """Tests are run and the names of those that fail are written down."""
  folder, path = f"tools/{setting.word('topic')}", f"lists/{setting.word('topic')}.txt"
  names = [f"test_{name}" for name in kin(setting, "stem", 6, "_")]
  bad = sorted(setting.data.sample(names, setting.data.randint(2, 4)))
  code = ["import unittest", "", "", "class StockTest(unittest.TestCase):"]
  for name in names:
    left, right = setting.integer(2, 90), setting.integer(2, 90)
    total = left + right + (setting.data.randint(1, 9) if name in bad else 0)
    code += [
        f"    def {name}(self):",
        f"        self.assertEqual({left} + {right}, {total})",
        "",
    ]
  said = setting.rng.choice((
      f"Run the unittest tests in {folder} and write the names of the methods that fail"
      f" to {path}, one a line, alphabetically. Repair nothing.",
      f"Which tests of {folder} fail (unittest)? Save the method names in {path},"
      " sorted, a line each; leave the tests as they are.",
      f"Test {folder} with unittest and list in {path} the failing test methods by"
      " name, one a line in alphabetical order, without changing them.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"ls {folder}"),
          exec_call(
              f"mkdir -p lists && (cd {folder} && python3 -B -m unittest -v 2>&1)"
              f" | awk '/ FAIL$/ {{print $1}}' | sort > {path}"
          ),
          read_call(path),
      ],
      workspace={f"{folder}/test_stock.py": text(code)},
      deliverables={"failing_tests": lines(path, bad)},
      done=f"the failing tests are in {path}",
      leaves=frozenset({f"{folder}/__pycache__/"}),
  )
