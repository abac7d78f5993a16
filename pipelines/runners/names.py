"""The values of `--runner` and `--stage`."""

from enum import StrEnum


class Runner(StrEnum):
    """The runner of Beam jobs."""

    LOCAL = "local"
    EMBED = "embed"
    PRISM = "prism"
    SPARK = "spark"
    FLINK = "flink"
    DATAFLOW = "dataflow"


class Stage(StrEnum):
    """The stage that runs alone."""

    RETRIEVE = "retrieve"
    TOKENIZE = "tokenize"
    MONO = "mono"
    DUO = "duo"
    RUNS = "runs"
