"""Supervised fine-tuning, and what every trainer here shares.

`scores` predicts the trained tokens of a batch, `updates` turns a loss into
optimizer steps, `optimizer` is AdamW with a schedule that is given per step,
`session` is a run's folder, its metrics and its stop signals; `train` is the
loop. `clawgym_jax.rl` builds on the same parts.
"""
