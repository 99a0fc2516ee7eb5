"""What check.py is made of: the checker and its modules, in one file.

A composed task's check.py runs where nothing of ours is installed, so
`source` joins the modules and leaves out what they import of each other. No
two of them have a name in common.
"""

from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent
_MODULES = (
    _FOLDER / "files.py", _FOLDER / "tables.py", _FOLDER / "work.py",
    _FOLDER / "disguise.py", _FOLDER / "gate.py", _FOLDER.parent / "checker.py",
)  # fmt: skip
_OURS = "from data_gen.compose.checks."


@cache
def source() -> bytes:
  """The contents of check.py."""
  lines = (line for path in _MODULES for line in path.read_text().splitlines())
  return "".join(f"{line}\n" for line in lines if not line.startswith(_OURS)).encode()
