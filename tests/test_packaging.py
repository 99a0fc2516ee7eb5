"""The pins are what pyproject.toml asks for, and other Pythons can run the code."""

import contextlib
import hashlib
import re
import shutil
import subprocess
import sys

import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.runs import only_writer
from launch import requirements
from tests.conftest import ROOT

PATIENCE = 1800.0  # seconds; on a busy machine, and without caches, it takes long


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


def done_by(*command):
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@contextlib.contextmanager
def other_environment(version):
  """The Python of an environment with the pins, for one run of this clone at a time.

  It is left alone once it is whole: to make it again rewrites files that every
  Python of it reads when it starts. Half of one, or of other pins, is made anew.
  """
  base = other_python(version)
  folder = ROOT / ".cache" / f"python-{version}"
  with only_writer(folder, "test of another Python", patience=PATIENCE):
    venv, stamp = folder / "venv", folder / "installed"
    python, pins = str(venv / "bin" / "python"), "requirements-test.txt"
    wanted = f"{base} {hashlib.sha256((ROOT / pins).read_bytes()).hexdigest()}"
    if not stamp.exists() or stamp.read_text() != wanted:
      stamp.unlink(missing_ok=True)
      shutil.rmtree(venv, ignore_errors=True)
      uv = (sys.executable, "-m", "uv")
      done_by(*uv, "venv", "-q", "--python", base, str(venv))
      done_by(*uv, "pip", "install", "-q", "--python", python, "--no-deps", "-r", pins)
      stamp.write_text(wanted)
    yield python


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_smoke_on_other_pythons(version):
  """The pins install there, every module imports, and a small model computes."""
  with other_environment(version) as python:
    done_by(
        python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow",
        "--timeout=900", "tests/chat", "tests/contracts", "tests/models",
    )  # fmt: skip


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


def test_programs_are_run_and_never_imported():
  """Their flags would meet those of other programs in the process that imports two."""
  statement = re.compile(r"^\s*(from|import) .*\b__main__\b", re.M)
  found = [
      str(path.relative_to(ROOT))
      for top in ("clawgym_jax", "sandbox", "data_gen", "eval", "launch", "tests")
      for path in (ROOT / top).rglob("*.py")
      if statement.search(path.read_text())
  ]
  assert not found
