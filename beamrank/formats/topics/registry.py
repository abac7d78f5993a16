"""The topics formats. A new one is a function, in a file beside this one, and its line in `FORMATS`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

from beamrank.formats.corpora.readers import tsv
from beamrank.formats.topics import lines, trec
from beamrank.section import OneOf, Path, Section


@dataclass(frozen=True)
class TopicsFormat:
    """A topics format.

    Attributes:
        parse: the id and the text of one topic; raises RowError if it has none.
        split: the topics of a file, each with the line on which it begins.
        noun: the unit of such a file that holds a topic, for messages.
        file_in_folder: the one file that a folder of this format holds.
        looks_like: formats that a file of this one may look like (formats/guess.py).
    """

    parse: Callable[[str], tuple[str, str]]
    split: Callable[[bytes], Iterator[tuple[int, bytes]]] = lines.split
    noun: str = "line"
    file_in_folder: str | None = None
    looks_like: frozenset[str] = frozenset()


FORMATS: dict[str, TopicsFormat] = {
    "beir": TopicsFormat(lines.parse_beir, file_in_folder="queries.jsonl"),
    "car": TopicsFormat(lines.parse_car),
    "jsonl": TopicsFormat(lines.parse_json, looks_like=frozenset({"beir"})),
    "trec": TopicsFormat(trec.parse, trec.split, noun="topic"),
    "tsv": TopicsFormat(tsv.parse),
}


class TopicsConfig(Section):
    """The topics."""

    path: Path
    """A file."""
    format: Annotated[str, OneOf(FORMATS)]
    """Its format."""
    only_judged: bool = False
    """Keep only the topics of the qrels (BEIR has the topics of all splits in one file)."""
