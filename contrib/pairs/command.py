"""`beamrank score PAIRS...`: scores texts."""

import itertools
import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from beamrank.config.yaml import anchor_paths, check_document, read_document
from beamrank.errors import ConfigError
from beamrank.logs import run_log
from beamrank.storage import files as storage
from beamrank.storage.globs import absolute_glob
from beamrank.storage.local_files import own_temporary_files
from contrib.pairs.config import ScoreConfig
from pipelines.commands import arguments as args
from pipelines.commands.arguments import option
from pipelines.console.terminal import write_line
from pipelines.runners.options import Runner

HELP_PANEL = "Run"


def score(
    pairs: Annotated[
        list[str],
        typer.Argument(
            metavar="PAIRS",
            help="Parquet files, folders of them or globs; local or URLs. Columns: id, query and "
            "doc; or id, query, doc_i and doc_j.",
        ),
    ],
    checkpoint: Annotated[
        str, option("embedded:mono or embedded:duo, a Hugging Face id, a folder or its URL.")
    ],
    output: Annotated[str, option("The output folder.", metavar="DIR")],
    columns: Annotated[
        str | None,
        option(
            "Renames columns, such as query=question,doc=passage,id=qid. All others are passed "
            "through to the scores.",
            metavar="NEW=OLD,...",
        ),
    ] = None,
    instruction: Annotated[
        str | None,
        option(
            "The task, for models whose prompt has one; by default their card's.",
            metavar="TEXT",
        ),
    ] = None,
    options: args.CheckpointOptions = None,
    runner: Annotated[Runner, option("The Beam runner.")] = Runner.LOCAL,
    truncation: Annotated[
        str, option("The rule for long texts: original, paper or hf.")
    ] = "original",
    max_query_length: Annotated[int, option("Tokens of the query, special tokens included.")] = 64,
    max_length: Annotated[int, option("Tokens of an input, up to the model's positions.")] = 512,
    dtype: Annotated[str, option("Of the model: auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, option("Where the model runs: auto, cpu, cuda, or cuda:N.")] = "auto",
    backend: Annotated[
        str, option("The library that runs the model: torch, openvino or auto.")
    ] = "torch",
    kernel: Annotated[str, option("The attention on a CPU: torch, compiled or auto.")] = "auto",
    threads: Annotated[
        int | None, option("Threads of a process; by default all cores that it may use.")
    ] = None,
    shard_rows: Annotated[int, option("Rows of a shard, the unit of work and of resuming.")] = 4096,
    max_bad_rows: Annotated[
        int,
        option("Up to N rows that cannot be used get no score; more are an error.", metavar="N"),
    ] = 0,
    stall_minutes: Annotated[
        float, option("Stop a job in which no shard makes progress for so long.")
    ] = 30,
    dry_run: Annotated[
        bool,
        option(
            "Check the input, print what would be done as JSON, and write nothing.", "--dry-run"
        ),
    ] = False,
    verbose: args.Verbose = False,
    quiet: args.Quiet = False,
) -> None:
    """Score pairs or triples of texts, such as for distillation. Resumes: finished shards are
    skipped.

    Prints the folder of the Parquet files with the scores, in the order of the pairs. Only Beam's
    own flags follow `--`.
    """
    # All that follows `--` arrives here too.
    paths = list(itertools.takewhile(lambda word: not word.startswith("-"), pairs))
    document: dict[str, Any] = {
        "pairs": [path and absolute_glob(path) for path in paths],
        "checkpoint": checkpoint,
        "output": output,
        "columns": _renamed(columns),
        "instruction": instruction,
        "input": {
            "truncation": truncation,
            "max_query_length": max_query_length,
            "max_length": max_length,
        },
        "shard_rows": shard_rows,
        "max_bad_rows": max_bad_rows,
        "threads": threads,
        "dtype": dtype,
        "device": device,
        "backend": backend,
        "kernel": kernel,
        "stall_minutes": stall_minutes,
    }
    document |= read_document({}, ScoreConfig, options or ())
    anchor_paths(document, ScoreConfig, storage.absolute("."))
    settings = check_document(document, ScoreConfig, "beamrank score")
    # Beam takes seconds to import, and the checks of the arguments do without.
    from contrib.pairs.score import preview_scores, score_pairs

    console = args.console_progress(verbose, quiet)
    flags = pairs[len(paths) :]
    if dry_run:
        write_line(json.dumps(asdict(preview_scores(settings, runner, flags, console))))
        return
    with own_temporary_files(), run_log(console.events()):
        write_line(score_pairs(settings, runner, flags, console))


def _renamed(columns: str | None) -> dict[str, str]:
    """The names of columns in the files, by the names that they get."""
    names = [pair.partition("=")[::2] for pair in columns.split(",")] if columns is not None else []
    renamed = {new.strip(): old.strip() for new, old in names}
    if not all(new and old for new, old in renamed.items()) or len({*renamed.values()}) < len(
        names
    ):
        raise ConfigError(
            f"--columns {columns!r}: give pairs of a new and an old name, such as "
            "query=question,doc=passage"
        )
    return renamed
