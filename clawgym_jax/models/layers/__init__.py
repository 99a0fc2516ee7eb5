"""Layers that the model families share."""
