"""MS MARCO's training triples: query<TAB>relevant passage<TAB>other passage, one a line, streamed."""

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np

from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.streams import compression, errors_as, open_stream
from models.training.data.examples import Group, Position

_BLOCK_TRIPLES = 1000
_CHECKED_LINES = 1000
_SAMPLED_BYTES = 1 << 20


class _Block(NamedTuple):
    """Some valid triples, the byte after them, and how many lines were invalid."""

    groups: list[Group]
    end: int
    bad_lines: int


class TriplesSource:
    """Triples in the order of the file, shuffled within blocks of 1000 as in the code of 2019.

    Lines without exactly three non-empty columns, with invalid UTF-8 or with the same passage twice are ignored and
    counted. (2,579 such lines were reported of triples.train.small.tsv.)
    """

    docs_per_group = 2
    groups_per_epoch: int | None = None

    def __init__(self, url: str, seed: int) -> None:
        """Checks the first lines of the file.

        Raises:
            PreflightError: it cannot be read, none of these lines is a triple, or they are triples of ids.
        """
        self._url = url
        self._seed = seed
        if not storage.exists(url):
            raise PreflightError(f"data.triples: {url} does not exist")
        with errors_as(PreflightError, url), open_stream(url) as file:
            block = _read_block(file, 0, _BLOCK_TRIPLES, _CHECKED_LINES)
        if not block.groups:
            raise PreflightError(
                f"{url} holds no triples: none of its first {block.bad_lines:,} lines is "
                "query<TAB>relevant passage<TAB>other passage"
            )
        if all(text.isdecimal() for group in block.groups for text in (group.query, *group.docs)):
            raise PreflightError(
                f"{url} holds triples of ids, not of texts: the ids would be trained on as texts. Give "
                "triples.train.small.tsv, or data.corpus, data.topics, data.qrels and data.run, from which the same "
                "kind of triples is drawn"
            )

    def estimated_triples(self) -> int | None:
        """The estimated number of triples in the file; None if it is compressed."""
        if compression(self._url):
            return None
        with open_stream(self._url) as file:
            sample = file.read(_SAMPLED_BYTES)
        return round(storage.size_bytes(self._url) * sample.count(b"\n") / len(sample))

    def stream(self, position: Position) -> Iterator[tuple[Group, Position]]:
        """See `Source`; the position is the epoch, the first byte of a block, and a place in the block."""
        at: Position = {"epoch": 0, "offset": 0, "index": 0, "bad_before": 0, "bad_lines": 0} | position
        while True:
            yield from self._epoch(at)
            at = {"epoch": at["epoch"] + 1, "offset": 0, "index": 0, "bad_before": 0, "bad_lines": 0}

    def _epoch(self, at: Position) -> Iterator[tuple[Group, Position]]:
        with open_stream(self._url) as file:
            _skip(file, at["offset"])
            while True:
                block = _read_block(file, at["offset"], _BLOCK_TRIPLES)
                if block.end == at["offset"]:
                    return
                at = at | {"bad_lines": at["bad_before"] + block.bad_lines}
                order = np.random.default_rng([self._seed, at["epoch"], at["offset"]]).permutation(len(block.groups))
                for place in range(at["index"], len(order)):
                    yield block.groups[order[place]], at | {"index": place + 1}
                at = at | {"offset": block.end, "index": 0, "bad_before": at["bad_lines"]}

    def notes(self, position: Position) -> list[str]:
        """The number of invalid lines in this pass over the file."""
        bad_lines = position.get("bad_lines", 0)
        return [f"invalid lines in {self._url}: {bad_lines:,}; ignored"] if bad_lines else []


def _read_block(file: BinaryIO, start: int, triples: int, max_lines: int | None = None) -> _Block:
    """Reads from byte `start`, the file's position, to a number of valid triples or the end of the file."""
    groups: list[Group] = []
    lines, end = 0, start
    while len(groups) < triples and lines != max_lines and (line := file.readline()):
        lines += 1
        end += len(line)
        group = _parse(line)
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


def _parse(line: bytes) -> Group | None:
    try:
        columns = [column.strip() for column in line.decode("utf-8").split("\t")]
    except UnicodeDecodeError:
        return None
    if len(columns) != 3 or not all(columns) or columns[1] == columns[2]:
        return None
    return Group(columns[0], (columns[1], columns[2]), (True, False))
