"""The candidates of a query side by side in several runs, docs whose rank changes most, and scores by label."""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from beamrank.ranking.rankings import Rankings

# The scores of a run by label; None is that of docs without judgment.
Scores: TypeAlias = dict[int | None, NDArray[np.float32]]
# The docs of a query, best first, and the scores of those that were scored: of the first of them.
Ranked: TypeAlias = tuple[Sequence[str], Sequence[float] | NDArray[Any]]


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
    def relevant(self) -> bool:
        """Whether its label is above 0."""
        return self.label is not None and self.label > 0

    @property
    def truncated_by(self) -> str | None:
        """The same for a reader: `no`, or the stages."""
        return None if self.truncated is None else ", ".join(self.truncated) or "no"


@dataclass(frozen=True)
class RankChange:
    """A judged doc that two runs rank differently."""

    before: str
    after: str
    candidate: CandidateView

    @property
    def places(self) -> int:
        """How many places it gains; negative if it loses."""
        return self.candidate.ranks[self.before] - self.candidate.ranks[self.after]


def of_query(rankings: Mapping[str, Rankings], query_id: str) -> dict[str, Ranked]:
    """A query's docs in each run, with the scores of those that its stage scored."""
    found = {run: each[query_id] for run, each in rankings.items() if query_id in each}
    return {run: (each.doc_ids, each.scores[: each.scored]) for run, each in found.items()}


def candidate_views(
    query_id: str, rankings: Mapping[str, Ranked], judgments: Mapping[str, int], only: Collection[str] | None = None
) -> list[CandidateView]:
    """The docs of a query in the order of the last run; those that it lacks follow, in the order of the one before.

    Args:
        query_id: the query's.
        rankings: of each run, by its name.
        judgments: the relevance of its docs.
        only: leaves out other docs.
    """
    places = {
        run: [(place, doc_id) for place, doc_id in enumerate(doc_ids) if only is None or doc_id in only]
        for run, (doc_ids, _) in rankings.items()
    }
    order = dict.fromkeys(doc_id for run in reversed(places) for _, doc_id in places[run])
    views = {doc_id: CandidateView(query_id, doc_id, judgments.get(doc_id), {}, {}) for doc_id in order}
    for run, (_, scores) in rankings.items():
        for place, doc_id in places[run]:
            views[doc_id].ranks[run] = place + 1
            if place < len(scores):
                views[doc_id].scores[run] = float(scores[place])
    return list(views.values())


def shown_views(views: Sequence[CandidateView], count: int) -> list[CandidateView]:
    """The first candidates of a query, and as many relevant ones that are further below."""
    return [*views[:count], *[view for view in views[count:] if view.relevant][:count]]


class LargestChanges:
    """Keeps the judged docs whose rank changes most in a step, from one run to another."""

    def __init__(self, steps: Iterable[tuple[str, str]], count: int) -> None:
        """Takes the names of the runs before and after each step, and how many changes to keep for each."""
        self._count = count
        self._kept: dict[tuple[str, str], list[RankChange]] = {step: [] for step in steps}

    def add(self, views: Sequence[CandidateView]) -> None:
        """Takes the judged candidates of a query."""
        for (before, after), kept in self._kept.items():
            changes = [RankChange(before, after, view) for view in views if {before, after} <= view.ranks.keys()]
            kept[:] = heapq.nlargest(self._count, [*kept, *(change for change in changes if change.places)], key=_size)

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

    def add(self, run: str, ranked: Ranked, judgments: Mapping[str, int]) -> None:
        """Takes the scores of a query's docs; no picture has one that is not finite."""
        doc_ids, scores = ranked
        values = np.asarray(scores, np.float64)
        labels: dict[int, list[int]] = {}
        for place in (place for place, doc_id in enumerate(doc_ids[: len(values)]) if doc_id in judgments):
            labels.setdefault(judgments[doc_ids[place]], []).append(place)
        unjudged = np.ones(len(values), bool)
        unjudged[[place for places in labels.values() for place in places]] = False
        by_label = {None: values[unjudged]} | {label: values[places] for label, places in labels.items()}
        for label, each in by_label.items():
            found = each[np.isfinite(each)].astype(np.float32)
            if len(found):
                self._parts.setdefault(run, {}).setdefault(label, []).append(found)

    def found(self) -> dict[str, Scores]:
        """The scores by run and label."""
        return {
            run: {label: np.concatenate(parts) for label, parts in by_label.items()}
            for run, by_label in self._parts.items()
        }
