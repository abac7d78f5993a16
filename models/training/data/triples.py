"""MS MARCO's training triples: query<TAB>relevant passage<TAB>other passage, one a line, streamed; or their ids."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from beamrank.errors import BeamrankError, DataError, PreflightError
from beamrank.formats.files import shown_paths
from beamrank.formats.topics import read_topics
from beamrank.storage import files as storage
from beamrank.storage.documents import hashes64
from beamrank.storage.local_files import map_array
from beamrank.storage.streams import compression, errors_as, open_stream
from models.tokenizers.bert import BertTokenizer
from models.training.config import DataConfig
from models.training.data.groups import Group, Position
from models.training.data.texts import EMPTY, MISSING, Hashes, TextWriter, is_in, normal_text, scan_docs
from models.training.data.triple_columns import CHECKED_LINES, Columns, header_bytes, parse_columns

_SHUFFLED_TRIPLES, _HASHED_TRIPLES = 1000, 50_000
_PENDING_DOCS = 1 << 20
_SAMPLED_BYTES = 1 << 20
# Added to the hashes of the three ids of a triple: a query and a doc may have the same id.
_QUERY = np.array([0x9E3779B97F4A7C15, 0, 0], np.uint64)
_BY_ID = ("ids", "rows", "texts", "queries")
_START: Position = {"epoch": 0, "block": 0, "offset": 0, "index": 0, "bad_before": 0, "bad_lines": 0}
_TEXTS = "query<TAB>relevant passage<TAB>other passage"
_IDS = "query_id<TAB>relevant doc_id<TAB>other doc_id of two different texts in data.corpus"

Find: TypeAlias = Callable[[Columns], Group[Any] | None]
"""The triple of a line with its texts; None if it cannot be trained on."""


class _Block(NamedTuple):
    """Some valid triples, the byte after them, and how many lines were unusable."""

    groups: list[Group[Any]]
    end: int
    bad_lines: int


class TriplesSource:
    """Triples in the order of the file, shuffled within blocks of 1000 as in the code of 2019.

    Lines without exactly three non-empty columns, with invalid UTF-8 or with the same passage twice are ignored and
    counted. (2,579 such lines were reported of triples.train.small.tsv.) More than `data.max_bad_rows` of them among
    1000 triples are an error. Triples of ids have the order of the same triples of texts.
    """

    docs_per_group = 2
    groups_per_epoch: int | None = None

    def __init__(
        self,
        url: str,
        seed: int,
        texts: "TextsById | None" = None,
        lines: Sequence[str] = (),
        max_bad_rows: int = 100,
    ) -> None:
        """Checks the first lines of the file, which has texts, or ids of `texts`; `lines` report what was left out.

        Raises:
            PreflightError: it cannot be read, none of these lines is a triple, too many are not, or their columns hold
                something else than texts, or than ids.
        """
        self._url, self._seed, self._ids, self._lines = url, seed, texts is not None, list(lines)
        self._find: Find = _usable if texts is None else texts.find
        self._max_bad_rows = max_bad_rows
        if not storage.exists(url):
            raise PreflightError(f"data.triples: {url} does not exist")
        header = header_bytes(url, ids=self._ids)
        if header:
            self._lines.append(f"the first line of {url} is a header, and is left out")
        self._start = _START | {"offset": header}
        with errors_as(PreflightError, url), open_stream(url) as file:
            _skip(file, header)
            block = self._read_block(file, header, PreflightError, CHECKED_LINES)
        self._lines += _contradictions(block.groups)
        queries = hashes64(normal_text(str(group.query)) for group in block.groups)
        self.queries = np.unique(queries if texts is None else texts.queries)

    def estimated_triples(self) -> int | None:
        """The estimated number of triples in the file; None if it is compressed."""
        if compression(self._url):
            return None
        with open_stream(self._url) as file:
            sample = file.read(_SAMPLED_BYTES)
        return round(storage.size_bytes(self._url) * sample.count(b"\n") / len(sample))

    def stream(self, position: Position) -> Iterator[tuple[Group[Any], Position]]:
        """See `Source`; the position is the epoch, the number and first byte of a block, and a place in the block."""
        at = self._start | position
        while True:
            yield from self._epoch(at)
            at = self._start | {"epoch": at["epoch"] + 1}

    def notes(self, position: Position) -> list[str]:
        """What was left out, and the number of invalid lines in this pass over the file."""
        bad_lines = position.get("bad_lines", 0)
        what = "triples that are invalid, without a text or with one text twice" if self._ids else "invalid lines"
        return self._lines + ([f"{what} in {self._url}: {bad_lines:,}; ignored"] if bad_lines else [])

    def _epoch(self, at: Position) -> Iterator[tuple[Group[Any], Position]]:
        with open_stream(self._url) as file:
            _skip(file, at["offset"])
            while True:
                block = self._read_block(file, at["offset"], DataError)
                if block.end == at["offset"]:
                    return
                at = at | {"bad_lines": at["bad_before"] + block.bad_lines}
                order = np.random.default_rng([self._seed, at["epoch"], at["block"]]).permutation(len(block.groups))
                for place in range(at["index"], len(order)):
                    yield block.groups[order[place]], at | {"index": place + 1}
                at = at | {"block": at["block"] + 1, "offset": block.end, "index": 0, "bad_before": at["bad_lines"]}

    def _read_block(
        self, file: BinaryIO, start: int, error: type[BeamrankError], max_lines: int | None = None
    ) -> _Block:
        """Reads from byte `start`, the file's position, to 1000 valid triples or the end of the file."""
        groups: list[Group[Any]] = []
        lines = broken = 0
        end, first = start, ""
        while len(groups) < _SHUFFLED_TRIPLES and lines != max_lines and (line := file.readline()):
            columns = parse_columns(line)
            if columns is None:
                broken += 1
                first = first or f"at byte {end:,}: {_problem(line)}"
            elif (group := self._find(columns)) is not None:
                groups.append(group)
            lines += 1
            end += len(line)
            # Of the first lines all are counted.
            if max_lines is None and broken > self._max_bad_rows:
                break
        expected = _IDS if self._ids else _TEXTS
        if max_lines is not None and not groups:
            problem = f"{self._url} holds no triples: none of its first {lines:,} lines is {expected}"
            raise error("; ".join([problem, *self._lines]))
        if broken > self._max_bad_rows:
            raise error(
                f"{self._url}: {broken:,} of {lines:,} lines are not {expected}, and data.max_bad_rows is "
                f"{self._max_bad_rows:,}; the first is {first}. Fix the file, or raise data.max_bad_rows"
            )
        return _Block(groups, end, lines - len(groups))


def _usable(columns: Columns) -> Group | None:
    """A triple of texts, unless a text is empty, or both passages are the same."""
    query, positive, negative = map(normal_text, columns)
    usable = query and positive and negative and positive != negative
    return Group(columns[0], columns[1:], (True, False)) if usable else None


def _contradictions(groups: Sequence[Group[Any]]) -> list[str]:
    """A line about triples whose other passage is relevant to the same query in another triple."""

    def key(text: str | int) -> str | int:
        return normal_text(text) if isinstance(text, str) else text

    pairs = [[(key(group.query), key(doc)) for doc in group.docs] for group in groups]
    relevant = {one for one, _ in pairs}
    count = sum(other in relevant for _, other in pairs)
    if not count:
        return []
    return [
        f"triples whose other passage is relevant to the same query in another triple: {count:,} of the first "
        f"{len(groups):,}; the model learns both"
    ]


def _problem(line: bytes) -> str:
    """Why a line is no triple."""
    try:
        columns = line.decode("utf-8").split("\t")
    except UnicodeDecodeError:
        return "it is not UTF-8"
    return "a column is empty" if len(columns) == 3 else f"it has {len(columns)} columns"


def _skip(file: BinaryIO, offset: int) -> None:
    """Moves to a byte; a compressed file has to be read up to there."""
    if file.seekable():
        file.seek(offset)
        return
    while offset and (skipped := len(file.read(min(offset, _SAMPLED_BYTES)))):
        offset -= skipped


class TextsById:
    """The rows of token ids of queries and docs, by the hashes of their ids.

    Attributes:
        queries: uint64, the hashes of the texts of the queries that triples name.
    """

    def __init__(self, folder: Path) -> None:
        self._ids, self._rows, self._texts, self.queries = (map_array(folder / f"{name}.npy") for name in _BY_ID)

    def find(self, columns: Columns) -> Group[int] | None:
        """A triple of ids; None if a text is missing or empty, or both docs have the same."""
        if not len(self._ids):
            return None
        hashes = hashes64(columns) ^ _QUERY
        at = np.minimum(np.searchsorted(self._ids, hashes), len(self._ids) - 1)
        if (self._ids[at] != hashes).any() or self._texts[at[1]] == self._texts[at[2]]:
            return None
        query, *docs = self._rows[at].tolist()
        return Group(query, tuple(docs), (True, False))


def store_texts(data: DataConfig, tokenizer: BertTokenizer, max_tokens: int, folder: Path) -> list[str]:
    """Writes the token ids of the texts that triples of ids name to a folder, for `TextsById`.

    Returns lines to report about the corpus, and about triples with ids that have no text.
    """
    assert data.corpus
    assert data.topics
    topics = read_topics(data.topics)
    writer = TextWriter(folder, tokenizer, max_tokens)
    writer.add([topic.text for topic in topics])
    queries, texts, first_doc = hashes64(topic.query_id for topic in topics), writer.hashes(), writer.rows
    order = np.argsort(queries)
    named = np.zeros(len(queries), np.bool_)
    lines: list[str] = []
    docs = _distinct(_doc_hashes(data, queries[order], None, lines, named))
    rows, corpus_lines = scan_docs(data.corpus, docs, data.max_bad_rows, writer.add, None)
    writer.close()
    docs, rows, complete = docs[rows != MISSING], rows[rows != MISSING], (rows != MISSING).all()
    if not complete:
        lines.clear()
        for _ in _doc_hashes(data, queries[order], docs, lines, named):
            pass
    ids = np.concatenate([queries ^ _QUERY[0], docs])
    all_rows = np.concatenate([np.arange(first_doc), rows + first_doc])
    all_texts = np.concatenate([texts, writer.hashes()])[all_rows]
    usable = np.argsort(ids)
    usable = usable[all_texts[usable] != EMPTY]
    trained = texts[order][named]
    arrays = (ids[usable], all_rows[usable], all_texts[usable], trained[trained != EMPTY])
    for name, values in zip(_BY_ID, arrays, strict=True):
        np.save(folder / f"{name}.npy", values)
    return corpus_lines + lines


def _distinct(blocks: Iterable[Hashes]) -> Hashes:
    """All hashes, sorted; those that are new wait until there are many, since each merge copies all."""
    found = pending = np.zeros(0, np.uint64)
    for hashes in blocks:
        pending = np.union1d(pending, hashes[~is_in(hashes, found)])
        if len(pending) > _PENDING_DOCS:
            found, pending = np.union1d(found, pending), pending[:0]
    return np.union1d(found, pending)


def _doc_hashes(
    data: DataConfig, queries: Hashes, docs: Hashes | None, lines: list[str], named: NDArray[np.bool_]
) -> Iterator[Hashes]:
    """Reads the triples: yields the hashes of their doc_ids, some at a time, and adds a line about those without texts.

    `queries` and `docs`, None if they are not known yet, are the hashes of ids that have a text, sorted; `named`,
    bool[topics], receives which of the topics are named.
    """
    url, count, first = data.triples or "", 0, ""
    header = header_bytes(url, ids=True)
    with errors_as(PreflightError, url), open_stream(url) as file:
        lines_of_file = islice(enumerate(file, 1), int(header > 0), None)
        valid = ((number, ids) for number, line in lines_of_file if (ids := parse_columns(line)) is not None)
        while block := list(islice(valid, _HASHED_TRIPLES)):
            hashes = hashes64(text_id for _, ids in block for text_id in ids).reshape(-1, 3)
            found = np.ones(hashes.shape, np.bool_)
            found[:, 0] = is_in(hashes[:, 0], queries)
            named[np.searchsorted(queries, hashes[found[:, 0], 0])] = True
            if docs is not None:
                found[:, 1:] = is_in(hashes[:, 1:], docs)
            missing = np.flatnonzero(~found.all(axis=1))
            if len(missing) and not count:
                (number, ids), column = block[missing[0]], int(np.argmin(found[missing[0]]))
                first = f"{url}:{number}: {_no_text(data, ids[column], column)}"
            count += len(missing)
            if count > data.max_bad_rows:
                raise PreflightError(
                    f"more than data.max_bad_rows ({data.max_bad_rows:,}) triples have an id without a text; the "
                    f"first: {first}. Give the corpus and the topics that the triples were made for"
                )
            yield hashes[:, 1:].ravel()
    if count:
        lines.append(f"triples that have an id without a text: {count:,}; the first: {first}; ignored")


def _no_text(data: DataConfig, text_id: str, column: int) -> str:
    assert data.corpus
    assert data.topics
    if column:
        return f"doc_id {text_id!r} is not in the corpus {data.corpus.path}"
    return f"query_id {text_id!r} is not in the topics {shown_paths(data.topics.path)}"
