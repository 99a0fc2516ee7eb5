"""The Claw tool set: what the model is offered, and its execution in a sandbox.

Schemas are OpenAI function tools; `execute` always gives text for the model.
"""

from sandbox.tools.execute import EXEC_SECONDS, execute
from sandbox.tools.schemas import compact_schemas, schemas

__all__ = ["EXEC_SECONDS", "compact_schemas", "execute", "schemas"]
