"""Tests of the gateway and the teacher."""
