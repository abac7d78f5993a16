"""`beamrank convert webap SOURCE`: WebAP as corpus, topics, qrels and configurations."""

from typing import Annotated

import typer

from beamrank.nonfactoid.collection import check_empty
from beamrank.nonfactoid.webap import read_webap
from pipelines.commands.arguments import ResultFormat
from pipelines.commands.convert.collection import CollectionOutput, write_and_show


def convert_webap(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="WebAP's folder, or the folder gradedText in it.")],
    output: CollectionOutput,
    seed: Annotated[int, typer.Option(min=0, help="Decides the lengths of the passages that are not relevant.")] = 0,
    result_format: ResultFormat = "table",
) -> None:
    """Convert WebAP: relevant spans, and other text in passages whose lengths are drawn from theirs."""
    check_empty(output)
    write_and_show(read_webap(source, seed), output, result_format)
