"""Reinforcement learning on rollouts that another process makes.

`advantages` and `objectives` are pure functions; `rows` lays trajectories out
as token trees by their exact ids; `rollouts` is the worker process and the
pool; `train` is the loop.
"""
