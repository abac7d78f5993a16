"""Counts in the receipts of a stage that a user should know, in words."""

from collections.abc import Iterator
from dataclasses import dataclass

from beamrank.commit.receipts import Manifest
from beamrank.commit.status import StageStatus
from beamrank.formats.excluded import OWN_SHARE


@dataclass(frozen=True)
class _Reported:
    """One count; `of` names the counts that add up to its total, `named` adds the receipts' examples.

    A share of the total below `least` is not reported.
    """

    count: str
    of: tuple[str, ...]
    noun: str
    verb: str
    named: bool = False
    least: float = 0.0


# The join works shard by shard, so a doc that several shards need is counted in each of them.
_NEEDED = "docs (counted once for each shard that needs them)"
_REPORTED = (
    _Reported(
        "topics_without_candidates",
        ("topics",),
        "topics",
        "have no candidates: they keep their place but have no run lines",
        named=True,
    ),
    _Reported("excluded", (), "docs", "were left out of the candidates (exclude)"),
    _Reported(
        "own_docs",
        ("topics",),
        "topics",
        "have the doc of their own id among the first ten candidates: where topics are docs, as in ArguAna and "
        "Quora, `exclude: self` in the first stage leaves it out",
        least=OWN_SHARE,
    ),
    _Reported(
        "missing_docs",
        ("distinct_docs", "missing_docs"),
        _NEEDED,
        "are not in the corpus: dropped (on_missing_doc: drop)",
        named=True,
    ),
    _Reported("truncated_queries", ("queries",), "queries", "were truncated"),
    # Of the join, and of a stage that scores.
    _Reported("truncated_docs", ("distinct_docs",), _NEEDED, "were truncated"),
    _Reported("truncated_docs", ("candidates",), "query-document pairs", "had their doc truncated"),
    _Reported(
        "reused_docs",
        ("distinct_docs",),
        _NEEDED,
        "were not read from the corpus: their tokens were reused from an earlier run",
    ),
    _Reported("halvings", (), "batches", "were halved because memory ran out: scores may differ in the last digits"),
    _Reported("unusable_parts", (), "parts of earlier runs", "could not be read, so their scores were computed again"),
    _Reported(
        "parts_of_other_machines",
        (),
        "parts of earlier runs",
        "came from a different kind of machine than that of the worker, so their scores were computed again",
    ),
)


def cost_words(stage: StageStatus) -> Iterator[str]:
    """What the finished shards of a stage took; nothing if there are none."""
    if stage.done:
        yield f"{stage.seconds:,.1f} worker seconds"
    if stage.inferences or stage.reused:
        rates = {"per query": stage.inferences_per_query, "a second on one worker": stage.inferences_per_second}
        shown = ", ".join(f"{rate:,.1f} {unit}" for unit, rate in rates.items() if rate is not None)
        reused = f" and {stage.reused:,} reused from earlier runs" if stage.reused else ""
        yield f"{stage.inferences:,} inferences{reused} ({shown})"
    if stage.padding_share is not None:
        yield f"{stage.tokens:,} tokens ({stage.padding_share:.1%} padding)"


def count_lines(manifest: Manifest) -> Iterator[str]:
    """A line for each count that is not zero, with its share if every receipt has the counts of the total."""
    for each in _REPORTED:
        if not any(all(name in receipt.counts for name in each.of) for receipt in manifest.receipts):
            continue
        number = manifest.total(each.count)
        if number and number >= each.least * sum(map(manifest.total, each.of)):
            first = _first(manifest) if each.named else ""
            yield f"{manifest.stage}: {_shared(number, manifest, each)} {each.verb}{first}"


def _shared(number: int, manifest: Manifest, reported: _Reported) -> str:
    counted = all(name in receipt.counts for name in reported.of for receipt in manifest.receipts)
    total = sum(map(manifest.total, reported.of)) if counted else 0
    if not total:
        return f"{number:,} {reported.noun}"
    percent = 100 * number / total
    share = f"{percent:.1f} %" if percent >= 0.1 else "less than 0.1 %"
    return f"{number:,} of {total:,} {reported.noun} ({share})"


def _first(manifest: Manifest) -> str:
    examples = [example for receipt in manifest.receipts for example in receipt.examples][:3]
    return f" (first: {'; '.join(examples)})"
