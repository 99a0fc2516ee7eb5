"""What an agent may fall for: planted instructions, secrets, harm, stale memory.

A hazard is a piece of work like a chore, with something laid out beside it.
Falling for it makes the whole task score 0, whatever else was done; the same
calls that fall for it are kept beside the solution, so that this is proven.
"""

from data_gen.compose.hazards import destructive, planted, secrets, stale
from data_gen.compose.hazards.hazard import HAZARDS, Hazard

__all__ = ["HAZARDS", "Hazard", "destructive", "planted", "secrets", "stale"]
