"""The sections of the first stages and of the index that they search."""

from typing import ClassVar, Self

from pydantic import field_validator, model_validator

from beamrank.config.models import StageConfig
from beamrank.formats.columns import RunColumns
from beamrank.formats.runs import Ties
from beamrank.section import Path, PathOrSelf, Positive, Section

FIRST_K = 1000


class IndexConfig(Section):
    """The Lucene index."""

    path: Path = ""
    """Its folder; built from the corpus if it does not exist."""
    prebuilt: str | None = None
    """One of pyserini's indexes, such as `msmarco-v1-passage`, in place of `path`: downloaded once a machine."""
    update: bool = False
    """Update it when the corpus has changed; without this key, an index of another corpus is an error."""

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        if self.path == "" and self.prebuilt is None:
            raise ValueError("give `path`, or `prebuilt`")
        if self.prebuilt is not None and self.update:
            raise ValueError("a prebuilt index cannot be updated: give `path` to build one")
        return self


class FirstStageConfig(StageConfig):
    """The section of a first stage, of which a configuration holds one.

    Attributes:
        uses_index: whether it needs the section `index`.
    """

    uses_index: ClassVar[bool] = False

    k: Positive = FIRST_K
    """Candidates of a query, at most."""
    exclude: PathOrSelf | None = None
    """Leave docs out before `k` is counted: `self` the doc with the query's own id (BEIR's ArguAna and Quora), a file
    those that it names, a query_id and a doc_id a line, or BRIGHT's JSONL."""


class Bm25Config(FirstStageConfig):
    """BM25, the first stage."""

    uses_index = True

    k1: float = 0.9
    """0 or more; Anserini's default. Lucene's is 1.2, MS MARCO's tuned value 0.82."""
    b: float = 0.4
    """0 to 1; Anserini's default. Lucene's is 0.75, MS MARCO's tuned value 0.68."""

    @field_validator("k1")
    @classmethod
    def _check_k1(cls, k1: float) -> float:
        if not k1 >= 0:
            raise ValueError(f"must be 0 or more, not {k1:g}; usual values are 0.9, 1.2, and 0.82 for MS MARCO")
        return k1

    @field_validator("b")
    @classmethod
    def _check_b(cls, b: float) -> float:
        if not 0 <= b <= 1:
            raise ValueError(f"must be between 0 and 1, not {b:g}; usual values are 0.4, 0.75, and 0.68 for MS MARCO")
        return b


class CandidatesConfig(FirstStageConfig):
    """An existing run as the first stage, in place of BM25."""

    run: Path
    """A TREC or MS MARCO run, or an MS MARCO top1000 file, in place of `index` and `bm25`."""
    columns: RunColumns | None = None
    """Where columns or fields of the run have other names than usual."""
    ties: Ties = "rank"
    """The order of tied scores: by `rank`, or by `doc_id`, descending, as in trec_eval."""
