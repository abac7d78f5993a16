"""MS MARCO's top1000 files: a line for each candidate, unranked. One file is topics, corpus and
candidates at once.

The released files have broken lines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from beamrank.formats.decode.base import Bad, RecordsDecoder, numbered_lines, parsed
from beamrank.formats.files import Beginning, Format, InputFile, Look
from beamrank.formats.schemas import Hints, Schema, listed

_COLUMNS = ("query_id", "doc_id", "query", "passage")


def _is_top1000(beginning: Beginning) -> bool:
    """Whether the first line has two ids, a query and a passage.

    Qrels have four columns too, of one word each; MS MARCO's docs have a URL and a title before the
    text.
    """
    columns = beginning.line.split(b"\t")
    return (
        len(columns) == len(_COLUMNS)
        and all(len(column.split()) == 1 and b"://" not in column for column in columns[:2])
        and len(beginning.line.split()) > 6
    )


def _candidates(docs: Schema) -> Schema:
    return replace(listed(docs), unnamed={"top1000": ("query_id", "doc_id", "query", "text")})


def _open_topics(file: InputFile, _hints: Hints) -> RecordsDecoder:
    """The queries with their distinct texts. Broken lines are left to the readers of docs and
    candidates.
    """

    def topics() -> Iterator[tuple[int, bytes]]:
        texts: dict[bytes, bytes] = {}
        for number, line in numbered_lines(file.source):
            columns = line.split(b"\t")
            if len(columns) == len(_COLUMNS) and texts.get(columns[0]) != columns[2]:
                texts.setdefault(columns[0], columns[2])
                yield number, b"\t".join(columns[::2])

    def records(bad: Bad) -> Iterator[tuple[int, Sequence[str]]]:
        return parsed(topics(), lambda line: line.split("\t"), bad)

    return RecordsDecoder(("query_id", "text"), records)


_LOOK = Look("MS MARCO's top1000 (query_id, doc_id, query, passage)", _is_top1000)
CORPUS = Format(
    _LOOK,
    schema=_candidates,
    holds="tsv",
    keys=(),
    endings=(".tsv", ".txt"),
    candidate_order="the order of the file stands for the ranks",
)
TOPICS = Format(_LOOK, _open_topics, keys=(), repeats=True)
