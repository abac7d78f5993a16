"""MS MARCO's training triples: query<TAB>relevant passage<TAB>other passage, one a line, streamed; or their ids."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from beamrank.errors import BeamrankError, DataError, PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import hashes64
from beamrank.storage.streams import compression, errors_as, open_stream
from models.training.data.examples import Group, Position, TokenIds
from models.training.data.texts import normal_text
from models.training.data.triples_layout import CHECKED_LINES, header_bytes, parse_columns

_BLOCK_TRIPLES = 1000
_MOST_BAD_LINES = 100
_SAMPLED_BYTES = 1 << 20
_START: Position = {"epoch": 0, "block": 0, "offset": 0, "index": 0, "bad_before": 0, "bad_lines": 0}
_TEXTS = "query<TAB>relevant passage<TAB>other passage"
_IDS = "query_id<TAB>relevant doc_id<TAB>other doc_id of two different texts in data.corpus"

Find: TypeAlias = Callable[[Group], Group[Any] | None]
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

    Attributes:
        queries: uint64, the hashes of the first queries' texts; none of triples of ids.
    """

    docs_per_group = 2
    groups_per_epoch: int | None = None

    def __init__(
        self,
        url: str,
        seed: int,
        find: Find | None = None,
        lines: Sequence[str] = (),
        max_bad_rows: int = _MOST_BAD_LINES,
        queries: NDArray[np.uint64] | None = None,
    ) -> None:
        """Checks the first lines of the file.

        Args:
            url: the file.
            seed: decides the order.
            find: finds the texts of a triple of ids; without it, the file has texts.
            lines: report what was left out.
            max_bad_rows: more unusable lines among 1000 triples are an error.
            queries: of triples of ids, the hashes of the queries' texts.

        Raises:
            PreflightError: it cannot be read, none of these lines is a triple, too many are not, or their columns hold
                something else than texts, or than ids.
        """
        self._url, self._seed, self._texts, self._lines = url, seed, find is None, list(lines)
        self._find, self._max_bad_rows = find or _usable, max_bad_rows
        if not storage.exists(url):
            raise PreflightError(f"data.triples: {url} does not exist")
        header = header_bytes(url, ids=not self._texts)
        if header:
            self._lines.append(f"the first line of {url} is a header, and is left out")
        self._start = _START | {"offset": header}
        with errors_as(PreflightError, url), open_stream(url) as file:
            _skip(file, header)
            block = self._read_block(file, header, PreflightError, CHECKED_LINES)
        self._lines += _contradictions(block.groups)
        if queries is None:
            queries = hashes64(normal_text(group.query) for group in block.groups)
        self.queries = np.unique(queries)

    def estimated_triples(self) -> int | None:
        """The estimated number of triples in the file; None if it is compressed."""
        if compression(self._url):
            return None
        with open_stream(self._url) as file:
            sample = file.read(_SAMPLED_BYTES)
        return round(storage.size_bytes(self._url) * sample.count(b"\n") / len(sample))

    def stream(self, position: Position) -> Iterator[tuple[Group, Position]]:
        """See `Source`; the position is the epoch, the number and first byte of a block, and a place in the block."""
        at = self._start | position
        while True:
            yield from self._epoch(at)
            at = self._start | {"epoch": at["epoch"] + 1}

    def _epoch(self, at: Position) -> Iterator[tuple[Group, Position]]:
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

    def notes(self, position: Position) -> list[str]:
        """What was left out, and the number of invalid lines in this pass over the file."""
        bad_lines = position.get("bad_lines", 0)
        what = "invalid lines" if self._texts else "triples that are invalid, without a text or with one text twice"
        return self._lines + ([f"{what} in {self._url}: {bad_lines:,}; ignored"] if bad_lines else [])

    def _read_block(
        self, file: BinaryIO, start: int, error: type[BeamrankError], max_lines: int | None = None
    ) -> _Block:
        """Reads from byte `start`, the file's position, to 1000 valid triples or the end of the file."""
        groups: list[Group[Any]] = []
        lines = broken = 0
        end, first = start, ""
        while len(groups) < _BLOCK_TRIPLES and lines != max_lines and (line := file.readline()):
            triple = parse_triple(line)
            if triple is None:
                broken += 1
                first = first or f"at byte {end:,}: {_problem(line)}"
            elif (group := self._find(triple)) is not None:
                groups.append(group)
            lines += 1
            end += len(line)
            # Of the first lines all are counted.
            if max_lines is None and broken > self._max_bad_rows:
                break
        expected = _TEXTS if self._texts else _IDS
        if max_lines is not None and not groups:
            problem = f"{self._url} holds no triples: none of its first {lines:,} lines is {expected}"
            raise error("; ".join([problem, *self._lines]))
        if broken > self._max_bad_rows:
            raise error(
                f"{self._url}: {broken:,} of {lines:,} lines are not {expected}, and data.max_bad_rows is "
                f"{self._max_bad_rows:,}; the first is {first}. Fix the file, or raise data.max_bad_rows"
            )
        return _Block(groups, end, lines - len(groups))


def _contradictions(groups: Sequence[Group[Any]]) -> list[str]:
    """A line about triples whose other passage is relevant to the same query in another triple."""
    pairs = [[(_key(group.query), _key(doc)) for doc in group.docs] for group in groups]
    relevant = {one for one, _ in pairs}
    count = sum(other in relevant for _, other in pairs)
    if not count:
        return []
    return [
        f"triples whose other passage is relevant to the same query in another triple: {count:,} of the first "
        f"{len(groups):,}; the model learns both"
    ]


def _key(text: str | TokenIds) -> str | TokenIds:
    return normal_text(text) if isinstance(text, str) else text


def _problem(line: bytes) -> str:
    """Why a line is no triple."""
    try:
        columns = line.decode("utf-8").split("\t")
    except UnicodeDecodeError:
        return "it is not UTF-8"
    if len(columns) != 3:
        return f"it has {len(columns)} columns"
    return "a column is empty"


def _skip(file: BinaryIO, offset: int) -> None:
    """Moves to a byte; a compressed file has to be read up to there."""
    if file.seekable():
        file.seek(offset)
        return
    while offset and (skipped := len(file.read(min(offset, _SAMPLED_BYTES)))):
        offset -= skipped


def parse_triple(line: bytes) -> Group | None:
    """The triple on a line; None if the line is invalid."""
    columns = parse_columns(line)
    return None if columns is None else Group(columns[0], (columns[1], columns[2]), (True, False))


def _usable(triple: Group) -> Group | None:
    """A triple of texts, unless a text is empty, or both passages are the same."""
    query, positive, negative = map(normal_text, (triple.query, *triple.docs))
    return triple if query and positive and negative and positive != negative else None
