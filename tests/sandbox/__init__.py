"""Tests of the sandboxes, tools, harnesses, verifier and fleet: all real ones."""
