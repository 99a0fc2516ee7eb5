"""Kinds of record files, plain and messy; see `kind` for what a kind promises.

`KINDS` are the plain ones, `MESSY` each of them in the states of disorder
that it can be in, `EVERY` both together, all by name.
"""

from data_gen.compose.kinds.git import GIT
from data_gen.compose.kinds.kind import Files, Kind
from data_gen.compose.kinds.mail import MAILS
from data_gen.compose.kinds.mess import MESSES, Mess, messy
from data_gen.compose.kinds.office import OFFICE
from data_gen.compose.kinds.packed import PACKED
from data_gen.compose.kinds.text import TEXTS

KINDS: dict[str, Kind] = {k.name: k for k in (*TEXTS, *OFFICE, *MAILS, *PACKED, GIT)}
MESSY: dict[str, Kind] = {
    kind.name: kind
    for mess in MESSES.values()
    for kind in (messy(KINDS[name], mess) for name in mess.kinds)
}
EVERY = KINDS | MESSY

__all__ = ["EVERY", "Files", "KINDS", "Kind", "MESSES", "MESSY", "Mess", "messy"]
