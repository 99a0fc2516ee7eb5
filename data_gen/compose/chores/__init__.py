"""Work beside the records: files moved, settings changed, messages sent.

`CHORES` need nothing but the workspace, `SERVICE_CHORES` the services that
they name.
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
    SERVICE_CHORES,
    Chore,
    chore,
    may_join,
)

__all__ = [
    "CHORES", "Chore", "SERVICE_CHORES", "chore", "files", "history", "may_join",
    "memory", "programs", "services", "settings", "texts",
]  # fmt: skip
