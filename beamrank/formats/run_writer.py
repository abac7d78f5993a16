"""The run formats, and runs written so that every evaluator reads the same order."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamrank.errors import DataError
from beamrank.plugins import Registry
from beamrank.storage import files as storage
from beamrank.storage.streams import packed

# A score has the 9 significant digits that a float32 needs.
_WRITTEN = {"doc_id": "%s", "rank": "%d", "score": "%.9g"}


@dataclass(frozen=True)
class RunFormat:
    """A run format: one row a line. A file's format is detected by the number of its columns.

    Attributes:
        title: its name in messages.
        columns: `query_id`, `doc_id`, `rank`, and optionally `score` and `run_tag`; other names are
            constants. Without scores, a run is ordered by rank.
        separator: written between columns; when reading, any white space separates them. Empty for
            a table.
        ending: of the names of its files.
    """

    title: str
    columns: tuple[str, ...]
    separator: str
    ending: str

    @property
    def is_table(self) -> bool:
        """Whether it is a Parquet table (`RUN_TABLE`), whose columns have names, and no text."""
        return not self.separator

    @property
    def has_scores(self) -> bool:
        return "score" in self.columns

    def rows(self, query_id: str, scores: Mapping[str, float], run_tag: str) -> Iterator[str]:
        """The rows of a query's docs, best first, without line ends; ranks count from 1."""
        constants = {"query_id": query_id, "run_tag": run_tag}
        texts = [
            _WRITTEN.get(column) or constants.get(column, column).replace("%", "%%")
            for column in self.columns
        ]
        values = {
            "doc_id": scores.keys(),
            "rank": range(1, len(scores) + 1),
            "score": scores.values(),
        }
        written = (values[column] for column in self.columns if column in values)
        # A loop over the rows takes half as long again.
        return map(self.separator.join(texts).__mod__, zip(*written, strict=True))


# One row: a doc of a ranking; sorted by query_id, rank. `raw_score` is the score that the stage
# gave, of which `score` is the strictly decreasing form; null below the docs that the stage scored,
# where an earlier one (`stage`) ranks.
RUN_TABLE = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("score", pa.float32(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("raw_score", pa.float64()),
    ],
    {"beamrank.schema": "run/1"},
)

FORMATS: Registry[RunFormat] = Registry(
    "run format",
    "beamrank.run_formats",
    {
        "trec": RunFormat(
            "TREC", ("query_id", "Q0", "doc_id", "rank", "score", "run_tag"), " ", "trec"
        ),
        "msmarco": RunFormat("MS MARCO", ("query_id", "doc_id", "rank"), "\t", "msmarco.tsv"),
        "parquet": RunFormat("Parquet", tuple(RUN_TABLE.names), "", "parquet"),
    },
)


def text_formats() -> dict[str, RunFormat]:
    """The formats of text, whose rows have no names."""
    return {name: run_format for name, run_format in FORMATS.items() if not run_format.is_table}


# The docs of a query with their scores, best first.
Ranking = Iterable[tuple[str, float]]

_MIN_STEP = np.float32(1e-5)


def strictly_decreasing(scores: Sequence[float]) -> NDArray[np.float32]:
    """Run scores that decrease strictly, whether an evaluator holds them in float32 or in float64.

    s_r = min(float32(x_r), s_(r-1) - max(1e-5, 4 ulp)), in float32.

    Args:
        scores: the scores in their final order.

    Raises:
        DataError: a score is NaN, or infinite in float32.
    """
    with np.errstate(over="ignore"):
        decreasing = np.array(scores, dtype=np.float32)
        _check_finite(scores, decreasing)
        for first in np.flatnonzero(decreasing[1:] > _ceiling(decreasing[:-1])) + 1:
            _push_down(decreasing, int(first))
        _check_finite(scores, decreasing)
    return decreasing


def _push_down(scores: NDArray[np.float32], position: int) -> None:
    """Lowers the score at a position, and the scores below it for as long as they are too high."""
    while position < len(scores):
        ceiling = _ceiling(scores[position - 1 : position])[0]
        if scores[position] <= ceiling:
            return
        scores[position] = ceiling
        position += 1


def _check_finite(scores: Sequence[float], rounded: NDArray[np.float32]) -> None:
    infinite = np.flatnonzero(~np.isfinite(rounded))
    if len(infinite):
        rank = int(infinite[0]) + 1
        raise DataError(
            f"score {scores[rank - 1]} at rank {rank} is not finite in float32, as a run's must be"
        )


def _ceiling(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """The highest score that may follow each."""
    step = np.maximum(_MIN_STEP, np.float32(4) * np.spacing(np.abs(scores)))
    return np.asarray(scores - step, dtype=np.float32)


def scores_of_query(query_id: str, scores: Sequence[float]) -> NDArray[np.float32]:
    """`strictly_decreasing`, with the query in its error."""
    try:
        return strictly_decreasing(scores)
    except DataError as error:
        raise DataError(f"query {query_id!r}: {error}") from error


def run_scores(query_id: str, ranking: Ranking) -> dict[str, float]:
    """The score of each doc of a ranking in a run, best first."""
    scores = scores_of_query(query_id, [score for _, score in ranking]).tolist()
    return dict(zip((doc_id for doc_id, _ in ranking), scores, strict=True))


def run_lines(
    query_id: str, ranking: Ranking, run_tag: str, run_format: str = "trec"
) -> Iterator[str]:
    """The lines of one query, without line ends.

    Scores are strictly decreasing, ranks count from 1. Ids were checked where they were read
    (formats/checks.py).
    """
    return FORMATS[run_format].rows(query_id, run_scores(query_id, ranking), run_tag)


def write_run(
    url: str, rankings: Mapping[str, Ranking], run_tag: str, run_format: str = "trec"
) -> None:
    """Writes a run; a file that exists is replaced, never left half-written. Queries are in the
    order of `rankings`.

    It is compressed if its name ends in .gz, .bz2, .xz or .zst. A device or a pipe is written to.
    Rankings are in their final order, and ties keep it.
    """
    lines = (
        f"{line}\n".encode()
        for query_id, ranking in rankings.items()
        for line in run_lines(query_id, ranking, run_tag, run_format)
    )
    storage.replace_stream(url, packed(url, lines), through_link=True)
