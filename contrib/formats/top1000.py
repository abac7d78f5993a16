"""MS MARCO's top1000 files: a line for each candidate, unranked. One file is topics, corpus and
candidates at once.

The released files have broken lines.
"""

from collections.abc import Iterator

from beamrank.formats.decode.lines import byte_ranges
from beamrank.formats.files import Beginning, Look
from beamrank.formats.texts.lines import numbered_lines, parse_tsv, read_lines
from beamrank.formats.texts.units import CorpusUnit, DocBatch, TextFormat, parse_texts, whole_file
from beamrank.formats.values import RowError
from beamrank.notes import counted

_COLUMNS = ("query_id", "doc_id", "query", "passage")


def _is_top1000(beginning: Beginning) -> bool:
    """Whether the first line has two ids, a query and a passage.

    Qrels have four columns too, of one word each; MS MARCO's docs have a URL and a title before the
    text.
    """
    columns = beginning.line.split(b"\t")
    return (
        len(columns) == len(_COLUMNS)
        and all(len(each.split()) == 1 and b"://" not in each for each in columns[:2])
        and len(beginning.line.split()) > 6
    )


def _parse_candidate(line: str) -> tuple[str, str]:
    columns = line.split("\t")
    if len(columns) != len(_COLUMNS):
        raise RowError(
            f"has {counted(len(columns), 'column')} where {'<TAB>'.join(_COLUMNS)}, exactly 4, "
            "are expected"
        )
    return columns[1], f"{columns[0]}\t{columns[3]}"


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    for batch in read_lines(unit, _parse_candidate):
        split = [text.split("\t", 1) for text in batch.texts]
        batch.query_ids = [query_id for query_id, _ in split]
        batch.texts = [passage for _, passage in split]
        yield batch


def _read_topics(unit: CorpusUnit) -> Iterator[DocBatch]:
    """The queries with their distinct texts. Broken lines are left to the readers of docs and
    candidates.
    """
    texts: dict[bytes, bytes] = {}
    found: list[tuple[int, bytes]] = []
    for number, line in numbered_lines(unit.url):
        columns = line.split(b"\t")
        if len(columns) == len(_COLUMNS) and texts.get(columns[0]) != columns[2]:
            texts.setdefault(columns[0], columns[2])
            found.append((number, b"\t".join(columns[::2])))
    yield parse_texts(unit, found, parse_tsv)


_LOOK = Look("MS MARCO's top1000 (query_id, doc_id, query, passage)", _is_top1000)
CORPUS = TextFormat(
    "top1000",
    (".tsv", ".txt"),
    byte_ranges,
    _read,
    look=_LOOK,
    has_fields=False,
    candidate_order="the order of the file stands for the ranks",
)
TOPICS = TextFormat("top1000", (), whole_file, _read_topics, look=_LOOK, repeats=True)
