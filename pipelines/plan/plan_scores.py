"""From the options of `beamrank score` to a plan: all inputs are checked before anything runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from beamrank.commit.plan import Plan
from beamrank.commit.shards import cut_rows
from beamrank.config.score import ScoreConfig
from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, find_taken
from beamrank.formats.notes import counted
from beamrank.formats.pairs import PairsFile, find_pairs
from beamrank.storage import files as storage
from beamrank.storage.digested import digest_file
from models.checkpoints.check import resolve_checkpoint
from models.checkpoints.tokenizers import warnings_of
from models.scoring.backends.protocol import Device
from models.scoring.backends.registry import find_backend
from models.stages.pairs import ScorePairs
from pipelines.console.progress import ConsoleProgress


@dataclass(frozen=True)
class ScorePlan:
    """A plan, the stage that it holds, and the files whose rows are its shards."""

    plan: Plan
    stage: ScorePairs
    files: Sequence[PairsFile]


def plan_scores(config: ScoreConfig, console: ConsoleProgress, scoring: Device | None = None) -> ScorePlan:
    """Checks all inputs and resolves everything that decides the scores. Writes nothing.

    Args:
        config: the options.
        console: where warnings go.
        scoring: where scoring runs, if that is not this machine.

    Raises:
        ConfigError: the options do not fit the files.
        PreflightError: an input is missing or invalid.
    """
    files = find_pairs(config.pairs)
    _check_apart(config)
    _check_nulls(files, console)
    checkpoint = resolve_checkpoint(config.checkpoint, files[0].kind)
    checkpoint.check_length(config.input.max_length, config.input.truncation)
    checkpoint.check_weights()
    for warning in warnings_of(checkpoint):
        console.warn(warning)
    device = scoring or find_backend(config.backend).resolve(config.device, config.dtype)
    stage = ScorePairs.from_config(config, files[0], checkpoint, device)
    digested = [(digest_file(each.url, read=not storage.is_remote(each.url)), each.rows) for each in files]
    shards = cut_rows(digested, config.shard_rows)
    return ScorePlan(
        Plan("score", config.output, shards, (stage.record(),), config.model_dump(mode="json")), stage, files
    )


def _check_apart(config: ScoreConfig) -> None:
    """Makes sure that no file that is written becomes a file of pairs."""
    written = [storage.join(config.output, name) for name in ("rows-0.parquet", "scores/part-0.parquet")]
    for path in config.pairs:
        if find_taken(CorpusConfig(path=path, format="parquet"), written) is not None:
            raise PreflightError(
                f"--output {config.output} is inside {path}: what is written there would be read as pairs. "
                "Give an output outside of it, or a glob that matches the pairs alone"
            )


def _check_nulls(files: Sequence[PairsFile], console: ConsoleProgress) -> None:
    """Reports rows without a value that the files count, before they are read."""
    for file in files:
        for name, count in file.nulls.items():
            if count == file.rows:
                raise PreflightError(f"the column `{name}` of {file.url} holds nothing but nulls: give it values")
            console.warn(f"{file.url}: {counted(count, 'row')} without `{name}` will have no score")
