"""MS MARCO's top1000 files: query_id<TAB>doc_id<TAB>query<TAB>passage, a line for each candidate, unranked.

One file is topics, corpus and candidates at once. The released files have broken lines.
"""

from collections.abc import Iterator

from beamrank.errors import PreflightError
from beamrank.formats.corpora.lines import byte_ranges, check_lines, read_lines
from beamrank.formats.corpora.units import CorpusFormat, CorpusUnit, DocBatch
from beamrank.formats.guess import Beginning, Look
from beamrank.formats.ids import BYTE_ORDER_MARK, IdError
from beamrank.formats.notes import Problems, counted
from beamrank.formats.row_checks import RowError
from beamrank.formats.topics.registry import TopicsFormat, checked_topic, decoded
from beamrank.records import Topic
from beamrank.storage.streams import errors_as, open_stream

_COLUMNS = ("query_id", "doc_id", "query", "passage")


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


def _read_topics(url: str) -> list[Topic]:
    """The distinct queries, in the order of the file. Broken lines are left to the readers of docs and candidates."""
    first: dict[bytes, tuple[int, bytes]] = {}
    topics: list[Topic] = []
    problems = Problems()
    with errors_as(PreflightError, url), open_stream(url) as file:
        for number, line in enumerate(file, 1):
            columns = line.removeprefix(BYTE_ORDER_MARK).rstrip(b"\r\n").split(b"\t")
            if len(columns) != len(_COLUMNS):
                continue
            query_id, _, query, _ = columns
            before, text = first.setdefault(query_id, (number, query))
            try:
                if text != query:
                    raise RowError(f"{query_id.decode()!r} has another text than on line {before}")
                if before == number:
                    topics.append(checked_topic(decoded(query_id), decoded(query)))
            except (RowError, IdError) as error:
                problems.add(number, f"the topic {error}")
    if problems.count:
        raise PreflightError(
            f"{counted(problems.count, 'line')} of {url} cannot be read as topics{problems.listed(f'{url}:')}"
        )
    return topics


_LOOK = Look("MS MARCO's top1000 (query_id, doc_id, query, passage)", is_top1000)
CORPUS = CorpusFormat(
    "top1000",
    (".tsv", ".txt"),
    _check,
    byte_ranges,
    _read,
    look=_LOOK,
    candidate_order="the order of the file stands for the ranks",
)
TOPICS = TopicsFormat(read=_read_topics, look=_LOOK)
