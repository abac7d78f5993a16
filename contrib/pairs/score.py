"""`beamrank score`: all inputs are checked, then one stage is executed by the launcher of runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from beamrank.commit.owner import made_current
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest, Receipt, StageFolder
from beamrank.commit.shards import cut_rows
from beamrank.commit.status import read_receipts
from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora import CorpusConfig, find_taken
from beamrank.formats.rejects import REJECTS
from beamrank.notes import counted
from beamrank.storage import files as storage
from beamrank.storage.digested import digest_file
from contrib.pairs.config import ScoreConfig
from contrib.pairs.scores_table import scores_folder, write_scores
from contrib.pairs.stage import ScorePairs
from contrib.pairs.tables import PairsFile, find_pairs
from models.checkpoints.checkpoint import input_warnings, resolve_checkpoint, warnings_of
from models.scoring.backends.registry import find_backend
from models.stages.core import is_checkpoint_path
from pipelines.console.progress import ConsoleProgress
from pipelines.launcher import Launcher, resumable
from pipelines.plan.make_plan import check_writable
from pipelines.runners import dataflow
from pipelines.runners.options import Runner, beam_options, check_server, resolve_kernel
from pipelines.runs.run_files import check_places


@dataclass(frozen=True)
class ScorePreview:
    """The work that `score_pairs` will do, as `--dry-run` prints it (docs/reference/json.md)."""

    pairs: int
    files: int
    kind: str
    shards: int
    remaining_shards: int
    remaining_pairs: int
    checkpoint: str
    device: str
    dtype: str


def preview_scores(
    settings: ScoreConfig, runner: Runner, flags: Sequence[str], console: ConsoleProgress
) -> ScorePreview:
    """The work of `score_pairs` with the same arguments. Writes nothing."""
    _, files, plan, stage = _plan(settings, runner, flags, console)
    done = read_receipts(plan)[stage.name]
    open_shards = [shard for shard in plan.shards if shard.index not in done]
    rows = sum(shard.rows.end - shard.rows.start for shard in open_shards if shard.rows)
    return ScorePreview(
        pairs=sum(file.rows for file in files),
        files=len(files),
        kind=stage.kind,
        shards=len(plan.shards),
        remaining_shards=len(open_shards),
        remaining_pairs=rows,
        checkpoint=stage.checkpoint,
        device=stage.device,
        dtype=stage.dtype,
    )


def score_pairs(
    settings: ScoreConfig, runner: Runner, flags: Sequence[str], console: ConsoleProgress
) -> str:
    """Scores all pairs, but for shards that are done; returns the folder of the scores, in the
    order of the pairs.
    """
    beam_options(runner, flags)
    check_server(runner, flags, console)
    settings, _, plan, stage = _plan(settings, runner, flags, console)
    check_writable(plan.output)
    check_places(plan, [scores_folder(plan)])
    with resumable(), made_current(plan):
        bad_rows = _BadRows(settings.max_bad_rows, plan.output)
        launcher = _ScoreLauncher(plan, settings, console, runner, flags, bad_rows=bad_rows)
        manifest = launcher.run_stage(plan.stage(stage.name))
        assert manifest is not None
        _report(manifest, _BadRows(settings.max_bad_rows, plan.output), console)
        return write_scores(plan, manifest)


def _plan(
    settings: ScoreConfig, runner: Runner, flags: Sequence[str], console: ConsoleProgress
) -> tuple[ScoreConfig, Sequence[PairsFile], Plan, ScorePairs]:
    """Checks all inputs, and resolves everything that decides the scores.

    The options are as the runner settles them; the shards are the files' rows.
    """
    settings, device = resolve_kernel(settings, runner, flags), None
    if runner is Runner.DATAFLOW:
        dataflow.check_paths(_worker_paths(settings))
        settings, device = dataflow.settle(settings)
        dataflow.check_flags(flags, [ScorePairs], device.device, wait=True)
    files = find_pairs(settings.pairs, settings.columns)
    _check_apart(settings)
    checkpoint = resolve_checkpoint(
        settings.checkpoint, files[0].kind, settings.instruction, settings.options
    )
    checkpoint.check_length(settings.input.max_length, settings.input.truncation)
    checkpoint.check_weights()
    limits = settings.input.model_dump()
    for warning in (*warnings_of(checkpoint), *input_warnings(checkpoint, limits)):
        console.warn(warning)
    device = device or find_backend(settings.backend).resolve(settings.device, settings.dtype)
    if device.warning:
        console.warn(device.warning)
    stage = ScorePairs.of_files(settings, files[0], checkpoint, device)
    digested = [
        (digest_file(file.url, read=not storage.is_remote(file.url)), file.rows) for file in files
    ]
    shards = cut_rows(digested, settings.shard_rows)
    plan = Plan(
        "score", settings.output, shards, (stage.record(),), settings.model_dump(mode="json")
    )
    return settings, files, plan, stage


def _worker_paths(config: ScoreConfig) -> list[tuple[str, str]]:
    """All that workers read and write, with their options."""
    pairs = [("PAIRS", path) for path in config.pairs]
    is_path = is_checkpoint_path(config.checkpoint)
    checkpoints = [("--checkpoint", config.checkpoint)] if is_path else []
    return [*pairs, ("--output", config.output), *checkpoints]


def _check_apart(config: ScoreConfig) -> None:
    """Makes sure that no file that is written becomes a file of pairs."""
    written = [
        storage.join(config.output, name)
        for name in (
            "rows-0.parquet",
            "scores/part-0.parquet",
            "runs/scores.parquet/part-00000.parquet",
        )
    ]
    for path in config.pairs:
        if find_taken(CorpusConfig(path=path, format="parquet"), written) is not None:
            raise PreflightError(
                f"--output {config.output} is inside {path}: what is written there would be read "
                "as pairs. Give an output outside of it, or a glob that matches only the pairs"
            )


@dataclass
class _BadRows:
    """Counts the rows without a score in the shards that are done; there may be `most`."""

    most: int
    output: str
    bad: int = 0
    rows: int = 0
    first: str = ""

    def add(self, receipt: Receipt) -> None:
        """Raises DataError where there are more than may be, by the shards up to this one."""
        self.bad += receipt.bad_rows
        self.rows += receipt.rows
        self.first = self.first or next(iter(receipt.examples), "")
        if self.bad > self.most:
            raise DataError(
                f"{self}. More than --max-bad-rows {self.most:,}, so no more are scored, and no "
                f"table of scores is written: correct the rows, which are in {self.rejects}, or "
                "allow so many"
            )

    def __str__(self) -> str:
        return (
            f"{counted(self.bad, 'row')} of {self.rows:,} could not be scored (first: "
            f"{self.first}); their score is null"
        )

    @property
    def rejects(self) -> str:
        """The folder of the rows."""
        return storage.join(self.output, REJECTS)


@dataclass
class _ScoreLauncher(Launcher):
    """Ends the job as soon as its shards, also of earlier jobs, have too many bad rows."""

    bad_rows: _BadRows = field(kw_only=True)
    _seen: set[int] = field(default_factory=set, init=False, repr=False)

    def look(self, folder: StageFolder, digests: Mapping[int, str]) -> tuple[set[int], object]:
        done, files = super().look(folder, digests)
        new, self._seen = sorted(done - self._seen), done
        for receipt in filter(None, (folder.receipt(shard, digests[shard]) for shard in new)):
            self.bad_rows.add(receipt)
        return done, files


def _report(manifest: Manifest, bad_rows: _BadRows, console: ConsoleProgress) -> None:
    """Warns of rows without a score; an error where there are more than may be."""
    for receipt in manifest.receipts:
        bad_rows.add(receipt)
    if bad_rows.bad:
        console.warn(f"{bad_rows} (see {bad_rows.rejects})")
