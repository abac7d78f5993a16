"""Ids that mean the same to their author, and nothing to a tool: `CACM-115` and `CACM-0115`, `D123` and `123`."""

import re
from typing import NamedTuple

_ZEROS = re.compile(rb"(?<!\d)0+(?=\d)")
_PREFIX = re.compile(rb"([a-z_-]*)(\d+)")


class IdForm(NamedTuple):
    """An id in lower case without leading zeros; its number apart if it is one with a prefix."""

    prefix: bytes
    rest: bytes


def id_form(identifier: bytes) -> IdForm:
    """The form of an id."""
    text = _ZEROS.sub(b"", identifier.lower())
    found = _PREFIX.fullmatch(text)
    return IdForm(found[1], found[2]) if found else IdForm(b"", text)


def could_be(one: IdForm, other: IdForm) -> bool:
    """Whether two forms may mean the same doc: one of them may lack the prefix."""
    return one.rest == other.rest and (one.prefix == other.prefix or not one.prefix or not other.prefix)
