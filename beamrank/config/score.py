"""The options of `beamrank score`."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from beamrank.config.device import DeviceName
from beamrank.config.models import InputConfig
from beamrank.config.run import RunConfig
from beamrank.section import CheckpointName, Glob, Path, Positive, Section


class ScoreConfig(Section):
    """Pairs or triples of texts, and the checkpoint that scores them."""

    pairs: Annotated[tuple[Glob, ...], Field(min_length=1)]
    """Files, folders or globs."""
    checkpoint: CheckpointName
    """`embedded:mono` or `embedded:duo`, a Hugging Face id, a folder or its URL."""
    output: Path
    """The folder of parts and receipts."""
    input: InputConfig = InputConfig()
    """How a model's input is laid out."""
    shard_rows: Positive = 4096
    """Rows of a shard: the unit of work, of commit and of resuming."""
    threads: Positive | None = None
    """Threads of a process; default: all cores."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of the model; `auto` is what the device is fast at."""
    device: DeviceName = "auto"
    """Where the model runs: `auto`, `cpu`, `cuda`, or `cuda:N` for one GPU of several."""
    backend: str = "torch"
    """The library that runs the model: `torch`, `openvino` on a CPU, or `auto` for the faster one there."""
    stall_minutes: Annotated[float, Field(gt=0)] = 30.0
    """A job that completes no shard for so long is stopped."""


# What a job is made from: that of `beamrank run`, or of `beamrank score`.
JobConfig: TypeAlias = RunConfig | ScoreConfig
