"""MS MARCO's top1000 files: query_id<TAB>doc_id<TAB>query<TAB>passage, a line for each candidate, unranked.

One file is topics, corpus and candidates at once. The released files have broken lines, and texts that were encoded as
UTF-8 twice ("Ã©" for "é").
"""

import re
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from beamrank.errors import PreflightError
from beamrank.formats.corpora.lines import byte_ranges, check_lines, read_lines
from beamrank.formats.corpora.units import CorpusFormat, CorpusUnit, DocBatch
from beamrank.formats.guess import Beginning, Look
from beamrank.formats.ids import BYTE_ORDER_MARK, IdError, are_usable, check_doc_id
from beamrank.formats.notes import Problems, counted
from beamrank.formats.row_checks import RowError
from beamrank.formats.runs import Run, Ties, unranked
from beamrank.formats.topics.registry import TopicsFormat, checked_topic
from beamrank.records import Topic
from beamrank.storage.streams import errors_as, open_stream

_COLUMNS = ("query_id", "doc_id", "query", "passage")
# The bytes 0x80 to 0xbf of UTF-8, as they look when they were read as Latin-1 or as Windows-1252.
_CONTINUED = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_TWICE_ENCODED = re.compile(f"[ÂÃ][{_CONTINUED}]|â[{_CONTINUED}]{{2}}")
_FIRST_BYTES = tuple(letter.encode() for letter in "ÂÃâ")


class Row(NamedTuple):
    """A line, its texts not yet decoded."""

    line: int
    query_id: bytes
    doc_id: bytes
    query: bytes
    passage: bytes


def is_top1000(beginning: Beginning) -> bool:
    """Whether the first line has two ids, a query and a passage.

    Qrels have four columns too, of one word each; MS MARCO's docs have a URL and a title before the text.
    """
    columns = beginning.line.split(b"\t")
    return (
        len(columns) == len(_COLUMNS)
        and all(len(each.split()) == 1 and b"://" not in each for each in columns[:2])
        and len(beginning.line.split()) > 6
    )


def _parse_doc(line: str) -> tuple[str, str]:
    columns = line.split("\t")
    if len(columns) != len(_COLUMNS):
        raise RowError(f"has {counted(len(columns), 'column')} where {'<TAB>'.join(_COLUMNS)}, exactly 4, are expected")
    return columns[1], f"{columns[0]}\t{columns[3]}"


def _check(unit: CorpusUnit) -> None:
    if unit.fields is not None:
        raise PreflightError(f"the columns of a top1000 file have no names: leave `fields` out for {unit.url}")
    check_lines(unit, _parse_doc)


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    for batch in read_lines(unit, _parse_doc):
        split = [text.split("\t", 1) for text in batch.texts]
        batch.query_ids = [query_id for query_id, _ in split]
        batch.texts = [passage for _, passage in split]
        yield batch


def read_rows(url: str, problems: Problems) -> Iterator[Row]:
    """The lines that have four columns; the others are added to `problems`.

    Raises:
        PreflightError: the file cannot be read.
    """
    with errors_as(PreflightError, url), open_stream(url) as file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
            columns = text.rstrip(b"\r\n").split(b"\t")
            if len(columns) == len(_COLUMNS):
                yield Row(number, *columns)
            else:
                problems.add(number, f"the row has {counted(len(columns), 'column')} where 4 are expected")


def _read_topics(url: str) -> list[Topic]:
    """The distinct queries, in the order of the file. Broken lines are left to the readers of docs and candidates.

    Raises:
        PreflightError: the file cannot be read, or a query has no text, two texts, or an invalid id.
    """
    found: dict[bytes, Row] = {}
    topics: list[Topic] = []
    problems = Problems()
    for row in read_rows(url, Problems()):
        first = found.setdefault(row.query_id, row)
        if first is not row:
            if first.query != row.query:
                problems.add(
                    row.line, f"the row has another text of query {_shown(row.query_id)} than line {first.line}"
                )
            continue
        try:
            topics.append(checked_topic(row.query_id.decode(), row.query.decode()))
        except UnicodeDecodeError:
            problems.add(row.line, "the topic is not valid UTF-8")
        except (RowError, IdError) as error:
            problems.add(row.line, f"the topic {error}")
    if problems.count:
        raise PreflightError(
            f"{counted(problems.count, 'line')} of {url} cannot be read as topics{problems.listed(f'{url}:')}"
        )
    return topics


def _read_candidates(url: str, _ties: Ties, max_bad_rows: int) -> Run:
    """The docs of each query in the order of the file, which stands for their ranks: the file has none.

    Raises:
        PreflightError: the file cannot be read, more than `max_bad_rows` lines are broken, or a query has a doc twice.
    """
    broken = Problems()
    lines: dict[bytes, dict[bytes, int]] = {}
    twice_encoded: array[int] = array("Q")
    for row in read_rows(url, broken):
        docs = lines.setdefault(row.query_id, {})
        if docs.setdefault(row.doc_id, row.line) != row.line:
            raise PreflightError(
                f"{url}:{row.line}: query {_shown(row.query_id)} has doc {_shown(row.doc_id)} already on line "
                f"{docs[row.doc_id]}. Remove one of the lines"
            )
        if any(byte in row.passage or byte in row.query for byte in _FIRST_BYTES) and _is_twice_encoded(row):
            twice_encoded.append(row.line)
    order = {_checked(url, query_id): _checked_docs(url, lines[query_id]) for query_id in list(lines)}
    if broken.count > max_bad_rows or not order:
        raise PreflightError(
            f"{counted(broken.count, 'line')} of {url} cannot be read as a top1000 file, and max_bad_rows is "
            f"{max_bad_rows}{broken.listed(f'{url}:')}"
        )
    remarks = ["unranked; the order of the file stands for the ranks"]
    if broken.count:
        remarks.append(f"broken lines: {broken.count:,}; left out{broken.listed(f'{url}:')}")
    if twice_encoded:
        remarks.append(
            f"lines with text that was encoded as UTF-8 twice: {len(twice_encoded):,} (first: line "
            f"{twice_encoded[0]}); read as they are. collection.tsv may have these passages correct, as the corpus"
        )
    return unranked("top1000", order, remarks)


def _is_twice_encoded(row: Row) -> bool:
    return any(_TWICE_ENCODED.search(text.decode(errors="replace")) for text in (row.query, row.passage))


def _checked_docs(url: str, lines: dict[bytes, int]) -> list[str]:
    try:
        doc_ids = [doc_id.decode() for doc_id in lines]
    except UnicodeDecodeError:
        doc_ids = []
    return doc_ids if doc_ids and are_usable(doc_ids) else [_checked(url, doc_id) for doc_id in lines]


def _checked(url: str, identifier: bytes) -> str:
    try:
        check_doc_id(identifier.decode())
    except (IdError, UnicodeDecodeError) as error:
        reason = error if isinstance(error, IdError) else f"has the id {_shown(identifier)}, which is not valid UTF-8"
        raise PreflightError(f"a row of {url} {reason}") from error
    return identifier.decode()


def _shown(identifier: bytes) -> str:
    return repr(identifier.decode(errors="backslashreplace"))


LOOK = Look("MS MARCO's top1000 (query_id, doc_id, query, passage)", is_top1000)
CORPUS = CorpusFormat("top1000", (".tsv", ".txt"), _check, byte_ranges, _read, look=LOOK, lists_candidates=True)
TOPICS = TopicsFormat(read=_read_topics, candidates=_read_candidates, look=LOOK)
