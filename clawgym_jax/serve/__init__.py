"""The rollout engine: token ids in, token ids and log-probs out, many at once.

`Engine` samples in one thread of its process; `serve.http.app` puts it on
HTTP; `python -m clawgym_jax.serve` is the program.
"""

from clawgym_jax.serve.engine import Busy, Engine, EngineError
from clawgym_jax.serve.requests import Completion, Refused, Sampling

__all__ = ["Busy", "Completion", "Engine", "EngineError", "Refused", "Sampling"]
