"""Ahead-of-time compilation: what a step takes on hardware that is not here."""
