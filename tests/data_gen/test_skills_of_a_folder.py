"""Tasks about skills that a user points at: used, named, and found again."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.task import list_tasks, load_task
from data_gen import skills
from data_gen.compose.make import grounded, make, rebuild
from data_gen.synthesize import synthesize
from tests.data_gen.test_skills import _skill

BODY = (
    "Read the CSV or JSON file. Write it so that it is of use to the one who asked for"
    " it, and do not change the files that you were given.\n"
)
ABOUT = "Filter records, join and group them, check dates, hand over totals in a report."
NAMES = ("adding-up", "clean-lists", "figures")
SEED = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
  """Three skills for all sorts of work, and what is of no use."""
  place = tmp_path_factory.mktemp("skills")
  for name in NAMES:
    _skill(place, name, BODY, description=f"{name.capitalize()}. {ABOUT}")
  _skill(place, "locked", f"Set MY_API_KEY first. {BODY}")
  _skill(place, "Upper", BODY)
  (place / "bare").mkdir()
  return place


@pytest.fixture(scope="module")
def index(folder) -> int:
  """A task that the folder's skills ground."""
  library = skills.library(folder)
  return next(i for i in range(0, 400, 4) if grounded(SEED, "train", i, library))


def _files(directory: Path) -> dict[str, bytes]:
  return {
      str(p.relative_to(directory)): p.read_bytes()
      for p in directory.rglob("*")
      if p.is_file()
  }


def test_what_serves_and_what_does_not(folder):
  library = skills.library(folder)
  assert skills.counts(library) == {
      "digest": library.digest, "skills": 4, "usable": 3,
      "left_out": {"bad name": 1, "needs: auth": 1, "no SKILL.md": 1},
  }  # fmt: skip
  assert skills.left_out(library)["needs: auth"] == ["locked"]
  said = "\n".join(skills.lines(library))
  assert f"no SKILL.md: 1 ({folder / 'bare'})" in said and "Upper" in said


def test_a_task_takes_the_folder_s_skills_or_ours(tmp_path, folder, index):
  library = skills.library(folder)
  theirs = make(tmp_path / "theirs", SEED, "train", index, library)
  ours = make(tmp_path / "ours", SEED, "train", index)
  assert theirs.skills and set(theirs.skills) <= set(NAMES)
  assert ours.skills and not set(ours.skills) & set(NAMES)
  assert theirs.provenance["skills"] == library.digest
  assert "skills" not in ours.provenance and theirs.family == ours.family
  make(tmp_path / "plain", SEED, "train", 1)
  make(tmp_path / "again", SEED, "train", 1, library)
  assert _files(tmp_path / "plain") == _files(tmp_path / "again")


def test_it_is_made_again_over_other_records_with_the_same_skills_only(
    tmp_path, folder, index
):
  library = skills.library(folder)
  task = make(tmp_path / "t", SEED, "train", index, library)
  workspace, checks, _ = rebuild(task, 1, library)
  place = f"skills/{task.skills[0]}/SKILL.md"
  assert workspace[place] == (task.workspace / place).read_bytes()
  assert checks["expected.json"] != (task.checks / "expected.json").read_bytes()
  other = shutil.copytree(folder, tmp_path / "other")
  changed = other / NAMES[0] / "SKILL.md"
  changed.write_text(changed.read_text() + "More.\n")
  for given in (None, skills.library(other)):
    with pytest.raises(UserError, match="give that as --skills=DIR, as it was"):
      rebuild(task, 1, given)
  with pytest.raises(UserError, match=f"skills of {other} have changed"):
    skills.library(other, library.digest)
  (other / "one-more").mkdir()  # no skill changes no digest
  assert skills.Library(library.skills).digest == library.digest


def test_a_set_is_of_one_folder(tmp_path, folder, index):
  out = tmp_path / "tasks"
  made = synthesize(out, index + 1, SEED, "train", skills_of=folder)
  assert made["skills"]["tasks"] >= 1 and made["skills"]["usable"] == 3
  told = [load_task(path).provenance.get("skills") for path in list_tasks(out)]
  assert sum(map(bool, told)) == made["skills"]["tasks"]
  assert synthesize(out, index + 1, SEED, "train", skills_of=folder)["made"] == 0
  with pytest.raises(UserError, match="skills "):
    synthesize(out, index + 1, SEED, "train")


def test_a_folder_without_use_is_an_error(tmp_path):
  _skill(tmp_path, "locked", f"Set MY_API_KEY first. {BODY}")
  with pytest.raises(UserError, match="no skill of .* needs: auth: 1"):
    skills.library(tmp_path)
  (tmp_path / "empty").mkdir()
  with pytest.raises(UserError, match="no SKILL.md"):
    skills.library(tmp_path / "empty")


def test_only_composed_tasks_take_skills(tmp_path, folder):
  command = [sys.executable, "-m", "data_gen.synthesize", f"--out={tmp_path}"]
  run = subprocess.run(
      [*command, "--generator=compact", f"--skills={folder}"],
      capture_output=True, text=True, timeout=60,
  )  # fmt: skip
  assert run.returncode == 1
  assert "--skills is for --generator=procedural" in run.stderr
  assert not list(tmp_path.iterdir())
