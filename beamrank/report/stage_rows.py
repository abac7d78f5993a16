"""What each stage of a run did to the ranking before it, and what it cost: a row for each stage,
from stored scores and receipts.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from beamrank.commit.parts import ShardParts
from beamrank.commit.plan import Plan
from beamrank.commit.stage import Stage, StageRecord
from beamrank.commit.status import StageStatus
from beamrank.errors import ReceiptError
from beamrank.evaluation.evaluate import Evaluation
from beamrank.evaluation.significance import SIGNIFICANT, Comparison, comparable, compare_all
from beamrank.ranking.rankings import Ranking
from beamrank.ranking.variants import remaining
from beamrank.records import Relevance
from beamrank.report.curves import Gain
from beamrank.report.runs import LENGTHS, cut_docs

# Topics are in shards at random, and so many say enough.
_TOPICS = 1_000
_FIRST_DOCS = 10


@dataclass
class StageRow:
    """A finished stage that ranks.

    Attributes:
        run, before: the name of its run, and of the run before it, which the first stage lacks.
        has_checkpoint: whether a checkpoint decides its scores.
        topics: how many topics have two docs or more that it scored; after the first 1,000, none
            are counted.
        reordered: of these, the topics whose docs are in another order than before.
        one_score: of these, the topics whose docs all have one score.
        judged: of these, the topics with relevant docs and others.
        reversed: of the judged ones, the topics whose relevant docs are in the lower half, so that
            the reverse of the order agrees better with the judgments.
        first_docs: the docs that it scored among the first ten of a topic; 0 for a stage that reads
            no texts.
        cut_docs: of these, the docs of which it read only the beginning.
        inferences: without those whose scores earlier runs had.
        seconds: of all workers, with those of the stages that only prepare it.
        measure: the first measure that is a mean over topics; None without qrels, like what
            follows.
        than_before, than_first: beside the run before it, and beside the first run. The p-values
            are corrected for the number of stages (Holm).
        gain: of the best depth of its curve; None without a curve too.
    """

    stage: str
    run: str
    before: str | None = None
    has_checkpoint: bool = False
    topics: int = 0
    reordered: int = 0
    one_score: int = 0
    judged: int = 0
    reversed: int = 0
    first_docs: int = 0
    cut_docs: int = 0
    inferences: int = 0
    seconds: float = 0.0
    measure: str | None = None
    mean: float | None = None
    than_before: Comparison | None = None
    than_first: Comparison | None = None
    gain: Gain | None = None

    @property
    def reordered_share(self) -> float | None:
        """The share of the topics that are in another order than before; of later stages."""
        return self.reordered / self.topics if self.before and self.topics else None

    @property
    def cut_share(self) -> float | None:
        """The share of the first docs that are cut."""
        return self.cut_docs / self.first_docs if self.first_docs else None

    def count(
        self,
        before: Ranking | None,
        after: Ranking,
        judged: Mapping[str, int],
        is_cut: Mapping[str, bool],
    ) -> None:
        """Takes the rankings of a topic, its judgments, and which docs are cut, where known."""
        scored = after.doc_ids[: after.scored]
        known = [is_cut[doc_id] for doc_id in scored[:_FIRST_DOCS] if doc_id in is_cut]
        self.first_docs += len(known)
        self.cut_docs += sum(known)
        if len(scored) < 2:
            return
        self.topics += 1
        self.one_score += len(set(after.own_scores.tolist())) == 1
        if before is not None:
            self.reordered += tuple(remaining(before, after)[1]) != after.doc_ids
        relevant = [judged.get(doc_id, 0) > 0 for doc_id in scored if judged]
        if any(relevant) and not all(relevant):
            self.judged += 1
            self.reversed += bool(np.flatnonzero(relevant).mean() > (len(scored) - 1) / 2)


class StageReader:
    """Makes the rows of the stages that rank; shards arrive one by one."""

    def __init__(
        self,
        plan: Plan,
        stages: Sequence[Stage],
        relevance: Relevance,
    ) -> None:
        """Takes the stages, in order, and the judgments."""
        self._plan, self._relevance = plan, relevance
        self._stages, self._rows = stages, list[StageRow]()
        before = None
        for stage in stages:
            run, keys = str(stage.run_name), plan.stage(stage.name).keys
            self._rows.append(StageRow(stage.name, run, before, "checkpoint_digest" in keys))
            before = run

    def add(self, parts: ShardParts) -> None:
        """Takes a shard."""
        for stage, row in zip(self._stages, self._rows, strict=True):
            if row.topics < _TOPICS:
                cut: dict[str, dict[str, bool]] = {}
                # Runs can be written without what was stored of docs.
                with suppress(ReceiptError):
                    if stage.tokens:
                        lengths = parts.part(stage.tokens, LENGTHS)
                        cut = cut_docs(self._plan, stage, lengths)
                before = parts.before(stage.name) or {}
                for query_id, ranking in parts.rankings(stage.name).items():
                    judged, is_cut = self._relevance.get(query_id, {}), cut.get(query_id, {})
                    row.count(before.get(query_id), ranking, judged, is_cut)

    def rows(
        self, statuses: Sequence[StageStatus], evaluations: Mapping[str, Evaluation]
    ) -> list[StageRow]:
        """A row for each stage, given the status of every stage of the plan, and the measures of
        each run; none without qrels.
        """
        rows = self._rows
        for row, (_, status, seconds) in zip(rows, stage_costs(self._plan, statuses), strict=False):
            row.inferences, row.seconds = status.inferences, seconds
        runs = [evaluations[row.run] for row in rows if evaluations]
        names = comparable(list(runs[0].means), len(runs[0].per_query)) if runs else []
        for measure in names[:1]:
            values = [run.per_query.of(measure) for run in runs]
            than_before = compare_all(values[1:], values)
            than_first = compare_all(values[1:], values[:1] * len(values))
            for row, run in zip(rows, runs, strict=True):
                row.measure, row.mean = measure, run.means[measure]
            for row, *compared in zip(rows[1:], than_before, than_first, strict=True):
                row.than_before, row.than_first = compared
        return rows


def stage_costs(
    plan: Plan, statuses: Sequence[StageStatus]
) -> Iterator[tuple[StageRecord, StageStatus, float]]:
    """Each stage that ranks with its status, and its worker seconds with those of the stages that
    only prepare it.
    """
    seconds = 0.0
    for record, status in zip(plan.stages, statuses, strict=True):
        seconds += status.seconds
        if record.run_name is not None:
            yield record, status, round(seconds, 3)
            seconds = 0.0


def answer_words(rows: Sequence[StageRow]) -> str:
    """Whether the last stage is worth its cost, in a sentence without its full stop."""
    if len(rows) < 2:
        return "Nothing can be compared: fewer than two stages that rank are finished"
    last = rows[-1]
    cost = f"it cost {last.inferences:,} inferences and {last.seconds:,.1f} worker seconds"
    if last.than_first is None or last.than_before is None:
        changed = f"the order of {last.reordered:,} of {last.topics:,} topics"
        return f"{last.run} changes {changed}, and no measure says whether it is better; {cost}"
    compared = {rows[0].run: last.than_first, last.before: last.than_before}
    verdicts = [f"{_verdict(one)} {run} ({one.baseline:.4f})" for run, one in compared.items()]
    words = " and ".join(verdicts)
    return f"By {last.measure}, {last.run} ({last.than_first.mean:.4f}) is {words}; {cost}"


def _verdict(compared: Comparison) -> str:
    if compared.p_value is None or compared.p_value >= SIGNIFICANT:
        return "not clearly different from"
    return "better than" if compared.difference > 0 else "worse than"
