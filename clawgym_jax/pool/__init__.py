"""The step-level store between rollouts and trainers; see `store`."""

from clawgym_jax.pool.records import Attempt, AttemptGone, Group, LeaseLost
from clawgym_jax.pool.store import Pool

__all__ = ["Attempt", "AttemptGone", "Group", "LeaseLost", "Pool"]
