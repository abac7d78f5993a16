"""`beamrank convert wikipassageqa SOURCE`: WikiPassageQA as corpus, topics, qrels and configurations."""

from typing import Annotated

import typer

from beamrank.nonfactoid.collection import check_empty
from beamrank.nonfactoid.wikipassageqa import read_wikipassageqa
from pipelines.commands.arguments import ResultFormat
from pipelines.commands.convert.collection import CollectionOutput, write_and_show


def convert_wikipassageqa(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="The folder with document_passages.json and train, dev and test.tsv."),
    ],
    output: CollectionOutput,
    result_format: ResultFormat = "table",
) -> None:
    """Convert WikiPassageQA: the candidates of a question are all passages of its article."""
    check_empty(output)
    write_and_show(read_wikipassageqa(source), output, result_format)
