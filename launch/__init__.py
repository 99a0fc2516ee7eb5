"""Starting the project's programs on many machines; the outermost package.

It may import everything else, and nothing imports it.
"""
