"""Our words on the command line for where a run runs, and for what of it."""

from enum import StrEnum


class Runner(StrEnum):
    """Where a job runs."""

    LOCAL = "local"
    EMBED = "embed"
    PRISM = "prism"
    SPARK = "spark"
    FLINK = "flink"
    DATAFLOW = "dataflow"


class Stage(StrEnum):
    """What `--stage` runs alone."""

    RETRIEVE = "retrieve"
    TOKENIZE = "tokenize"
    MONO = "mono"
    DUO = "duo"
    RUNS = "runs"
