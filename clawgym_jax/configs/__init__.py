"""One file a run: `get_config()` returns a frozen dataclass of `base`."""
