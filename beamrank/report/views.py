"""The candidates of a query side by side in several runs, docs whose rank changes most, and scores by label."""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

# The scores of a run by label; None is that of docs without judgment.
Scores: TypeAlias = dict[int | None, NDArray[np.float32]]
# The docs of a query, best first, and the scores of those that were scored: of the first of them.
Ranked: TypeAlias = tuple[Sequence[str], Sequence[float] | NDArray[Any]]


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
        strongest: the opponent that it is least likely to be above; None unless it was compared in pairs.
        weakest: the opponent that it is most likely to be above.
        truncated: the stages whose model reads only the beginning of the doc; None if that is unknown.
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

    def of(self, candidates: Mapping[tuple[str, str], CandidateView]) -> "RankChange":
        """The change with the view that has its query_id and doc_id."""
        return replace(self, candidate=candidates[self.candidate.query_id, self.candidate.doc_id])


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
        self._kept: dict[tuple[str, str], list[tuple[int, str, str, CandidateView]]] = {step: [] for step in steps}

    def add(self, views: Sequence[CandidateView]) -> None:
        """Takes the judged candidates of a query."""
        for (before, after), kept in self._kept.items():
            for view in views:
                if before not in view.ranks or after not in view.ranks:
                    continue
                entry = (abs(view.ranks[before] - view.ranks[after]), view.query_id, view.doc_id, view)
                if not entry[0]:
                    continue
                if len(kept) < self._count:
                    heapq.heappush(kept, entry)
                elif kept and entry[:3] > kept[0][:3]:
                    heapq.heapreplace(kept, entry)

    def found(self) -> Iterator[RankChange]:
        """The largest changes of each step, largest first."""
        for (before, after), kept in self._kept.items():
            for *_, view in sorted(kept, key=lambda each: (-each[0], each[1], each[2])):
                yield RankChange(before, after, view)


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
