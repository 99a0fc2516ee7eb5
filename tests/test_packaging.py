"""The pins are what pyproject.toml asks for, and other Pythons can run the code."""

import shutil
import subprocess
import sys


import pytest

from clawgym_jax.contracts.errors import UserError
from launch import requirements
from tests.conftest import ROOT


@pytest.mark.parametrize("name", requirements.FILES)
def test_requirements_are_fresh(name):
  try:
    fresh = requirements.compiled(name)
  except UserError as error:
    if any(word in str(error).lower() for word in ("fetch", "connect", "network", "dns")):
      pytest.skip(f"no package registry can be reached: {error}")
    raise
  assert (ROOT / name).read_text() == fresh, "run: make requirements"


def other_python(version):
  """The interpreter of another Python on this machine, or a skip."""
  candidates = [shutil.which(f"python{version}")]
  if shutil.which("pyenv"):
    script = f'echo "$(pyenv prefix "$(pyenv latest {version})")/bin/python"'
    found = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    candidates.append(found.stdout.strip())
  for python in filter(None, candidates):
    if shutil.which(python) and not subprocess.run([python, "-c", ""], capture_output=True).returncode:
      return python
  pytest.skip(f"no Python {version} here")


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_the_code_is_valid_on_other_pythons(version):
  files = [
      str(path)
      for top in ("clawgym_jax", "sandbox", "data_gen", "eval", "launch")
      for path in (ROOT / top).rglob("*.py")
  ]
  program = "import ast, sys\nfor f in sys.argv[1:]: ast.parse(open(f).read(), f)"
  done = subprocess.run(
      [other_python(version), "-c", program, *files], capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_smoke_on_other_pythons(version):
  """The pins install there, every module imports, and a small model computes."""
  python = other_python(version)
  venv = ROOT / ".cache" / f"venv-{version}"
  uv = [sys.executable, "-m", "uv"]
  for command in (
      [*uv, "venv", "-q", "--allow-existing", "--python", python, str(venv)],
      [*uv, "pip", "install", "-q", "--python", str(venv / "bin" / "python"),
       "--no-deps", "-r", "requirements-test.txt"],
      [str(venv / "bin" / "python"), "-m", "pytest", "-q", "-x", "tests/chat",
       "tests/contracts", "tests/models", "-m", "not slow"],
  ):  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_every_module_says_what_it_promises():
  import ast

  silent = [
      str(path.relative_to(ROOT))
      for top in ("clawgym_jax", "sandbox", "data_gen", "eval", "launch", "benchmarks")
      for path in (ROOT / top).rglob("*.py")
      if not ast.get_docstring(ast.parse(path.read_text()))
  ]
  assert silent == []


def test_no_module_is_named_for_nothing():
  vague = {"utils.py", "helpers.py", "common.py", "misc.py", "manager.py"}
  tracked = subprocess.run(
      ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
  ).stdout.split()
  assert [path for path in tracked if path.rpartition("/")[2] in vague] == []
