"""Sets of tasks in the formats that others read, and back.

What a format can hold comes back the same, to the byte. What it can't is
counted by cause and named: a task that would be another one there is left out
whole, the rest loses the part. What is on the disk is always whole tasks only.
"""

from data_gen.convert.formats import convert, detect
from data_gen.convert.losses import LeftOut, Losses

__all__ = ["LeftOut", "Losses", "convert", "detect"]
