"""From records to batches: tokenised once, packed as trees, resumable exactly.

`sources` are where records come from; `records` makes sequences of one; `tokenised`
keeps them on the disk; `corpus` cuts and counts what a run learns from. `sequence`
is one path of tokens; `trajectories` gives those of a tree of steps; `tree` lays
several out in one row with equal prefixes once; `packing` decides which share a
row; `batch` gathers the trained positions; `pipeline` is the Grain iterator, and
`workers` are the processes that help. Nothing here imports jax.
"""
