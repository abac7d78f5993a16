"""The candidates of a query side by side in several runs, docs whose rank changes most, and scores by label."""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from beamrank.ranking.rankings import Ranking, Rankings

# The scores of a run by label; None is that of docs without judgment.
Scores: TypeAlias = dict[int | None, NDArray[np.float32]]


@dataclass(frozen=True)
class CandidateView:
    """A candidate of a query.

    Attributes:
        label: its relevance; None without a judgment.
        ranks: by the name of each run, from 1.
        scores: by the name of each run that scored it.
        details: what its stage shows of it beside, by the name of each run: of pairs the `strongest` and the
            `weakest` opponent, a doc_id with the log-odds of being more relevant than it.
        truncated: the stages whose model reads only the beginning of the doc; None if that is unknown.
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


def of_query(rankings: Mapping[str, Rankings], query_id: str) -> dict[str, Ranking]:
    """A query's ranking in each run that has it."""
    return {run: each[query_id] for run, each in rankings.items() if query_id in each}


def candidate_views(
    query_id: str, rankings: Mapping[str, Ranking], judgments: Mapping[str, int], only: Collection[str] | None = None
) -> list[CandidateView]:
    """The docs of a query in the order of the last run; those that it lacks follow, in the order of the one before.

    `judgments` are of its docs; `only` leaves out other docs.
    """
    places = {
        run: [(place, doc_id) for place, doc_id in enumerate(ranking.doc_ids) if only is None or doc_id in only]
        for run, ranking in rankings.items()
    }
    order = dict.fromkeys(doc_id for run in reversed(places) for _, doc_id in places[run])
    views = {doc_id: CandidateView(query_id, doc_id, judgments.get(doc_id), {}, {}) for doc_id in order}
    for run, ranking in rankings.items():
        for place, doc_id in places[run]:
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
            changes = [RankChange(before, after, view) for view in views if {before, after} <= view.ranks.keys()]
            kept[:] = heapq.nlargest(self._count, [*kept, *(each for each in changes if each.places)], key=_size)

    def found(self) -> list[RankChange]:
        """The largest changes of each step, largest first."""
        return [
            change
            for kept in self._kept.values()
            for change in sorted(kept, key=lambda each: (-_size(each)[0], *_size(each)[1:]))
        ]


def _size(change: RankChange) -> tuple[int, str, str]:
    return abs(change.places), change.candidate.query_id, change.candidate.doc_id


class ScoresByLabel:
    """Collects the scores of runs whose queries arrive one by one."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[int | None, list[NDArray[np.float32]]]] = {}

    def add(self, run: str, ranking: Ranking, judgments: Mapping[str, int]) -> None:
        """Takes the scores of a query's docs; no picture has one that is not finite."""
        scores = ranking.scores[: ranking.scored]
        labels = list(map(judgments.get, ranking.doc_ids[: ranking.scored]))
        for label in {*labels}:
            values = scores[[each == label for each in labels]]
            found = values[np.isfinite(values)].astype(np.float32)
            if len(found):
                self._parts.setdefault(run, {}).setdefault(label, []).append(found)

    def found(self) -> dict[str, Scores]:
        """The scores by run and label."""
        return {
            run: {label: np.concatenate(parts) for label, parts in by_label.items()}
            for run, by_label in self._parts.items()
        }
