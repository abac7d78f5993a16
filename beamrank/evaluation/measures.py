"""The measures that beamrank computes, by their ir_measures names; trec_eval's names are
translated.

ir_measures computes them for one ranking of a query. Those that the positions of judged docs
suffice for are also computed in NumPy, for thousands of rankings of the same candidates at once:
the values are the same but for the last digits.
"""

import difflib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import ir_measures
import numpy as np
from ir_measures.measures import registry
from ir_measures.providers import FallbackProvider
from numpy.typing import NDArray

from beamrank.errors import ConfigError
from beamrank.formats.schemas import MAX_RELEVANCE
from beamrank.records import Relevance

Measure: TypeAlias = Any
Floats: TypeAlias = NDArray[np.float64]
Positions: TypeAlias = NDArray[np.int64]

# The providers that need only a wheel. gdeval (ERR, nDCG with exponential gains) rewrites topic ids
# and refuses negative relevance; accuracy leaves topics out of its mean.
_PROVIDERS = (ir_measures.pytrec_eval, ir_measures.compat, ir_measures.judged, ir_measures.msmarco)
_FALLBACK: Any = FallbackProvider(_PROVIDERS)  # type: ignore[no-untyped-call]
DEFAULT_MEASURES = ("RR@10", "nDCG@10", "AP", "R@1000")
# Of run files that are compared: some systems retrieve docs that nobody has judged.
COMPARED_MEASURES = (*DEFAULT_MEASURES, "Judged@10")
_IN_NO_RUN = " "
_NO_CUTOFF = 1 << 40
_LONGEST_NAME = 1000
_NAMES = sorted(
    {str(measure.NAME) for one in _PROVIDERS for measure in one.SUPPORTED_MEASURES}, key=str.lower
)
_POSSIBLE = f"possible are {', '.join(_NAMES)} (docs/reference/measures.md)"
_BY_POSITION = {"RR", "P", "R", "Success", "AP", "nDCG", "Judged"}

# The cutoff is a C long, `rel` a C int, and trec_eval's name for SetF has no room for an exponent
# of beta.
_RANGES: dict[str, tuple[float, float]] = {
    "cutoff": (1, 1_000_000_000),
    "rel": (1, MAX_RELEVANCE),
    "recall": (0, 1),
    "p": (0, 1),
    "beta": (0.001, 1000),
}
# trec_eval writes a measure's numbers after a dot or an underscore: P_10, ndcg_cut.10,100,
# iprec_at_recall_0.10.
# Forms of Python, such as 1_0 and 0x10.
_ODD_NUMBER = re.compile(r"[0-9]_[0-9]|\b0[xob]", re.IGNORECASE)
_TREC_NAME = re.compile(r"([A-Za-z]+(?:_[A-Za-z]+)*)(?:[._](\d+(?:\.\d+)?(?:,\d+(?:\.\d+)?)*))?")


def split_measures(text: str) -> list[str]:
    """The names in a list that is separated by white space or commas.

    A comma inside parentheses, or before a number (trec_eval's `ndcg_cut.10,100`), is not a
    separator.
    """
    return [
        name for name in re.split(r"(?:\s|,(?!\d+(?:\.\d+)?(?:[\s,]|$)))+(?![^(]*\))", text) if name
    ]


def parse_measures(names: Sequence[str]) -> dict[str, Measure]:
    """The measures by their names: ir_measures names as they are, trec_eval's names translated.

    Raises:
        ConfigError: a name is not a measure that beamrank computes, or there is none.
    """
    if not names:
        raise ConfigError('there are no measures: give some, such as "RR@10 nDCG@10 AP R@1000"')
    return {name: _parse(name) for given in names for name in _translate(given)}


def explain_names(names: Sequence[str]) -> list[str]:
    """The ir_measures names of trec_eval's names among these, a line each."""
    translated = {name: _translate(name) for name in names}
    return [
        f"{name} is trec_eval's name for {', '.join(meant)}"
        for name, meant in translated.items()
        if meant != [name]
    ]


def iter_values(
    measures: Sequence[Measure],
    relevance: Relevance,
    scores: Mapping[str, Mapping[str, float]],
) -> Iterator[tuple[str, Measure, float]]:
    """Yields query_id, measure and value for each topic of `relevance`; topics without scores get
    the default.

    Measures with parameters are computed one at a time: ir_measures lets nDCG and NumRet share a
    call with others whose `gains`, `rel` or `judged_only` then count for them too. IPrec is our
    own: pytrec_eval has trec_eval 9's.
    """
    precisions = [measure for measure in measures if measure.NAME == "IPrec"]
    others = [measure for measure in measures if measure.NAME != "IPrec"]
    plain = [measure for measure in others if set(measure.params) <= {measure.AT_PARAM}]
    # pytrec_eval takes a topic with the id `no_query` for the last one of its call before: with a
    # prefix none has it. If all judgments are negative, trec_eval reads and writes outside its
    # array of levels: it crashes, or counts with the levels of the previous topic. A doc of level 0
    # that no run can hold prevents that, and changes no value.
    judged = {
        f"q{query_id}": docs if max(docs.values(), default=0) >= 0 else {**docs, _IN_NO_RUN: 0}
        for query_id, docs in relevance.items()
    }
    ranked = {f"q{query_id}": docs for query_id, docs in scores.items()}
    groups = [plain, *([measure] for measure in others if measure not in plain)]
    for group in filter(None, groups):
        for metric in _FALLBACK.evaluator(group, judged).iter_calc(ranked):
            yield metric.query_id[1:], metric.measure, float(metric.value)
    for measure in precisions:
        for query_id, judgments in relevance.items():
            yield (
                query_id,
                measure,
                _interpolated_precision(measure, judgments, scores.get(query_id, {})),
            )


def _interpolated_precision(
    measure: Measure, judgments: Mapping[str, int], scores: Mapping[str, float]
) -> float:
    """IPrec of one topic as in trec_eval 10: the best precision at or below the rank that reaches a
    recall.

    Version 10 rounds the number of relevant docs of a recall; version 9 truncated it after adding
    0.9.
    """
    relevant = {doc_id for doc_id, level in judgments.items() if level >= measure["rel"]}
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    if measure["judged_only"]:
        ranked = [doc_id for doc_id in ranked if judgments.get(doc_id, -1) >= 0]
    needed = _relevant_at(measure["recall"], len(relevant))
    best, hits = 0.0, 0
    for rank, doc_id in enumerate(ranked, 1):
        if doc_id in relevant:
            hits += 1
            if hits >= needed:
                best = max(best, hits / rank)
    return best


def differs_in_version_9(measures: Mapping[str, Measure], relevance: Relevance) -> list[str]:
    """The names of measures that read a different rank in trec_eval 9 for a topic: IPrec of some
    recalls.
    """
    precisions = {name: measure for name, measure in measures.items() if measure.NAME == "IPrec"}
    counts = {
        level: Counter(
            sum(relevance_of >= level for relevance_of in docs.values())
            for docs in relevance.values()
        )
        for level in {measure["rel"] for measure in precisions.values()}
    }
    return [
        name
        for name, measure in precisions.items()
        if any(
            _relevant_at(measure["recall"], count) != int(measure["recall"] * count + 0.9)
            for count in counts[measure["rel"]]
        )
    ]


def _relevant_at(recall: float, relevant: int) -> int:
    """How many relevant docs have this recall, as in trec_eval 10."""
    return math.floor(recall * relevant + 0.5)


def _translate(name: str) -> list[str]:
    """The ir_measures names of a name of trec_eval, which can mean several measures; any other name
    as it is.
    """
    # It is slow to import, and not every command evaluates.
    import pytrec_eval

    if name in pytrec_eval.supported_nicknames:
        raise ConfigError(
            f"{name!r} is a set of measures in trec_eval: name the measures that you want; "
            f"{_POSSIBLE}"
        )
    match = _TREC_NAME.fullmatch(name)
    base = match[1] if match else name
    if base not in pytrec_eval.supported_measures:
        return [name]
    try:
        parsed = ir_measures.parse_trec_measure(base)
    except ValueError as error:
        raise ConfigError(
            f"trec_eval's measure {name!r} cannot be computed here; {_POSSIBLE}"
        ) from error
    try:
        return [str(measure) for measure in ir_measures.parse_trec_measure(name)]
    except ValueError as error:
        raise ConfigError(
            f"measure {name!r}: trec_eval's {base} takes no such number; without it, it is "
            f"{parsed[0]}"
        ) from error


def _parse(name: str) -> Measure:
    if len(name) > _LONGEST_NAME:
        raise ConfigError(
            f"measure {name[:_LONGEST_NAME]!r}... is longer than {_LONGEST_NAME} characters"
        )
    parameters = re.findall(r"[(,]\s*(\w+)\s*=", name)
    if len(parameters) > len(set(parameters)):
        raise ConfigError(
            f"measure {name!r}: a parameter appears twice; write it like nDCG@10 or P(rel=2)@5"
        )
    if _ODD_NUMBER.search(name):
        raise ConfigError(
            f"measure {name!r}: a number is not written in plain digits; write it like nDCG@10"
        )
    try:
        measure: Measure = ir_measures.parse_measure(name)
        measure.validate_params()
    except NameError as error:
        raise ConfigError(f"unknown measure {name!r}{_suggest(name)}; {_POSSIBLE}") from error
    except (ValueError, AssertionError, TypeError, KeyError, MemoryError, RecursionError) as error:
        reason = (
            f"{name}@ needs a number"
            if "<object object" in str(error)
            else str(error) or "too deeply nested"
        )
        raise ConfigError(
            f"measure {name!r}: {reason}; write it like nDCG@10 or P(rel=2)@5"
        ) from error
    # ir_measures accepts parameters that its providers cannot compute; some would end the process.
    for parameter, (low, high) in _RANGES.items():
        value = measure.params.get(parameter, high)
        if isinstance(value, bool) or not low <= value <= high:
            raise ConfigError(
                f"measure {name!r}: {parameter} must be between {low:,} and {high:,}, not {value!r}"
            )
    levels = [level for pair in measure.params.get("gains", {}).items() for level in pair]
    if not all(type(level) is int and 0 <= level <= MAX_RELEVANCE for level in levels):
        raise ConfigError(
            f"measure {name!r}: gains must map whole numbers to whole numbers, from 0 to "
            f"{MAX_RELEVANCE:,}, like "
            "nDCG(gains={1:1,2:3})@10"
        )
    if not _FALLBACK.supports(measure):
        raise ConfigError(
            f"measure {name!r} (or one of its parameters) cannot be computed here; {_POSSIBLE}"
        )
    return measure


def _suggest(name: str) -> str:
    """The closest name."""
    stem = re.split(r"[@(]", name)[0]
    computable = {
        alias: str(measure.NAME) for alias, measure in registry.items() if measure.NAME in _NAMES
    }
    by_lower = {
        alias.lower(): canonical if canonical.lower() == alias.lower() else alias
        for alias, canonical in computable.items()
    }
    close = difflib.get_close_matches(stem.lower(), by_lower, n=1)
    return f": did you mean {by_lower[close[0]]}{name[len(stem) :]}?" if close else ""


def by_position(names: Sequence[str]) -> tuple[dict[str, Measure], list[str]]:
    """The measures that can be computed from positions, by name, and the names of the others."""
    measures = parse_measures(names)
    drawn = {
        name: measure
        for name, measure in measures.items()
        if measure.NAME in _BY_POSITION and set(measure.params) <= {"cutoff", "rel"}
    }
    return drawn, [name for name in measures if name not in drawn]


class JudgedPositions(NamedTuple):
    """The places of a query's j judged docs in p rankings of the same n candidates.

    Attributes:
        levels: int64[j], their relevance.
        positions: int64[j, p], from 1.
        depth: n.
        all_levels: the relevance of all judged docs of the query, candidates or not.
    """

    levels: Positions
    positions: Positions
    depth: int
    all_levels: Positions

    def values(self, measure: Measure) -> Floats:
        """A measure of each ranking. float64[p]."""
        return np.asarray(self._values(measure), np.float64)

    def _values(self, measure: Measure) -> Any:
        cutoff, rel = measure.params.get("cutoff", _NO_CUTOFF), measure.params.get("rel", 1)
        within = self.positions <= cutoff
        hits = (self.levels >= rel)[:, None] & within
        relevant = max(int((self.all_levels >= rel).sum()), 1)
        match measure.NAME:
            case "RR":
                return np.where(hits, 1.0 / self.positions, 0.0).max(axis=0, initial=0.0)
            case "P":
                return hits.sum(axis=0) / cutoff
            case "R":
                return hits.sum(axis=0) / relevant
            case "Success":
                return hits.any(axis=0)
            case "Judged":
                return within.sum(axis=0) / max(min(cutoff, self.depth), 1)
            case "AP":
                places = np.sort(self.positions[self.levels >= rel], axis=0)
                precisions = np.arange(1, len(places) + 1)[:, None] / places
                return np.where(places <= cutoff, precisions, 0.0).sum(axis=0) / relevant
        gains = np.maximum(self.levels, 0)[:, None]
        gained = np.where(within, gains / np.log2(self.positions + 1), 0.0).sum(axis=0)
        ideal = np.sort(np.maximum(self.all_levels, 0))[::-1][:cutoff]
        best = float((ideal / np.log2(np.arange(2, len(ideal) + 2))).sum())
        return gained / best if best else np.zeros_like(gained)


def judged_positions(
    judgments: Mapping[str, int],
    doc_ids: Sequence[str],
    positions: Callable[[Positions], Positions],
) -> JudgedPositions:
    """Positions of the judged docs among candidates; `positions` maps the indices of j of them to
    int64[j, p].
    """
    indices = np.array(
        [index for index, doc_id in enumerate(doc_ids) if doc_id in judgments], np.int64
    )
    levels = np.array([judgments[doc_ids[index]] for index in indices], np.int64)
    return JudgedPositions(
        levels, positions(indices), len(doc_ids), np.array(list(judgments.values()), np.int64)
    )
