"""Tasks of two or three user turns over one workspace.

A pattern asks for the records of a graph in turns, of which a later one needs
what an earlier one told, made or left. In a turn that opens a new conversation
nothing of that is in the context: the calls find it in the workspace.
"""

from data_gen.compose.turns import agreed, made
from data_gen.compose.turns.pattern import PATTERNS, Asked, Pattern

__all__ = ["PATTERNS", "Asked", "Pattern", "agreed", "made"]
