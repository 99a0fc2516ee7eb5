"""From records to batches: tokenised once, packed as trees, resumable exactly.

`sequence` is one path of tokens; `tree` lays several out in one row with
equal prefixes once; `packing` decides which share a row; `batch` gathers the
trained positions; `chats` reads conversations; `pipeline` is the Grain
iterator. Nothing here imports jax.
"""
