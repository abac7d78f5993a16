"""The run formats, by their columns. A new one is an entry in `FORMATS`; no two have the same number of columns."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter

# A score has the 9 significant digits that a float32 needs.
_WRITTEN = {"query_id": "%s", "doc_id": "%s", "rank": "%d", "score": "%.9g", "run_tag": "%s"}


@dataclass(frozen=True)
class RunFormat:
    """A run format: one row a line. A file's format is detected by the number of its columns.

    Attributes:
        title: its name in messages.
        columns: `query_id`, `doc_id`, `rank`, and optionally `score` and `run_tag`; other names are constants.
            Without scores, a run is ordered by rank.
        separator: written between columns; when reading, any white space separates them.
        ending: of the names of its files.
    """

    title: str
    columns: tuple[str, ...]
    separator: str
    ending: str

    @property
    def has_scores(self) -> bool:
        """Whether a row has a score."""
        return "score" in self.columns

    def row_writer(self) -> Callable[[tuple[str, str, int, float, str]], str]:
        """A function that makes a row of a query_id, a doc_id, a rank, a score and a run_tag."""
        template = self.separator.join(_WRITTEN.get(column, column) for column in self.columns)
        pick = itemgetter(*[list(_WRITTEN).index(column) for column in self.columns if column in _WRITTEN])
        return lambda values: template % pick(values)


FORMATS: dict[str, RunFormat] = {
    "trec": RunFormat("TREC", ("query_id", "Q0", "doc_id", "rank", "score", "run_tag"), " ", "trec"),
    "msmarco": RunFormat("MS MARCO", ("query_id", "doc_id", "rank"), "\t", "msmarco.tsv"),
}


def described() -> str:
    """The columns of every format, for messages."""
    each = [f"{one.title}, {len(one.columns)} columns ({' '.join(one.columns)})" for one in FORMATS.values()]
    return f"accepted: {'; '.join(each)}"
