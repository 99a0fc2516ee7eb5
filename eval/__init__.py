"""Benchmarking an agent: running a suite, statistics, and the report.

Nothing here imports jax: a run needs a suite and an address, a report needs
only the files that runs left behind.
"""
