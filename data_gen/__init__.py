"""Tasks: made from fictional worlds, checked by real runs. Never imports jax."""
