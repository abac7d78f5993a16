"""MS MARCO's training triples: query<TAB>relevant passage<TAB>other passage, one a line, streamed; or their ids."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np

from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.streams import compression, errors_as, open_stream
from models.training.data.examples import Group, Position

_BLOCK_TRIPLES = 1000
_CHECKED_LINES = 1000
_SAMPLED_BYTES = 1 << 20
_START: Position = {"epoch": 0, "block": 0, "offset": 0, "index": 0, "bad_before": 0, "bad_lines": 0}
_TEXTS = "query<TAB>relevant passage<TAB>other passage"
_IDS = "query_id<TAB>relevant doc_id<TAB>other doc_id of two different texts in data.corpus"

Find: TypeAlias = Callable[[Group], Group[Any] | None]
"""The texts of a triple of ids; None if it cannot be trained on."""


class _Block(NamedTuple):
    """Some valid triples, the byte after them, and how many lines were invalid."""

    groups: list[Group[Any]]
    end: int
    bad_lines: int


class TriplesSource:
    """Triples in the order of the file, shuffled within blocks of 1000 as in the code of 2019.

    Lines without exactly three non-empty columns, with invalid UTF-8 or with the same passage twice are ignored and
    counted. (2,579 such lines were reported of triples.train.small.tsv.) Triples of ids have the order of the same
    triples of texts.
    """

    docs_per_group = 2
    groups_per_epoch: int | None = None

    def __init__(self, url: str, seed: int, find: Find | None = None, lines: Sequence[str] = ()) -> None:
        """Checks the first lines of the file.

        Args:
            url: the file.
            seed: decides the order.
            find: finds the texts of a triple of ids; without it, the file has texts.
            lines: report what was left out.

        Raises:
            PreflightError: it cannot be read, none of these lines is a triple, or they are ids that have no texts.
        """
        self._url, self._seed, self._find, self._lines = url, seed, find, list(lines)
        if not storage.exists(url):
            raise PreflightError(f"data.triples: {url} does not exist")
        with errors_as(PreflightError, url), open_stream(url) as file:
            block = self._read_block(file, 0, _CHECKED_LINES)
        if not block.groups:
            expected = _TEXTS if find is None else _IDS
            problem = f"{url} holds no triples: none of its first {block.bad_lines:,} lines is {expected}"
            raise PreflightError("; ".join([problem, *self._lines]))
        if find is None and all(text.isdecimal() for group in block.groups for text in (group.query, *group.docs)):
            raise PreflightError(
                f"{url} holds triples of ids, not of texts: the ids would be trained on as texts. Give data.corpus and "
                "data.topics, which have the texts of these ids, or a file of texts such as triples.train.small.tsv"
            )

    def estimated_triples(self) -> int | None:
        """The estimated number of triples in the file; None if it is compressed."""
        if compression(self._url):
            return None
        with open_stream(self._url) as file:
            sample = file.read(_SAMPLED_BYTES)
        return round(storage.size_bytes(self._url) * sample.count(b"\n") / len(sample))

    def stream(self, position: Position) -> Iterator[tuple[Group, Position]]:
        """See `Source`; the position is the epoch, the number and first byte of a block, and a place in the block."""
        at = _START | position
        while True:
            yield from self._epoch(at)
            at = _START | {"epoch": at["epoch"] + 1}

    def _epoch(self, at: Position) -> Iterator[tuple[Group, Position]]:
        with open_stream(self._url) as file:
            _skip(file, at["offset"])
            while True:
                block = self._read_block(file, at["offset"])
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
        what = (
            "invalid lines" if self._find is None else "triples that are invalid, without a text or with one text twice"
        )
        return self._lines + ([f"{what} in {self._url}: {bad_lines:,}; ignored"] if bad_lines else [])

    def _read_block(self, file: BinaryIO, start: int, max_lines: int | None = None) -> _Block:
        """Reads from byte `start`, the file's position, to 1000 valid triples or the end of the file."""
        groups: list[Group[Any]] = []
        lines, end = 0, start
        while len(groups) < _BLOCK_TRIPLES and lines != max_lines and (line := file.readline()):
            lines += 1
            end += len(line)
            group: Group[Any] | None = parse_triple(line)
            if group is not None and self._find is not None:
                group = self._find(group)
            if group is not None:
                groups.append(group)
        return _Block(groups, end, lines - len(groups))


def _skip(file: BinaryIO, offset: int) -> None:
    """Moves to a byte; a compressed file has to be read up to there."""
    if file.seekable():
        file.seek(offset)
        return
    while offset and (skipped := len(file.read(min(offset, _SAMPLED_BYTES)))):
        offset -= skipped


def parse_triple(line: bytes) -> Group | None:
    """The triple on a line; None if the line is invalid."""
    try:
        columns = [column.strip() for column in line.decode("utf-8").split("\t")]
    except UnicodeDecodeError:
        return None
    if len(columns) != 3 or not all(columns) or columns[1] == columns[2]:
        return None
    return Group(columns[0], (columns[1], columns[2]), (True, False))
