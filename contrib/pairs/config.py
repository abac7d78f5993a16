"""The options of `beamrank score`."""

from typing import Annotated

from pydantic import Field

from beamrank.config.run import JobConfig
from beamrank.config.stages import Instruction, ModelOptions
from beamrank.section import Glob, NotNegative, Positive


class ScoreConfig(JobConfig, ModelOptions):
    """Pairs or triples of texts, and the checkpoint that scores them."""

    pairs: Annotated[tuple[Glob, ...], Field(min_length=1)]
    """Files, folders or globs."""
    instruction: Instruction | None = None
    """As `mono.instruction`, the same for all pairs."""
    columns: dict[str, str] = Field(default_factory=dict)
    """The names of columns in the files, by the names that they get."""
    shard_rows: Positive = 4096
    """Rows of a shard: the unit of work, of commit and of resuming."""
    max_bad_rows: NotNegative = 0
    """Rows that have no score because they cannot be used; more are an error."""
