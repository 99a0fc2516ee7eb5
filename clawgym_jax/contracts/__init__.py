"""Typed records that cross between the parts of the house, and their files.

Nothing here imports jax. A record is immutable; what comes from a file is
checked when it is read, so that the rest of the code may trust it.
"""
