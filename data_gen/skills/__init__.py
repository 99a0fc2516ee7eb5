"""Skills (SKILL.md files in the AgentSkills format) and tasks that need them.

`read` takes a folder of skills, `own` those of this package; `library` is a
folder that a user points at, checked; `needs` says what a skill needs; `build`
makes a task from a graph with the skills that it is about, where a rule of the
work is told by a skill alone.
"""

from data_gen.skills.folder import counts, left_out, library, lines
from data_gen.skills.needs import Needs, needs
from data_gen.skills.route import build, covers, placed
from data_gen.skills.skill import Library, Refused, Skill, own, read

__all__ = [
    "Library", "Needs", "Refused", "Skill", "build", "counts", "covers", "left_out",
    "library", "lines", "needs", "own", "placed", "read",
]  # fmt: skip
