"""`beamrank convert nfl6|webap|wikipassageqa SOURCE`: corpus, topics, qrels and configurations in a folder."""

from typing import Annotated

import typer

from beamrank.storage import files as storage
from contrib.papers.collection import Collection, check_empty, write_collection
from contrib.papers.nfl6 import read_nfl6
from contrib.papers.webap import read_webap
from contrib.papers.wikipassageqa import read_wikipassageqa
from pipelines.commands.arguments import ResultFormat
from pipelines.console.progress import ConsoleProgress
from pipelines.console.tables import print_result

_Output = Annotated[str, typer.Option(help="The folder to write; must not exist, or be empty.")]


def convert_nfl6(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="nfL6.json, compressed or not.")],
    output: _Output,
    result_format: ResultFormat = "table",
) -> None:
    """Convert nfL6: Yahoo's non-factoid questions, each with one answer."""
    check_empty(output)
    _write(read_nfl6(source), output, result_format)


def convert_webap(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="WebAP's folder, or the folder gradedText in it.")],
    output: _Output,
    seed: Annotated[int, typer.Option(min=0, help="Decides the lengths of the passages that are not relevant.")] = 0,
    result_format: ResultFormat = "table",
) -> None:
    """Convert WebAP: relevant spans, and other text in passages whose lengths are drawn from theirs."""
    check_empty(output)
    _write(read_webap(source, seed), output, result_format)


def convert_wikipassageqa(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="The folder with document_passages.json and train, dev and test.tsv."),
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
