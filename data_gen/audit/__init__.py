"""The gate of every task, from any source: admitted only if runs show it sound.

`judge` tries one task in real sandboxes, `audit` a folder of them; the command
is `python -m data_gen.audit`.
"""

from data_gen.audit.folder import VERSION, audit
from data_gen.audit.trial import Findings, Rebuild, Undecided, judge

__all__ = ["VERSION", "Findings", "Rebuild", "Undecided", "audit", "judge"]
