"""What the columns of a file of triples hold, by the content of its first lines: a header, labels, ids or texts."""

import re
from collections.abc import Sequence
from itertools import islice
from typing import TypeAlias

from beamrank.errors import PreflightError
from beamrank.formats.checks import BYTE_ORDER_MARK
from beamrank.formats.files import check_text
from beamrank.storage.streams import errors_as, open_stream
from models.training.data.texts import normal_text

_CHECKED_LINES = 1000
Columns: TypeAlias = tuple[str, str, str]

_NAME = re.compile(
    r"(?:(?:quer(?:y|ies)|questions?|anchors?|topics?|sentences?|q|qid|pid|did|documents?|docids?|docnos?|docs?|passages?"
    r"|texts?|contents?|positives?|negatives?|pos|neg|(?:non[ _.-]*|ir)?relevant|others?|hard|labels?|relevance|scores?"
    r"|ids?|titles?|answers?|responses?|contexts?|premise|hypothesis|entailment|contradiction|good|bad|(?:in)?correct"
    r"|wrong|\d)[ _.-]*)++"
)
# One word of ASCII; with a digit in it, or a truth value.
_WORD, _NUMBER_OR_ID = re.compile(r"[!-~]+"), re.compile(r"(?=.*\d)[!-~]+|true|false", re.IGNORECASE)
# What the name of a column says that it holds, the first that fits; "relevance" holds "relevant".
_MEANINGS = {
    "label": re.compile("label|relevance|score"),
    "other": re.compile("neg|non|irrel|hard|other|bad|incorrect|wrong|contradict"),
    "relevant": re.compile("pos|rel|good|correct|entail"),
    "query": re.compile("quer|question|anchor|premise|topic|^q"),
}
_ORDER = ("query", "relevant", "other")


def parse_columns(line: bytes) -> Columns | None:
    """The three columns of a line; None if it has others, an empty one, or is not UTF-8."""
    try:
        columns = tuple(column.strip() for column in line.removeprefix(BYTE_ORDER_MARK).decode("utf-8").split("\t"))
    except UnicodeDecodeError:
        return None
    return columns if len(columns) == 3 and all(columns) else None


def has_header(url: str, *, ids: bool) -> bool:
    """Checks the columns of a file, of ids or of texts; returns whether its first line is a header.

    Raises:
        PreflightError: the file cannot be read, its header names another order, or a column of its first lines holds
            labels, or ids in place of texts.
    """
    check_text(url)
    with errors_as(PreflightError, url), open_stream(url) as file:
        lines = list(islice(file, _CHECKED_LINES))
    rows = [columns for line in lines if (columns := parse_columns(line)) is not None]
    header = len(rows) > 1 and parse_columns(lines[0]) == rows[0] and is_header(rows[0]) and not is_header(rows[1])
    # Ids such as q1 and doc12 look like names of columns.
    header = header and not (ids and any(map(str.isdigit, "".join(rows[0]))))
    if rows:
        _check_columns(url, list(zip(*(rows[1:] if header else rows), strict=True)), ids)
    if header:
        _check_order(url, rows[0])
    return header


def is_header(columns: Sequence[str]) -> bool:
    """Whether each column is a name, such as `query`, `pos_id` or `negative passage`."""
    return all(_NAME.fullmatch(normal_text(column)) and not column.isdecimal() for column in columns)


def _check_order(url: str, names: Columns) -> None:
    for number, (name, expected) in enumerate(zip(names, _ORDER, strict=True), 1):
        plain = normal_text(name)
        meaning = next((meaning for meaning, words in _MEANINGS.items() if words.search(plain)), expected)
        if meaning != expected:
            raise PreflightError(
                f"{url}: column {number} is {name!r} by the header, and is read as the {expected} text of a triple: "
                "query<TAB>relevant passage<TAB>other passage. The model would learn something else: bring the columns "
                "into this order"
            )


def _check_columns(url: str, columns: Sequence[Sequence[str]], ids: bool) -> None:
    """Triples of ids have no column of labels; in triples of texts no column has only numbers or words with digits."""
    odd = [place for place, values in enumerate(columns) if all(_NUMBER_OR_ID.fullmatch(text) for text in values)]
    if ids:
        odd = [2] if set(columns[2]) <= {"0", "1"} else []
    elif all(_WORD.fullmatch(text) for values in columns for text in values):
        odd = [0, 1, 2]
    if odd:
        shown = ", ".join(sorted(set(columns[odd[-1]]))[:3])
        numbers = " and ".join(str(place + 1) for place in odd)
        raise PreflightError(
            f"{url}: column {numbers} holds labels, scores or ids ({shown}) in the first {len(columns[0]):,} lines, "
            f"and a triple has {'ids' if ids else 'texts'}: query<TAB>relevant passage<TAB>other passage. Ids "
            "need data.corpus and data.topics; labelled pairs are given as data.qrels, with data.corpus, data.topics "
            "and a data.run of candidates"
        )
