"""What a tool call says of its own, and not by the syntax of what it is written in.

Literals are the values in a call: words, names, paths, dates, amounts, and single
digits where they stand as a value. Commands, options, identifiers, patterns' signs,
formats and indices are syntax, and what is only printed is `Printed`. Python is
parsed; of shell, sed, awk and SQL the form is known well enough. What can't be parsed
gives its quoted texts and its numbers.

In prose, a text of several words, only names, numbers and addresses are values:
nobody is shown the words of a letter before writing it.
"""

from data_gen.audit.literals.calls import of_call
from data_gen.audit.literals.texts import Printed

__all__ = ["Printed", "of_call"]
