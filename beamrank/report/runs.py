"""The rankings that a plan has stored: of its finished stages, and of what their parts give without a model."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np
import pyarrow.compute as pc

from beamrank.commit.parts import ShardParts, iter_shards
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest, Receipt, StageFolder
from beamrank.commit.stage import Stage
from beamrank.commit.status import StageStatus, read_receipts, read_status
from beamrank.config.run import RunConfig
from beamrank.errors import PreflightError
from beamrank.formats.corpora import digest_corpus, find_texts
from beamrank.ranking.input_layout import Lengths
from beamrank.ranking.rankings import Rankings
from beamrank.report.views import CandidateView, candidate_views, of_query


@dataclass(frozen=True)
class PlanRuns:
    """A plan with its configuration and its stages (`models.stages.core.open_stages`). Writes nothing."""

    plan: Plan
    config: RunConfig
    stages: Sequence[Stage]

    @cached_property
    def manifests(self) -> Mapping[str, Manifest]:
        """By the name of the stage, if it is finished."""
        return self.plan.manifests(StageFolder.whole)

    @cached_property
    def receipts(self) -> Mapping[str, Mapping[int, Receipt]]:
        """By stage and shard."""
        return read_receipts(self.plan)

    @cached_property
    def statuses(self) -> Sequence[StageStatus]:
        """Of each stage."""
        return read_status(self.plan, receipts=self.receipts)

    @cached_property
    def finished(self) -> list[Stage]:
        """The stages that rank, up to the first that is not finished."""
        return list(takewhile(lambda stage: stage.name in self.manifests, (each for each in self.stages if each.ranks)))

    @property
    def steps(self) -> list[str]:
        """The run of each of these stages."""
        return [str(stage.run_name) for stage in self.finished]

    @cached_property
    def all(self) -> dict[str, tuple[Stage, Stage]]:
        """All runs, in the order of the stages, each with its stage and the alternative of it that ranks."""
        return {str(each.run_name): (stage, each) for stage in self.finished for each in stage.alternatives}

    def shards(self, queries: Collection[str] | None = None) -> Iterator[ShardParts]:
        """The parts of each shard, or only the rows of some queries; none before the first stage is finished."""
        return iter_shards(self.plan, self.stages, self.manifests, queries) if self.finished else iter(())

    def rankings(self, parts: ShardParts, run: str) -> Rankings:
        """The rankings of a shard in one of `all` runs."""
        stage, alternative = self.all[run]
        if alternative.run_name == stage.run_name:
            return parts.rankings(stage.name)
        return parts.rank(alternative)

    def views(self, query_id: str, judgments: Mapping[str, int]) -> list[CandidateView]:
        """The candidates of a query in all runs; reads its shard only."""
        for parts in self.shards({query_id}):
            rankings = {run: self.rankings(parts, run) for run in self.all}
            found = candidate_views(query_id, of_query(rankings, query_id), judgments)
            return self.complete(parts, query_id, found)
        return []

    def complete(self, parts: ShardParts, query_id: str, views: Sequence[CandidateView]) -> list[CandidateView]:
        """Candidates of a query with the details of each stage, and the stages that scored only their beginning."""
        details = {str(stage.run_name): stage.details(parts.part(stage.name), query_id) for stage in self.finished}
        truncated = [
            (stage, self._truncated(parts, stage, query_id))
            for stage in self.stages
            if stage.ranks and stage.tokens in self.manifests
        ]
        found = []
        for view in views:
            of_runs = {run: each[view.doc_id] for run, each in details.items() if view.doc_id in each}
            known = any(view.doc_id in by_doc for _, by_doc in truncated)
            names = [
                stage.name for stage, by_doc in truncated if by_doc.get(view.doc_id) and stage.run_name in view.scores
            ]
            found.append(replace(view, details=of_runs, truncated=tuple(names) if known else None))
        return found

    def _truncated(self, parts: ShardParts, stage: Stage, query_id: str) -> dict[str, bool]:
        """Whether the model of a stage reads only the beginning of each doc of a query.

        A doc that has as many tokens as were stored counts as truncated, since the rest, if any, is unknown.
        """
        tokens = parts.part(stage.tokens)
        row = tokens.filter(pc.equal(tokens["query_id"], query_id))
        docs = _lengths(pc.list_flatten(row["doc_tokens"]))
        read = stage.read_tokens(np.repeat(_lengths(row["query_tokens"]), len(docs)), docs)
        stored = self.plan.stage(stage.tokens).keys["max_doc_tokens"]
        found = ((read < docs) | (docs >= stored)).tolist()
        return dict(zip(pc.list_flatten(row["doc_ids"]).to_pylist(), found, strict=True))

    def texts(self, doc_ids: Collection[str]) -> dict[str, str]:
        """The texts of some docs, as the run read them; those that the corpus lacks are left out.

        Raises:
            PreflightError: the corpus does not exist, cannot be read, or changed since the run.
        """
        read = {stage.corpus_digest for stage in self.plan.stages if stage.corpus_digest is not None}
        corpus = digest_corpus(self.config.corpus)
        if read and corpus.digest not in read:
            raise PreflightError(
                f"the corpus {self.config.corpus.path} changed since the run, so its passages may not be those that "
                "were ranked: restore it, run again, or leave the passages out (--no-texts)"
            )
        with corpus.unchanged():
            return find_texts(self.config.corpus, doc_ids)


def _lengths(lists: Any) -> Lengths:
    return np.asarray(pc.list_value_length(lists).to_numpy(zero_copy_only=False), np.int64)
