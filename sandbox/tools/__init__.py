"""The Claw tool set: what the model is offered, and its execution in a sandbox.

Schemas are OpenAI function tools; `execute` always gives text for the model.
Every task offers read, write, edit and exec; what it requires adds others.
"""

from sandbox.tools.execute import EXEC_SECONDS, execute
from sandbox.tools.table import DEFAULT, TOOLS, compact_schemas, offered, schemas

__all__ = [
    "DEFAULT",
    "EXEC_SECONDS",
    "TOOLS",
    "compact_schemas",
    "execute",
    "offered",
    "schemas",
]
