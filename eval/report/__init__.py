"""One self-contained HTML page about runs of a suite.

`build` turns what runs left behind into a page; `__main__` is the command.
The page needs no network and runs no script but its own: data is embedded as
inert JSON and reaches the document as text only.
"""
