"""Table 3 of the multi-stage paper: judged docs whose rank changes most."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from beamrank.report.blocks import Block, Heading, Passage, marked_text
from beamrank.report.report import Report
from beamrank.report.stored.rank_changes import Opponent, RankChange


def blocks(report: Report) -> Sequence[Block]:
    """The passages of each step below its heading, with the query's words marked."""
    found: list[Block] = []
    steps = groupby(report.changes, key=lambda change: (change.before, change.after))
    for number, ((before, after), changes) in enumerate(steps, 1):
        passages = [_passage(report, change) for change in changes]
        found += [Heading(f"{before} → {after}: the {len(passages):,} largest", f"changes-{number}"), *passages]
    return found


def _passage(report: Report, change: RankChange) -> Passage:
    view = change.candidate
    query = report.topics.get(view.query_id, "")
    text = report.texts.get(view.doc_id)
    return Passage(
        f"{change.before} → {change.after}: rank {view.ranks[change.before]} → {view.ranks[change.after]}",
        [("query", f"{view.query_id}: {query}"), ("doc", view.doc_id), ("label", str(view.label)), *_facts(change)],
        [] if text is None else marked_text(text, query),
    )


def _facts(change: RankChange) -> Iterator[tuple[str, str]]:
    if change.candidate.truncated_by is not None:
        yield "truncated", change.candidate.truncated_by
    if not change.after.startswith("duo"):
        return
    opponents = (("strongest opponent", change.candidate.strongest), ("weakest opponent", change.candidate.weakest))
    yield from ((name, _opponent(each)) for name, each in opponents if each is not None)


def _opponent(each: Opponent) -> str:
    return f"{each.doc_id} (log-odds against it {each.log_odds:+.2f})"
