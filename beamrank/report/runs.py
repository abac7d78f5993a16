"""The rankings that a plan has stored: of its finished stages, and of what their parts give without
a model.

The candidates of a query side by side in several runs, docs whose rank changes most, and scores by
label.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, takewhile
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from beamrank.commit.parts import ShardParts, iter_shards
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest, Receipt, StageFolder
from beamrank.commit.schemas import INSTRUCTION_TOKENS
from beamrank.commit.stage import Stage
from beamrank.commit.status import StageStatus, read_receipts, read_status
from beamrank.config.run import RunConfig
from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, digest_corpus, find_texts
from beamrank.formats.qrels import Qrels, read_qrels
from beamrank.ranking.input_layout import Lengths
from beamrank.ranking.rankings import Ranking, Rankings

# The scores of a run by label; None is the label of docs without judgment.
Scores: TypeAlias = dict[int | None, NDArray[np.float32]]
_BEFORE_DOCS = ("query_tokens", INSTRUCTION_TOKENS)
LENGTHS = ("query_id", *_BEFORE_DOCS, "doc_ids", "doc_lengths")
"""The columns of tokens, or of texts, that `cut_docs` reads."""
# How much is stored of a doc, and by how much less a text is cut, at a character.
_STORED = {"max_doc_tokens": 0, "max_text_bytes": 3}


@dataclass(frozen=True)
class CandidateView:
    """A candidate of a query.

    Attributes:
        label: its relevance; None without a judgment.
        ranks: by the name of each run, from 1.
        scores: by the name of each run that scored it.
        details: what its stage shows of it beside, by the name of each run: of pairs the
            `strongest` and the `weakest` opponent, a doc_id with the log-odds of being more
            relevant than it.
        truncated: the stages whose model reads only the beginning of the doc; None if that is
            unknown.
    """

    query_id: str
    doc_id: str
    label: int | None
    ranks: dict[str, int]
    scores: dict[str, float]
    details: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    truncated: tuple[str, ...] | None = None

    @property
    def truncated_by(self) -> str | None:
        """The same for a reader: `no`, or the stages."""
        return None if self.truncated is None else ", ".join(self.truncated) or "no"


class RankChange(NamedTuple):
    """A judged doc that two runs rank differently."""

    before: str
    after: str
    candidate: CandidateView

    @property
    def places(self) -> int:
        """How many places it gains; negative if it loses."""
        return self.candidate.ranks[self.before] - self.candidate.ranks[self.after]


def read_judgments(plan: Plan, config: RunConfig) -> Qrels | None:
    """The judgments with which the runs of a plan are measured: of a trial, those of its topics;
    None where nothing is evaluated.
    """
    if config.judgments is None:
        return None
    qrels = read_qrels(config.judgments, rejects=config.max_bad_rows.rejects("qrels"))
    return qrels.of_topics(plan.topics.those_of(qrels.relevance)) if plan.limited else qrels


def of_query(rankings: Mapping[str, Rankings], query_id: str) -> dict[str, Ranking]:
    """A query's ranking in each run that has it."""
    return {run: by_query[query_id] for run, by_query in rankings.items() if query_id in by_query}


def candidate_views(
    query_id: str,
    rankings: dict[str, Ranking],
    judgments: Mapping[str, int],
    only: Collection[str] | None = None,
) -> list[CandidateView]:
    """The docs of a query in the order of the last run; docs that it lacks follow, in the order of
    the one before.

    `judgments` are of its docs; `only` leaves out other docs.
    """
    order = dict.fromkeys(
        doc_id
        for run in reversed(rankings)
        for doc_id in rankings[run].doc_ids
        if only is None or doc_id in only
    )
    views = {
        doc_id: CandidateView(query_id, doc_id, judgments.get(doc_id), {}, {}) for doc_id in order
    }
    for run, ranking in rankings.items():
        for place, doc_id in enumerate(ranking.doc_ids):
            if doc_id in views:
                views[doc_id].ranks[run] = place + 1
                if place < ranking.scored:
                    views[doc_id].scores[run] = float(ranking.scores[place])
    return list(views.values())


def shown_views(views: Sequence[CandidateView], count: int) -> list[CandidateView]:
    """The first candidates of a query, and as many relevant ones that are further below."""
    return [*views[:count], *[view for view in views[count:] if (view.label or 0) > 0][:count]]


class LargestChanges:
    """Keeps the judged docs whose rank changes most in each step, from one run to another."""

    def __init__(self, steps: Iterable[tuple[str, str]], count: int) -> None:
        self._count = count
        self._kept: dict[tuple[str, str], list[RankChange]] = {step: [] for step in steps}

    def add(self, views: Sequence[CandidateView]) -> None:
        """Takes the judged candidates of a query."""
        for (before, after), kept in self._kept.items():
            changes = (
                RankChange(before, after, view)
                for view in views
                if view.ranks.get(before) != view.ranks.get(after)
                and {before, after} <= view.ranks.keys()
            )
            kept[:] = heapq.nsmallest(self._count, [*kept, *changes], key=_order)

    def found(self) -> list[RankChange]:
        """The largest changes of each step, largest first."""
        return list(chain.from_iterable(self._kept.values()))


def _order(change: RankChange) -> tuple[int, str, str]:
    return -abs(change.places), change.candidate.query_id, change.candidate.doc_id


class ScoresByLabel:
    """Collects the scores of runs whose queries arrive one by one."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[int | None, list[NDArray[np.float32]]]] = {}

    def add(self, run: str, ranking: Ranking, judgments: Mapping[str, int]) -> None:
        """Takes the scores of a query's docs; no picture has one that is not finite."""
        scores = ranking.scores[: ranking.scored]
        labels = list(map(judgments.get, ranking.doc_ids[: ranking.scored]))
        for label in {*labels}:
            values = scores[[doc_label == label for doc_label in labels]]
            finite = values[np.isfinite(values)].astype(np.float32)
            if len(finite):
                self._parts.setdefault(run, {}).setdefault(label, []).append(finite)

    def found(self) -> dict[str, Scores]:
        """The scores by run and label."""
        return {
            run: {label: np.concatenate(parts) for label, parts in by_label.items()}
            for run, by_label in self._parts.items()
        }


@dataclass(frozen=True)
class PlanRuns:
    """A plan with its configuration and its stages (`models.stages.core.open_stages`). Writes
    nothing. `notes` are what a reader of its figures should know first.
    """

    plan: Plan
    config: RunConfig
    stages: Sequence[Stage]
    notes: Sequence[str] = ()

    @cached_property
    def manifests(self) -> Mapping[str, Manifest]:
        """By the name of the stage, if it is finished."""
        return self.plan.manifests(StageFolder.gather)

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
        return list(
            takewhile(
                lambda stage: stage.name in self.manifests,
                (stage for stage in self.stages if stage.ranks),
            )
        )

    @property
    def steps(self) -> list[str]:
        """The run of each of these stages."""
        return [str(stage.run_name) for stage in self.finished]

    @cached_property
    def all(self) -> dict[str, tuple[Stage, Stage]]:
        """All runs, in the order of the stages, each with its stage and the alternative of it that
        ranks.
        """
        return {
            str(alternative.run_name): (stage, alternative)
            for stage in self.finished
            for alternative in stage.alternatives
        }

    def shards(self, queries: Collection[str] | None = None) -> Iterator[ShardParts]:
        """The parts of each shard, or only the rows of some queries; none before the first stage is
        finished.
        """
        return (
            iter_shards(self.plan, self.stages, self.manifests, queries)
            if self.finished
            else iter(())
        )

    def rankings(self, parts: ShardParts, run: str) -> Rankings:
        """The rankings of a shard in one of `all` runs."""
        stage, alternative = self.all[run]
        is_own = alternative.run_name == stage.run_name
        return parts.rankings(stage.name) if is_own else parts.rank(alternative)

    def views(self, query_id: str, judgments: Mapping[str, int]) -> list[CandidateView]:
        """The candidates of a query in all runs; reads its shard only."""
        for parts in self.shards({query_id}):
            rankings = {run: self.rankings(parts, run) for run in self.all}
            candidates = candidate_views(query_id, of_query(rankings, query_id), judgments)
            return self.complete(parts, query_id, candidates)
        return []

    def complete(
        self, parts: ShardParts, query_id: str, views: Sequence[CandidateView]
    ) -> list[CandidateView]:
        """Candidates of a query with the details of each stage, and the stages that scored only
        their beginning.
        """
        details = {
            str(stage.run_name): stage.details(parts.part(stage.name), query_id)
            for stage in self.finished
        }
        truncated = []
        for stage in self.stages:
            if stage.ranks and stage.tokens in self.manifests:
                tokens = parts.part(stage.tokens, LENGTHS)
                of_query = tokens.filter(pc.equal(tokens["query_id"], query_id))
                truncated.append((stage, cut_docs(self.plan, stage, of_query).get(query_id, {})))
        completed = []
        for view in views:
            of_runs = {
                run: by_doc[view.doc_id] for run, by_doc in details.items() if view.doc_id in by_doc
            }
            known = any(view.doc_id in by_doc for _, by_doc in truncated)
            names = [
                stage.name
                for stage, by_doc in truncated
                if by_doc.get(view.doc_id) and stage.run_name in view.scores
            ]
            completed.append(
                replace(view, details=of_runs, truncated=tuple(names) if known else None)
            )
        return completed

    def texts(self, doc_ids: Collection[str]) -> dict[str, str]:
        """The texts of some docs, as the run read them; docs that the corpus lacks are left out.

        Raises as `open_corpus`.
        """
        with self.open_corpus() as corpus:
            return find_texts(corpus, doc_ids)

    @contextmanager
    def open_corpus(self) -> Iterator[CorpusConfig]:
        """The corpus that the run read, which must not change meanwhile.

        Raises:
            PreflightError: the corpus does not exist, cannot be read, or changed since the run.
        """
        read = {
            stage.corpus_digest for stage in self.plan.stages if stage.corpus_digest is not None
        }
        corpus = digest_corpus(self.config.corpus)
        if read and corpus.digest not in read:
            raise PreflightError(
                f"the corpus {self.config.corpus.path} changed since the run, so its passages may "
                "not be those that were ranked: restore it, or run again (a report can leave the "
                "passages out: --no-texts)"
            )
        with corpus.unchanged():
            yield self.config.corpus


def cut_docs(plan: Plan, stage: Stage, tokens: Any) -> dict[str, dict[str, bool]]:
    """Whether a stage reads only the beginning of each doc, by query_id and doc_id, given the
    `LENGTHS` of queries.

    A doc that has as many tokens, or bytes, as were stored counts as cut, since the rest, if any,
    is unknown.
    """
    counts = _lengths(tokens["doc_ids"])
    docs = pc.list_flatten(tokens["doc_lengths"]).to_numpy().astype(np.int64)
    query, instruction = (
        np.repeat(_lengths(tokens[name]), counts)
        if name in tokens.column_names
        else np.zeros_like(docs)
        for name in _BEFORE_DOCS
    )
    keys = plan.stage(stage.tokens).keys
    (stored,) = (keys[name] - less for name, less in _STORED.items() if name in keys)
    is_cut = (stage.read_tokens(query, docs, instruction) < docs) | (docs >= stored)
    of_queries = np.split(is_cut, np.cumsum(counts))[:-1]
    return {
        query_id: dict(zip(doc_ids, cut.tolist(), strict=True))
        for query_id, doc_ids, cut in zip(
            tokens["query_id"].to_pylist(), tokens["doc_ids"].to_pylist(), of_queries, strict=True
        )
    }


def _lengths(lists: Any) -> Lengths:
    return np.asarray(pc.list_value_length(lists).to_numpy(zero_copy_only=False), np.int64)
