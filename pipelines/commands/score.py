"""`beamrank score PAIRS...`: scores pairs or triples of texts, without topics and without a ranking."""

import itertools
import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from beamrank.config.score import ScoreConfig
from beamrank.config.yaml import anchor_paths, check_document
from beamrank.storage import files as storage
from beamrank.storage.globs import absolute_glob
from pipelines.commands.arguments import Quiet, Verbose, console_progress
from pipelines.console.run_log import run_log
from pipelines.console.terminal import write_line
from pipelines.runners.options import Runner


def score(
    pairs: Annotated[
        list[str],
        typer.Argument(
            metavar="PAIRS",
            help="Parquet files, folders of them or globs; local or URLs. Columns: id, query and doc; or id, query, "
            "doc_i and doc_j.",
        ),
    ],
    checkpoint: Annotated[
        str, typer.Option(help="embedded:mono or embedded:duo, a Hugging Face id, a folder or its URL.")
    ],
    output: Annotated[str, typer.Option(metavar="DIR", help="The output folder.")],
    runner: Annotated[Runner, typer.Option(help="The Beam runner.")] = Runner.LOCAL,
    truncation: Annotated[str, typer.Option(help="The rule for long texts: original, paper or hf.")] = "original",
    max_query_length: Annotated[int, typer.Option(help="Tokens of the query, special tokens included.")] = 64,
    max_length: Annotated[int, typer.Option(help="Tokens of an input, up to the model's positions.")] = 512,
    dtype: Annotated[str, typer.Option(help="Of the model: auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, typer.Option(help="Where the model runs: auto, cpu, cuda, or cuda:N.")] = "auto",
    backend: Annotated[str, typer.Option(help="The library that runs the model: torch, openvino or auto.")] = "torch",
    threads: Annotated[int | None, typer.Option(help="Threads of a process; by default all cores.")] = None,
    shard_rows: Annotated[int, typer.Option(help="Rows of a shard, the unit of work and of resuming.")] = 4096,
    stall_minutes: Annotated[float, typer.Option(help="Stop a job that completes no shard for so long.")] = 30.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the input, print what would be done as JSON, and write nothing.")
    ] = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Score pairs or triples of texts, such as for distillation. Resumes: finished shards are skipped.

    Prints the path of the manifest, which names the parts with the scores in the order of the pairs. Only Beam's own
    flags follow `--`.
    """
    # All that follows `--` arrives here too.
    paths = list(itertools.takewhile(lambda each: not each.startswith("-"), pairs))
    document: dict[str, Any] = {
        "pairs": [path and absolute_glob(path) for path in paths],
        "checkpoint": checkpoint,
        "output": output,
        "input": {"truncation": truncation, "max_query_length": max_query_length, "max_length": max_length},
        "shard_rows": shard_rows,
        "threads": threads,
        "dtype": dtype,
        "device": device,
        "backend": backend,
        "stall_minutes": stall_minutes,
    }
    anchor_paths(document, ScoreConfig, storage.absolute("."))
    settings = check_document(document, ScoreConfig, "beamrank score")
    # Beam takes seconds to import, and other commands do without.
    from pipelines.score import preview_scores, score_pairs

    console = console_progress(verbose, quiet)
    flags = pairs[len(paths) :]
    if dry_run:
        write_line(json.dumps(asdict(preview_scores(settings, runner, flags, console))))
        return
    with run_log(console):
        write_line(score_pairs(settings, runner, flags, console))
