"""The whole life cycle on one machine: `python -m launch.demo`, or `make demo`."""
