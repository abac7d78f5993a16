"""When two texts are the same, and when a text is empty: one rule for all data of a training."""

import unicodedata

# Not of the categories of invisible characters: a joiner, fillers, selectors, a blank pattern, and what stands for an
# unreadable character; most give no token.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffd")
_SELECTORS = range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0)


class _Visible(dict[int, int | None]):
    """For `str.translate`: removes characters that no one sees, except white space."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        hidden = unicodedata.category(character) in ("Cc", "Cf") and not character.isspace()
        hidden |= character in _INVISIBLE or any(code in selectors for selectors in _SELECTORS)
        self[code] = None if hidden else code
        return self[code]


_VISIBLE = _Visible()


def normal_text(text: str) -> str:
    """A text, apart from letter case, white space, invisible characters and Unicode's forms of a character.

    Two texts with the same result are copies; a text without any is empty.
    """
    visible = text.translate(_VISIBLE)
    if not visible.isascii():
        visible = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
    return " ".join(visible.casefold().split())
