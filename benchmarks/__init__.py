"""Measurements, each a ratio against a peer or a limit from one run."""
