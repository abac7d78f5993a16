"""What each stage of a run did to the ranking before it, and what it cost: a row for each stage,
from stored scores and receipts.
"""

import math
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
from beamrank.report.curves import Gain
from beamrank.report.runs import LENGTHS, cut_docs

SAMPLE_TOPICS = 1_000
"""Of how many topics the lengths of docs are read; topics are in shards at random."""
_FIRST_DOCS = 10


@dataclass
class StageRow:
    """A finished stage that ranks.

    Attributes:
        run, before: the name of its run, and of the run before it, which the first stage lacks.
        has_checkpoint: whether a checkpoint decides its scores.
        topics: how many topics have two docs or more that it scored.
        reordered: of these, the topics whose docs are in another order than before.
        one_score: of these, the topics whose docs all have one score.
        judged: of these, the topics with relevant docs and others.
        reversed: of the judged ones, the topics whose relevant docs are in the lower half, so that
            the reverse of the order agrees better with the judgments.
        first_docs: the docs that it scored among the first ten of a topic; of about 1,000 topics,
            and 0 for a stage that reads no texts.
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
    def cut_share(self) -> float | None:
        """The share of the first docs that are cut."""
        return self.cut_docs / self.first_docs if self.first_docs else None

    def count(self, before: Ranking | None, after: Ranking, judged: Mapping[str, int]) -> None:
        """Takes a topic with two docs or more that the stage scored."""
        self.topics += 1
        self.one_score += len(set(after.own_scores.tolist())) == 1
        if before is not None:
            self.reordered += tuple(remaining(before, after)[1]) != after.doc_ids
        relevant = [judged.get(doc_id, 0) > 0 for doc_id in after.doc_ids[: after.scored]]
        if any(relevant) and not all(relevant):
            self.judged += 1
            self.reversed += bool(np.flatnonzero(relevant).mean() > (after.scored - 1) / 2)

    def count_cut(self, ranking: Ranking, is_cut: Mapping[str, bool]) -> None:
        """Takes which docs of a topic are cut."""
        first = ranking.doc_ids[: min(ranking.scored, _FIRST_DOCS)]
        self.first_docs += len(first)
        self.cut_docs += sum(is_cut[doc_id] for doc_id in first)


class StageReader:
    """Makes the rows of the stages that rank; shards arrive one by one."""

    def __init__(
        self,
        plan: Plan,
        stages: Sequence[Stage],
        relevance: Mapping[str, Mapping[str, int]],
        most_topics: float = math.inf,
    ) -> None:
        """Takes the stages, in order, the judgments, and how many topics suffice."""
        runs = [str(stage.run_name) for stage in stages]
        self._plan, self._relevance, self._most_topics = plan, relevance, most_topics
        self._rows = [
            (
                stage,
                StageRow(
                    stage.name, run, before, "checkpoint_digest" in plan.stage(stage.name).keys
                ),
            )
            for stage, run, before in zip(stages, runs, [None, *runs], strict=False)
        ]

    def add(self, parts: ShardParts) -> None:
        """Takes a shard."""
        for stage, row in self._rows:
            if row.topics >= self._most_topics:
                continue
            rankings, before = parts.rankings(stage.name), parts.before(stage.name) or {}
            # Runs can be written without what was stored of docs.
            with suppress(ReceiptError):
                if stage.tokens and row.topics < SAMPLE_TOPICS:
                    lengths = parts.part(stage.tokens, LENGTHS)
                    for query_id, is_cut in cut_docs(self._plan, stage, lengths).items():
                        if query_id in rankings:
                            row.count_cut(rankings[query_id], is_cut)
            for query_id, ranking in rankings.items():
                if ranking.scored > 1:
                    judged = self._relevance.get(query_id, {})
                    row.count(before.get(query_id), ranking, judged)

    def rows(
        self, statuses: Sequence[StageStatus], evaluations: Mapping[str, Evaluation]
    ) -> list[StageRow]:
        """A row for each stage, given the status of every stage of the plan, and the measures of
        each run; none without qrels.
        """
        rows = [row for _, row in self._rows]
        for row, (_, status, seconds) in zip(rows, stage_costs(self._plan, statuses), strict=False):
            row.inferences, row.seconds = status.inferences, seconds
        runs = [evaluations[row.run] for row in rows if evaluations]
        names = comparable(list(runs[0].means), len(runs[0].per_query)) if runs else []
        for measure in names[:1]:
            values = [run.per_query.of(measure) for run in runs]
            than_before = compare_all(values[1:], values)
            than_first = compare_all(values[1:], values[:1] * len(values))
            compared = zip([None, *than_before], [None, *than_first], strict=True)
            for row, run, comparisons in zip(rows, runs, compared, strict=True):
                row.measure, row.mean = measure, run.means[measure]
                row.than_before, row.than_first = comparisons
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
        return f"{last.run} changes {changed}, for better or worse (no judgments); {cost}"
    compared = {rows[0].run: last.than_first, last.before: last.than_before}
    verdicts = [f"{_verdict(one)} {run}" for run, one in compared.items()]
    return f"By {last.measure}, {last.run} is {' and '.join(verdicts)}; {cost}"


def _verdict(compared: Comparison) -> str:
    if compared.p_value is None or compared.p_value >= SIGNIFICANT:
        return "neither clearly better nor worse than"
    return "better than" if compared.difference > 0 else "worse than"
