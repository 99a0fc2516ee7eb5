"""Tests of the rollout engine, with real (tiny) models."""
