"""Data sets by name: `SOURCE:NAME` in place of a path. Packages bring the sources."""

from typing import Literal, Protocol, TypeAlias

from beamrank.formats.checks import Template
from beamrank.formats.texts.units import Fields
from beamrank.notes import Progress
from beamrank.plugins import Registry

Part: TypeAlias = Literal["docs", "queries", "qrels", "scoreddocs", "index"]


class Source(Protocol):
    """Gives the parts of the data sets that it names."""

    def __call__(
        self,
        name: str,
        part: Part,
        progress: Progress | None,
        fields: Fields = None,
        template: Template | None = None,
        /,
    ) -> str:
        """As `fetch_part`, of the name behind the colon."""


SOURCES: Registry[Source] = Registry("source of data sets", "beamrank.sources", {})


def is_named(path: str) -> bool:
    """Whether a path is the name of a data set."""
    source, colon, _ = path.partition(":")
    return bool(colon) and source in SOURCES


def fetch_part(
    path: str,
    part: Part,
    progress: Progress | None,
    fields: Fields = None,
    template: Template | None = None,
) -> str:
    """A path as it is, or the file of a part of a data set, which is made once a machine: JSONL of
    docs (`id`, `contents`), topics in any format, TREC qrels or a TREC run; or the folder of an
    index.

    Args:
        path: what a key or argument names.
        part: what is wanted.
        progress: receives notes, and how much is done; without one an index is not fetched, and
            this is the folder that will hold it.
        fields: of a doc that make its text; by default the source's own text of it.
        template: what is around these.

    Raises:
        PreflightError: the data set or its part does not exist, or cannot be fetched.
    """
    source, _, name = path.partition(":")
    return SOURCES[source](name, part, progress, fields, template) if is_named(path) else path
