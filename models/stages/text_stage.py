"""The base of stages that score docs one by one by their texts."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.working import shard_at_work
from beamrank.errors import DataError
from beamrank.ranking.input_layout import Lengths
from models.scoring.answers import Answers, Contents, Cut
from models.stages.compute import Computed, ShardInputs
from models.stages.pointwise import Pointwise

Scores = npt.NDArray[np.float32]


class TextPairs(NamedTuple):
    """Pairs of a query and a doc, by the numbers of their texts: equal texts have one number."""

    queries: Sequence[str]
    docs: Sequence[str]
    pairs: Sequence[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class TextStage(Pointwise):
    """A stage that scores docs one by one by their texts, cut at `input.max_text_bytes`. A score
    must depend on both texts and on `score_keys` alone: it is reused.
    """

    needs = "texts"

    @abstractmethod
    def score(self, inputs: ShardInputs, texts: TextPairs) -> Sequence[float] | Scores:
        """The scores of n pairs, float32[n], of which none has an answer of an earlier part.
        `shard_at_work().add(done)` says how many are done.
        """

    def compute(self, inputs: ShardInputs) -> Computed:
        """Raises DataError for a score that is NaN or infinite."""
        rows, scores = self._known(inputs)
        rest = np.flatnonzero(np.isnan(scores))
        texts = rows.texts(inputs.read(self.tokens), rest)
        if len(rest):
            shard_at_work().add(0, len(rest))
            scores[rest] = self.score(inputs, texts)
        rows.check(scores)
        counts = {
            "candidates": len(scores),
            "inferences": len(rest),
            "reused": len(scores) - len(rest),
            "scored_queries": len(texts.queries),
            "scored_docs": len(texts.docs),
        }
        return Computed(rows.table(self.schema, scores), counts)

    def known_answers(self, part: pa.Table, tokens: pa.Table) -> Answers:
        contents = Contents.of(tokens, instructed=False)
        rows = contents.find(part["query_id"].to_pylist(), part["doc_id"].to_pylist())
        return dict(zip(_keys(contents, *rows), part["score"].to_pylist(), strict=True))

    def count(self, inputs: ShardInputs) -> int:
        return int(np.isnan(self._known(inputs)[1]).sum())

    def _known(self, inputs: ShardInputs) -> tuple["_Rows", Scores]:
        """The docs that are scored, and the scores that earlier parts have; NaN for the others."""
        rows = _Rows.of(inputs.read(self.tokens), self.received(inputs))
        keys = _keys(rows.contents, rows.queries, rows.docs)
        answers = inputs.find(keys)
        return rows, np.array([answers.get(key, np.nan) for key in keys], np.float32)


class _Rows(NamedTuple):
    """The n docs of a shard that a stage receives, those of a query side by side, best first.

    Attributes:
        contents: the shard's texts.
        ids: the query_id, the doc_id and the rank of each.
        queries: int64[n], the rows of their queries.
        docs: int64[n], their rows among all candidates.
    """

    contents: Contents
    ids: Sequence[tuple[str, str, int]]
    queries: Lengths
    docs: Lengths

    @classmethod
    def of(cls, texts: pa.Table, received: Mapping[str, Sequence[str]]) -> Self:
        """Docs that the corpus lacks have no text, and are left out."""
        contents = Contents.of(texts, instructed=False)
        ids = [
            (query_id, doc_id, rank)
            for query_id, doc_ids in sorted(received.items())
            for rank, doc_id in enumerate(doc_ids, 1)
            if (query_id, doc_id) in contents.rows
        ]
        places = contents.find([row[0] for row in ids], [row[1] for row in ids])
        return cls(contents, ids, *places)

    def texts(self, texts: pa.Table, some: Lengths) -> TextPairs:
        """The texts of some of them."""
        queries, of_query = _distinct(self.contents.topics, self.queries[some])
        docs, of_doc = _distinct(self.contents.docs, self.docs[some])
        return TextPairs(
            texts["query"].take(pa.array(queries)).to_pylist(),
            pc.list_flatten(texts["doc_texts"]).take(pa.array(docs)).to_pylist(),
            list(zip(of_query.tolist(), of_doc.tolist(), strict=True)),
        )

    def check(self, scores: Scores) -> None:
        broken = np.flatnonzero(~np.isfinite(scores))
        if len(broken):
            query_id, doc_id, _ = self.ids[broken[0]]
            raise DataError(
                f"scores that are NaN or infinite: {len(broken):,} (first: query_id {query_id}, "
                f"doc_id {doc_id}). The model's weights are damaged, or its vectors are zero"
            )

    def table(self, schema: pa.Schema, scores: Scores) -> pa.Table:
        query_ids, doc_ids, ranks = zip(*self.ids, strict=True) if self.ids else ((), (), ())
        segments = np.zeros(len(scores), np.int16)
        return pa.table([query_ids, doc_ids, segments, ranks, scores], schema=schema)


def _distinct(digests: npt.NDArray[np.uint8], rows: Lengths) -> tuple[Lengths, Lengths]:
    """The rows of distinct texts, and for each of the given rows the number of its text."""
    _, first, numbers = np.unique(digests[rows], axis=0, return_index=True, return_inverse=True)
    return rows[first], numbers.ravel()


def _keys(contents: Contents, queries: Lengths, docs: Lengths) -> list[bytes]:
    return contents.keys(queries, Cut(docs, np.zeros_like(docs), contents.doc_lengths[docs]))
