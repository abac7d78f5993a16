"""What the conversions of collections share: they write a folder, and print its sizes."""

from typing import Annotated

import typer

from beamrank.nonfactoid.collection import Collection, write_collection
from beamrank.storage import files as storage
from pipelines.console.progress import ConsoleProgress
from pipelines.console.tables import print_result

CollectionOutput = Annotated[str, typer.Option(help="The folder to write; must not exist, or be empty.")]


def write_and_show(collection: Collection, output: str, result_format: str) -> None:
    """Writes a collection, and prints its sizes in words."""
    console = ConsoleProgress()
    stats = write_collection(collection, output)
    for what, count in collection.left_out.items():
        if count:
            console.note(f"left out: {what}: {count:,}")
    for line in stats.lines():
        console.note(f"note: {line}")
    print_result(stats.table(), stats.as_object(), result_format)
    console.note(f"wrote {output}: beamrank run {storage.join(output, 'config.yaml')}")
