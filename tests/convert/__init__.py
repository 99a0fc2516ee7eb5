"""Tests of the convert command."""
