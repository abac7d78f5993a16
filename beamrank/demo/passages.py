"""A docstring, cut into passages."""

import inspect
import re

_MIN_WORDS = 40
_MAX_WORDS = 150
_TRIVIAL_WORDS = 3


def split_docstring(docstring: str) -> list[str]:
    """Cuts a docstring into its summary and passages of about 40 to 150 words of what follows.

    Short neighbouring paragraphs are merged; a longer one is cut at line ends. White space is collapsed.

    Returns:
        The summary first; empty for a docstring under three words.
    """
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(docstring).strip())
    summary = paragraphs.pop(0)
    while paragraphs and not _is_summary(summary):
        summary += "\n" + paragraphs.pop(0)
    passages = [*_merge([summary]), *_merge(paragraphs)]
    return passages if _count_words(docstring) >= _TRIVIAL_WORDS else []


def _is_summary(paragraph: str) -> bool:
    """Whether there is a sentence in it: C functions often begin with their signature alone."""
    last = paragraph.rstrip().rsplit("\n", 1)[-1]
    signature = re.match(r"[\w.]+\(.*\)\s*(->.*)?$", last)
    return signature is None and _count_words(paragraph) >= _TRIVIAL_WORDS


def _merge(paragraphs: list[str]) -> list[str]:
    """Joins the paragraphs' pieces until each passage has the words it needs."""
    passages: list[str] = []
    for paragraph in paragraphs:
        for piece in _cut(paragraph):
            if passages and _belongs(passages[-1], piece):
                passages[-1] += " " + piece
            else:
                passages.append(piece)
    return passages


def _belongs(passage: str, piece: str) -> bool:
    before, added = _count_words(passage), _count_words(piece)
    return min(before, added) < _MIN_WORDS and before + added <= _MAX_WORDS


def _cut(paragraph: str) -> list[str]:
    """Cuts at line ends, so that no piece has more words than a passage may have (one long line apart)."""
    pieces: list[list[str]] = []
    for line in paragraph.splitlines():
        words = line.split()
        if pieces and len(pieces[-1]) + len(words) <= _MAX_WORDS:
            pieces[-1].extend(words)
        elif words:
            pieces.append(words)
    return [" ".join(words) for words in pieces]


def _count_words(text: str) -> int:
    return len(text.split())
