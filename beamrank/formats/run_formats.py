"""The run formats, by their columns. A new one is an entry in `FORMATS`; no two have the same number of columns."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# A score has the 9 significant digits that a float32 needs.
_WRITTEN = {"doc_id": "%s", "rank": "%d", "score": "%.9g"}


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

    def rows(self, query_id: str, scores: Mapping[str, float], run_tag: str) -> Iterator[str]:
        """The rows of a query's docs, best first, without line ends; ranks count from 1."""
        constants = {"query_id": query_id, "run_tag": run_tag}
        texts = [_WRITTEN.get(column) or constants.get(column, column).replace("%", "%%") for column in self.columns]
        values = {"doc_id": scores.keys(), "rank": range(1, len(scores) + 1), "score": scores.values()}
        written = (values[column] for column in self.columns if column in values)
        # A loop over the rows takes half as long again.
        return map(self.separator.join(texts).__mod__, zip(*written, strict=True))


FORMATS: dict[str, RunFormat] = {
    "trec": RunFormat("TREC", ("query_id", "Q0", "doc_id", "rank", "score", "run_tag"), " ", "trec"),
    "msmarco": RunFormat("MS MARCO", ("query_id", "doc_id", "rank"), "\t", "msmarco.tsv"),
}


def described() -> str:
    """The columns of every format, for messages."""
    each = [f"{one.title}, {len(one.columns)} columns ({' '.join(one.columns)})" for one in FORMATS.values()]
    return f"accepted: {'; '.join(each)}"
