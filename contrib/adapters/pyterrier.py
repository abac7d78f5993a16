"""A PyTerrier transformer: `first_stage % 100 >> texts >> BeamrankReranker(mono) >>
BeamrankReranker(duo)`.
"""

from typing import Any

import pandas as pd
import pyterrier as pt

from beamrank.errors import DataError
from models.rerank import rerank
from models.reranker import Reranker, RerankerKind


class BeamrankReranker(pt.Transformer):  # type: ignore[misc]
    """Re-ranks the docs of each query as a stage of `beamrank run` does; R -> R."""

    def __init__(
        self,
        checkpoint: str | Reranker,
        kind: RerankerKind = "mono",
        *,
        k: int | None = None,
        aggregation: str = "sum",
        text_field: str = "text",
        **options: Any,
    ) -> None:
        """Loads the checkpoint.

        Args:
            checkpoint: a `beamrank.Reranker`, whose kind counts, or what its first argument can be.
            kind: `mono`, or `duo`, which compares the docs of a query in pairs.
            k: how many docs of a query are scored, by rank; the others follow in their order.
                Default: 1000, of duo 50.
            aggregation: how duo's scores of pairs become one score a doc.
            text_field: the column of the docs' texts.
            **options: as for `beamrank.Reranker`.
        """
        super().__init__()
        self.reranker = (
            checkpoint
            if isinstance(checkpoint, Reranker)
            else Reranker(checkpoint, kind, **options)
        )
        self.text_field = text_field
        settings: dict[str, Any] = {"checkpoint": self.reranker} | ({} if k is None else {"k": k})
        if self.reranker.kind == "duo":
            settings["aggregation"] = aggregation
        self._stage: dict[str, dict[str, Any]] = {self.reranker.kind: settings}

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """The rows with other scores and ranks, sorted by qid and rank.

        Scores decrease strictly, as in a run, so that every evaluator reads the same order.

        Raises:
            DataError: a query or a text is missing or is no string, or a qid has two queries.
        """
        pt.validate.columns(inp, includes=["qid", "query", "docno", self.text_field])
        by = [name for name in ("rank", "score") if name in inp][:1]
        rows = inp.sort_values(by, ascending=by == ["rank"], kind="stable") if by else inp
        # A query's rows stay together. The number of a row is its doc's id: a doc can have another
        # text for each query.
        rows = rows.sort_values("qid", kind="stable").reset_index(drop=True).assign(score=0.0)
        if len(rows):
            rows["score"] = self._scores(rows)
            rows = rows.sort_values(["qid", "score"], ascending=[True, False], ignore_index=True)
        return pt.model.add_ranks(rows)

    def _scores(self, rows: pd.DataFrame) -> pd.Series:
        """The scores of rows, by their numbers."""
        run: dict[str, dict[str, float]] = {}
        for row, query_id in enumerate(rows["qid"]):
            run.setdefault(query_id, {})[str(row)] = -row
        topics = dict(zip(rows["qid"], rows["query"], strict=True))
        for query_id, query in zip(rows["qid"], rows["query"], strict=True):
            if query != topics[query_id]:
                raise DataError(
                    f"two rows of the qid {query_id!r} have different queries, {query!r:.100} and "
                    f"{topics[query_id]!r:.100}: the docs of a qid are ranked together, for one. "
                    "Give each query a qid of its own"
                )
        corpus = {str(row): text for row, text in enumerate(rows[self.text_field])}
        (best,) = rerank(topics, run, corpus, cascade=[self._stage]).values()
        return pd.Series(
            {int(row): score for scores in best.values() for row, score in scores.items()}
        )
