"""The corpus formats, and the section of a configuration that names one."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from beamrank.formats.columns import DocColumns, check_header
from beamrank.formats.corpora.units import CorpusFormat
from beamrank.formats.guess import AUTO
from beamrank.plugins import Registry
from beamrank.section import Glob, OneOf, Section, Unset

FORMATS: Registry[CorpusFormat] = Registry(
    "corpus format",
    "beamrank.corpora",
    {
        "beir": "beamrank.formats.corpora.jsonl:BEIR",
        "csv": "beamrank.formats.corpora.lines:CSV",
        "jsonl": "beamrank.formats.corpora.jsonl:JSONL",
        "parquet": "beamrank.formats.corpora.parquet:PARQUET",
        "top1000": "beamrank.formats.top1000:CORPUS",
        "trec": "beamrank.formats.corpora.trec:TREC",
        "tsv": "beamrank.formats.corpora.lines:TSV",
    },
)


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
