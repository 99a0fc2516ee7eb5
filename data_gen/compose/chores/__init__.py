"""Work beside the records: files moved, settings changed, messages sent.

A chore needs nothing but the workspace and the services that it names.
"""

from data_gen.compose.chores import (
    files,
    history,
    memory,
    programs,
    services,
    settings,
    texts,
)
from data_gen.compose.chores.registry import (
    CHORES,
    Chore,
    chore,
    may_join,
)

__all__ = [
    "CHORES", "Chore", "chore", "files", "history", "may_join",
    "memory", "programs", "services", "settings", "texts",
]  # fmt: skip
