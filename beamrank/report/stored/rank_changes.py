"""Docs whose rank changes most from stage to stage, and a query's candidates side by side."""

import heapq
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from beamrank.ranking.aggregation import aggregate
from beamrank.report.stored.scores import StoredQuery
from beamrank.report.stored.stage_measures import stage_orders
from beamrank.report.stored.truncation import Truncated


class Opponent(NamedTuple):
    """A doc that another was compared with, and the log-odds of being more relevant than it."""

    doc_id: str
    log_odds: float


@dataclass(frozen=True)
class CandidateView:
    """A candidate of a query.

    Attributes:
        label: its relevance; None without a judgment.
        ranks: by the name of each run, from 1.
        scores: by the name of each run that scored it.
        strongest: the opponent that it is least likely to be above; None unless duo compared it.
        weakest: the opponent that it is most likely to be above.
        truncated: the models that read only the beginning of the doc; None if that is unknown.
    """

    query_id: str
    doc_id: str
    label: int | None
    ranks: dict[str, int]
    scores: dict[str, float]
    strongest: Opponent | None = None
    weakest: Opponent | None = None
    truncated: tuple[str, ...] | None = None

    @property
    def relevant(self) -> bool:
        """Whether its label is above 0."""
        return self.label is not None and self.label > 0

    @property
    def truncated_by(self) -> str | None:
        """The same for a reader: `no`, or the models."""
        return None if self.truncated is None else ", ".join(self.truncated) or "no"

    def with_truncation(self, truncated: Truncated) -> "CandidateView":
        """The candidate with the models that truncate its doc, as far as they scored it."""
        models = truncated.get((self.query_id, self.doc_id))
        scored = {run.partition("-")[0] for run in self.scores}
        return self if models is None else replace(self, truncated=tuple(each for each in models if each in scored))


@dataclass(frozen=True)
class RankChange:
    """A judged doc that two stages rank differently."""

    before: str
    after: str
    candidate: CandidateView

    @property
    def places(self) -> int:
        """How many places it gains; negative if it loses."""
        return self.candidate.ranks[self.before] - self.candidate.ranks[self.after]

    def with_truncation(self, truncated: Truncated) -> "RankChange":
        """See `CandidateView.with_truncation`."""
        return replace(self, candidate=self.candidate.with_truncation(truncated))


def candidate_views(
    query: StoredQuery,
    judgments: Mapping[str, int],
    runs: Sequence[str],
    aggregations: Sequence[str],
    only: Container[str] | None = None,
) -> list[CandidateView]:
    """The candidates of a query, best first in its last stage.

    Args:
        query: its stored scores.
        judgments: the relevance of its docs.
        runs: the names of the runs, in the order of `stage_orders`.
        aggregations: see `stage_orders`.
        only: leaves out other docs.
    """
    orders = stage_orders(query, aggregations)
    chosen = [place for place in orders[-1].tolist() if only is None or query.doc_ids[place] in only]
    ranks: dict[int, dict[str, int]] = {place: {} for place in chosen}
    for run, order in zip(runs, orders, strict=False):
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(1, len(order) + 1)
        for place in chosen:
            ranks[place][run] = int(rank[place])
    scores = _scores(query, runs, aggregations, chosen)
    met = _opponents(query, chosen)
    return [
        CandidateView(
            query.query_id,
            query.doc_ids[place],
            judgments.get(query.doc_ids[place]),
            ranks[place],
            scores[place],
            *met.get(place, (None, None)),
        )
        for place in chosen
    ]


def shown_views(views: Sequence[CandidateView], count: int) -> list[CandidateView]:
    """The first candidates of a query, and as many relevant ones that are further below."""
    return [*views[:count], *[view for view in views[count:] if view.relevant][:count]]


class LargestChanges:
    """Keeps the judged docs whose rank changes most in a step, from one run to another."""

    def __init__(self, steps: Iterable[tuple[str, str]], count: int) -> None:
        """Takes the names of the runs before and after each step, and how many changes to keep for each."""
        self._steps = list(steps)
        self._count = count
        self._kept: dict[str, list[tuple[int, str, str, CandidateView]]] = {}

    def add(self, views: Sequence[CandidateView]) -> None:
        """Takes the candidates of a query."""
        for before, after in self._steps:
            kept = self._kept.setdefault(after, [])
            for view in views:
                if view.label is None or not {before, after} <= view.ranks.keys():
                    continue
                entry = (abs(view.ranks[before] - view.ranks[after]), view.query_id, view.doc_id, view)
                if not entry[0]:
                    continue
                if len(kept) < self._count:
                    heapq.heappush(kept, entry)
                elif entry[:3] > kept[0][:3]:
                    heapq.heapreplace(kept, entry)

    def found(self) -> Iterator[RankChange]:
        """The largest changes of each step, largest first."""
        for before, after in self._steps:
            for *_, view in sorted(self._kept.get(after, ()), key=lambda each: (-each[0], each[1], each[2])):
                yield RankChange(before, after, view)


def _scores(
    query: StoredQuery, runs: Sequence[str], aggregations: Sequence[str], chosen: Sequence[int]
) -> dict[int, dict[str, float]]:
    found = {place: {runs[0]: float(query.first_scores[place])} for place in chosen}
    if query.mono_scores is not None:
        for place in chosen:
            if not np.isnan(query.mono_scores[place]):
                found[place][runs[1]] = float(query.mono_scores[place])
    if query.z is not None and query.compared is not None:
        for run, name in zip(runs[2:], aggregations, strict=False):
            for place, score in zip(query.compared.tolist(), aggregate(query.z, name).tolist(), strict=True):
                if place in found:
                    found[place][run] = score
    return found


def _opponents(query: StoredQuery, chosen: Sequence[int]) -> dict[int, tuple[Opponent, Opponent]]:
    """The strongest and the weakest opponent of each candidate that met one."""
    found: dict[int, tuple[Opponent, Opponent]] = {}
    if query.z is None or query.compared is None:
        return found
    wanted = set(chosen)
    z = query.z.astype(np.float64)
    np.fill_diagonal(z, np.nan)
    for row, place in enumerate(query.compared.tolist()):
        if place in wanted and not np.isnan(z[row]).all():
            strongest, weakest = (
                Opponent(query.doc_ids[query.compared[column]], float(z[row, column]))
                for column in (int(np.nanargmin(z[row])), int(np.nanargmax(z[row])))
            )
            found[place] = strongest, weakest
    return found
