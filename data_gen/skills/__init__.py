"""Skills (SKILL.md files in the AgentSkills format) and tasks that need them.

`read` takes a folder of skills, `own` those of this package; `needs` says what
one needs; `build` makes a task from a graph with the skills that it is about,
where a rule of the work is told by a skill alone.
"""

from data_gen.skills.needs import Needs, needs
from data_gen.skills.route import build, covers, placed
from data_gen.skills.skill import Library, Refused, Skill, own, read

__all__ = [
    "Library", "Needs", "Refused", "Skill", "build", "covers", "needs", "own", "placed",
    "read",
]  # fmt: skip
