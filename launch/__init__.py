"""Starting the project's programs together; the outermost package.

Today that is the whole life cycle on one machine (`launch.demo`). Launching on
pods and clusters is not there yet. It may import everything else, and nothing
imports it.
"""
