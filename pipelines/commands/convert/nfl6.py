"""`beamrank convert nfl6 SOURCE`: nfL6 as corpus, topics, qrels and configurations."""

from typing import Annotated

import typer

from beamrank.nonfactoid.collection import check_empty
from beamrank.nonfactoid.nfl6 import read_nfl6
from pipelines.commands.arguments import ResultFormat
from pipelines.commands.convert.collection import CollectionOutput, write_and_show


def convert_nfl6(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="nfL6.json, compressed or not.")],
    output: CollectionOutput,
    result_format: ResultFormat = "table",
) -> None:
    """Convert nfL6: Yahoo's non-factoid questions, each with one answer."""
    check_empty(output)
    write_and_show(read_nfl6(source), output, result_format)
