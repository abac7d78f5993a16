"""What a configuration holds of a corpus and of topics."""

from typing import Annotated, Literal

from pydantic import Field

from beamrank.section import Section

# An empty one would be the configuration's own folder.
Place = Annotated[str, Field(min_length=1)]


class CorpusConfig(Section):
    """The docs: `path` is a file, a folder or a glob; `fields` are joined by one space to make a text."""

    path: Place
    format: Literal["jsonl", "beir", "tsv", "parquet", "car"]
    fields: tuple[str, ...] | None = None


class TopicsConfig(Section):
    """Where the topics are; `only_judged` keeps those of the qrels (BEIR ships all splits' topics in one file)."""

    path: Place
    format: Literal["tsv", "jsonl", "beir", "trec", "car"]
    only_judged: bool = False
