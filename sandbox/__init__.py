"""The CPU side: one sandbox per attempt, its tools, harnesses and verifier.

Nothing here imports jax. A harness runs against the recording gateway, works
in a sandbox without network, and is judged in another, fresh one.
"""
