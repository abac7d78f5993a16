"""`beamrank convert nfl6|squad|webap|wikipassageqa`, and `beamrank add-relevant`: data as Mass et
al. 2019 measure with it.
"""

from collections.abc import Mapping
from typing import Annotated

import typer

from beamrank.formats.qrels import read_qrels
from beamrank.formats.run_order import Run
from beamrank.formats.run_writer import Ranking
from beamrank.formats.runs import read_run
from beamrank.storage import files as storage
from contrib.papers.collection import Collection, check_empty, write_collection
from contrib.papers.questions import read_nfl6, read_wikipassageqa
from contrib.papers.squad import read_squad
from contrib.papers.webap import read_webap
from pipelines.commands.arguments import (
    ResultFormat,
    check_run_output,
    qrels_option,
    write_result_run,
)
from pipelines.console.progress import ConsoleProgress
from pipelines.console.tables import print_result

HELP_PANEL = "Data and models"

_TAG = "with-relevant"
_Output = Annotated[str, typer.Option(help="The folder to write; must not exist, or be empty.")]


def convert_nfl6(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="nfL6.json, compressed or not.")],
    output: _Output,
    result_format: ResultFormat = "table",
) -> None:
    """Convert nfL6: Yahoo's non-factoid questions, each with one answer."""
    check_empty(output)
    _write(read_nfl6(source), output, result_format)


def convert_squad(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="SQuAD's JSON, 1.1 or 2.0, compressed or not.")
    ],
    output: _Output,
    result_format: ResultFormat = "table",
) -> None:
    """Convert SQuAD: paragraphs are docs, and the one with a question's answer is relevant."""
    check_empty(output)
    _write(read_squad(source), output, result_format)


def convert_webap(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="WebAP's folder, or the folder gradedText in it."),
    ],
    output: _Output,
    seed: Annotated[
        int, typer.Option(min=0, help="Key the lengths of the passages that are not relevant.")
    ] = 0,
    result_format: ResultFormat = "table",
) -> None:
    """Convert WebAP: relevant spans, and other text in passages whose lengths are drawn from
    theirs.
    """
    check_empty(output)
    _write(read_webap(source, seed), output, result_format)


def convert_wikipassageqa(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="The folder with document_passages.json and train, dev and test.tsv.",
        ),
    ],
    output: _Output,
    result_format: ResultFormat = "table",
) -> None:
    """Convert WikiPassageQA: the candidates of a question are all passages of its article."""
    check_empty(output)
    _write(read_wikipassageqa(source), output, result_format)


def _write(collection: Collection, output: str, result_format: str) -> None:
    console = ConsoleProgress()
    stats = write_collection(collection, output)
    for what, count in collection.left_out.items():
        if count:
            console.note(f"left out: {what}: {count:,}")
    for line in stats.lines():
        console.note(f"note: {line}")
    print_result(stats.table(), stats.as_object(), result_format)
    first = next(name for name in ("bm25.yaml", "config.yaml") if name in collection.configs)
    console.note(f"wrote {output}: beamrank run {storage.join(output, first)}")


def add_relevant(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="The candidates: a TREC or MS MARCO run.")
    ],
    qrels: Annotated[str, qrels_option("The judgments of the queries.")],
    k: Annotated[
        int, typer.Option(min=1, help="The depth: a query needs a relevant doc among its first k.")
    ],
    output: Annotated[
        str,
        typer.Option(
            help="The TREC run to write: a path or a URL; compressed if named .gz, .bz2, .xz or "
            ".zst."
        ),
    ],
) -> None:
    """Add a relevant doc to the candidates of each query that has none. It flatters every measure.
    Prints the path.
    """
    check_run_output(output, [run])
    console = ConsoleProgress()
    candidates, judged = read_run(run, ties="rank"), read_qrels(qrels)
    for line in (*candidates.notes.lines(), *judged.notes.lines()):
        console.note(f"note: {line}")
    rankings = with_relevant(candidates, judged.relevance, k)
    added = sum(rankings[query_id] != _rows(candidates, query_id) for query_id in rankings)
    console.note(
        f"{added:,} of {len(rankings):,} queries got a relevant doc: all measures are flattered"
    )
    write_result_run(output, rankings, _TAG, [{"name": _TAG, "run": run, "qrels": qrels, "k": k}])


def with_relevant(
    run: Run, relevance: Mapping[str, Mapping[str, int]], k: int
) -> dict[str, Ranking]:
    """The candidates of each query, a relevant doc among the first k: section 4.2 of Mass et al.
    2019.

    A re-ranker is measured as if the first stage had found a relevant doc for each query.

    Where none is, the first relevant doc by doc_id takes the place and the score of the one at rank
    k, whose successors are left out; or it follows the last candidate. A query that the run lacks
    gets this doc only.

    Args:
        run: the candidates.
        relevance: the relevance of the judged docs of each query.
        k: the depth.
    """
    rankings: dict[str, Ranking] = {}
    for query_id in sorted({*run.order, *relevance}):
        rows = _rows(run, query_id)
        relevant = {doc_id for doc_id, level in relevance.get(query_id, {}).items() if level > 0}
        if relevant and relevant.isdisjoint(doc_id for doc_id, _ in rows[:k]):
            score = rows[k - 1][1] if len(rows) >= k else rows[-1][1] - 1 if rows else 0.0
            rows = [*rows[: k - 1], (min(relevant), score)]
        if rows:
            rankings[query_id] = rows
    return rankings


def _rows(run: Run, query_id: str) -> list[tuple[str, float]]:
    return list(zip(run.order.get(query_id, ()), run.scores.get(query_id, ()), strict=True))
