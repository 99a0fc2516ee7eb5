"""The programs that run inside a sandbox, staged there by `sandbox.services`.

They are read as files and run by the sandbox's own python3, 3.9 or newer, with
the standard library alone; one that imports another finds it beside itself.
"""
