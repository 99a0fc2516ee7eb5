"""Tests of data_gen."""
