"""Text for terminals and logs: control characters are written out, credentials are left out."""

from beamrank.storage.url_credentials import hide_credentials

_KEPT = "\n\t"
# C0 and C1, marks that reorder text, Unicode's line ends, and bytes of a path that are not UTF-8.
_CONTROLS = {
    code: f"\\u{code:04x}"
    for first, last in (
        (0x00, 0x1F),
        (0x7F, 0x9F),
        (0x61C, 0x61C),
        (0x200E, 0x200F),
        (0x2028, 0x202E),
        (0x2066, 0x2069),
        (0xD800, 0xDFFF),
    )
    for code in range(first, last + 1)
    if chr(code) not in _KEPT
}


def printable(text: str) -> str:
    """A text with its control characters written out as JSON does; line ends and tabs stay."""
    return text.translate(_CONTROLS)


def shown_message(text: str) -> str:
    """A message as standard error and logs show it: printable, and without the credentials of a library's URLs."""
    return printable(hide_credentials(text))
