"""The topics formats. A new one is a function, in a file beside this one, and its line in `FORMATS`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import model_validator

from beamrank.formats import smart
from beamrank.formats.corpora.readers import tsv
from beamrank.formats.guess import AUTO
from beamrank.formats.names import TopicColumns, check_header
from beamrank.formats.topics import lines, mteb, named, outlines, rank_llm, top1000, trec
from beamrank.formats.topics.named import NamedRows
from beamrank.records import Topic
from beamrank.section import OneOf, Paths, Section, Unset


@dataclass(frozen=True)
class TopicsFormat:
    """A topics format.

    Attributes:
        parse: the id and the text of one topic; raises RowError if it has none.
        split: the topics of a file, each with the line on which it begins.
        noun: the unit of such a file that holds a topic, for messages.
        file_in_folder: the one file that a folder of this format holds.
        repeats: whether a topic may appear again; it counts once.
        parse_original: `parse` for `decoding: original`, if the format has one.
        looks_like: formats that a file of this one may look like (formats/guess.py).
        named: `split` and `parse` of a format whose columns have names, or may have them below a header.
        has_header: whether the first line may be a header.
        read: reads all topics of a file that is too large for the memory, in place of `split` and `parse`.
    """

    parse: Callable[[str], tuple[str, str]]
    split: Callable[[bytes], Iterator[tuple[int, bytes]]] = lines.split
    noun: str = "line"
    file_in_folder: str | None = None
    looks_like: frozenset[str] = frozenset()
    repeats: bool = False
    parse_original: Callable[[str], tuple[str, str]] | None = None
    read: Callable[[str], list[Topic]] | None = None
    named: NamedRows | None = None
    has_header: bool = False


FORMATS: dict[str, TopicsFormat] = {
    "beir": TopicsFormat(lines.parse_beir, lines.split_beir, file_in_folder="queries.jsonl", named=named.beir_rows),
    "car": TopicsFormat(lines.parse_car, parse_original=lines.parse_car_as_2019),
    "car-outlines": TopicsFormat(
        lines.parse_car, outlines.split, noun="section", repeats=True, parse_original=lines.parse_car_as_2019
    ),
    "car-qrels": TopicsFormat(
        lambda line: lines.parse_car(lines.query_id_of(line)),
        lines.split_qrels,
        repeats=True,
        parse_original=lambda line: lines.parse_car_as_2019(lines.query_id_of(line)),
    ),
    "csv": TopicsFormat(tsv.parse, noun="row", named=named.csv_topics, has_header=True),
    "jsonl": TopicsFormat(lines.parse_json, looks_like=frozenset({"beir"}), named=named.json_rows),
    "mteb": TopicsFormat(lines.parse_json, read=mteb.read_topics),
    "parquet": TopicsFormat(lines.parse_json, lines.split_parquet, noun="row", named=named.parquet_rows),
    "rank_llm": TopicsFormat(lines.parse_json, read=rank_llm.read_topics),
    "smart": TopicsFormat(smart.parse, smart.split, noun="record"),
    "top1000": TopicsFormat(top1000.parse, read=top1000.read_topics),
    "trec": TopicsFormat(trec.parse, trec.split, noun="topic"),
    "tsv": TopicsFormat(tsv.parse, named=named.tsv_rows, has_header=True),
}


class TopicsConfig(Section):
    """The topics."""

    path: Paths
    """A file, a glob, or a list of them."""
    format: Annotated[str, OneOf(FORMATS, (AUTO,))] = AUTO
    """Its format; `auto` guesses it from the first file."""
    decoding: Literal["full", "original"] = "full"
    """Of TREC CAR's ids: `full` decodes every percent escape, `original` only `%20`, as the code of 2019 does."""
    ids: Literal["file", "order"] = "file"
    """`order` numbers the topics from 1 in the order of the file, as the qrels of Cranfield do."""
    columns: Annotated[TopicColumns | None, Unset.LEFT_OUT] = None
    """Where the id or the text has another name than usual."""
    header: Annotated[bool | None, Unset.LEFT_OUT] = None
    """Whether the first line of each TSV or CSV file names the columns; default: recognized, and said."""
    only_judged: bool = False
    """Keep only the topics of the qrels (BEIR has the topics of all splits in one file)."""

    @model_validator(mode="after")
    def _check_header(self) -> Self:
        check_header(self.header, {"columns": self.columns})
        return self

    @model_validator(mode="after")
    def _check_decoding(self) -> Self:
        known = FORMATS.get(self.format)
        if self.decoding == "original" and known is not None and known.parse_original is None:
            having = ", ".join(name for name, each in FORMATS.items() if each.parse_original)
            raise ValueError(f"decoding `original` exists for the formats {having}, not for {self.format}")
        return self
