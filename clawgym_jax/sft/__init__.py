"""Supervised fine-tuning, and what every trainer here shares.

`scores` predicts the trained tokens of a batch, `updates` turns a loss into
optimizer steps, `optimizer` has their rules and schedules, `session` is a run's
folder, its metrics and its stop signals. `train` is the loop: `feed` brings its
batches, `meter` says how well a step used the devices, `guard` ends a run that is
lost, `evaluate` looks at held-out chats. `clawgym_jax.rl` builds on the same parts.
"""
