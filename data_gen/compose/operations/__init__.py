"""Operations on tables: what is asked, the code that does it, and the result.

An operation is given a setting and a table and gives a `Step`, or None where
the table has no columns for it. Every literal of its code is said in `said`.
"""

from data_gen.compose.operations import columns, groups, joins, rows, untidy
from data_gen.compose.operations.chain import Chain, chain, may_follow, needs_second
from data_gen.compose.operations.registry import OPERATIONS, Operation, Step, operation

__all__ = [
    "OPERATIONS", "Chain", "Operation", "Step", "chain", "columns", "groups", "joins",
    "may_follow", "needs_second", "operation", "rows", "untidy",
]  # fmt: skip
