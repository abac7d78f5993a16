"""The corpus formats. A new one is a file in `readers` that makes a `CorpusFormat`, and its line in `FORMATS`."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from beamrank.formats.corpora.readers import beir, car, csv, jsonl, mteb, parquet, rank_llm, smart, top1000, trec, tsv
from beamrank.formats.corpora.units import CorpusFormat
from beamrank.formats.guess import AUTO
from beamrank.formats.names import DocColumns, check_header
from beamrank.section import Glob, OneOf, Section, Unset

FORMATS: dict[str, CorpusFormat] = {
    "beir": beir.FORMAT,
    "car": car.PARAGRAPHS_FORMAT,
    "car-pages": car.PAGES_FORMAT,
    "csv": csv.FORMAT,
    "jsonl": jsonl.FORMAT,
    "mteb": mteb.FORMAT,
    "parquet": parquet.FORMAT,
    "rank_llm": rank_llm.FORMAT,
    "smart": smart.FORMAT,
    "top1000": top1000.FORMAT,
    "trec": trec.FORMAT,
    "tsv": tsv.FORMAT,
}


class CorpusConfig(Section):
    """The docs."""

    path: Glob
    """A file, a folder or a glob."""
    format: Annotated[str, OneOf(FORMATS, (AUTO,))] = AUTO
    """The format of its files; `auto` guesses it from the first one."""
    fields: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """The fields of a doc that are joined by one space to make its text; default: the format's own."""
    columns: Annotated[DocColumns | None, Unset.LEFT_OUT] = None
    """Where the id has another name than usual."""
    header: Annotated[bool | None, Unset.LEFT_OUT] = None
    """Whether the first line of each TSV or CSV file names the columns; default: recognized, and said."""

    @model_validator(mode="after")
    def _check_header(self) -> Self:
        check_header(self.header, {"columns": self.columns, "fields": self.fields})
        return self
