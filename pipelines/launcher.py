"""Runs the stages of a plan, one Beam job each, and skips what is there already."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import apache_beam as beam
import pyarrow.compute as pc

from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, DataError, PreflightError
from beamrank.formats.corpora import CorpusUnit, list_units
from beamrank.logs import log_context
from beamrank.ranking.segments import SegmentRule
from beamrank.stages.given_run import split_run
from beamrank.stages.listing import needed_prefix
from beamrank.stages.plan import Plan, StageSpec
from beamrank.stages.receipts import Manifest, Receipt
from beamrank.stages.scan_reports import ScanWatch, read_scans
from beamrank.storage import files as storage
from beamrank.storage.digested import DigestedFile
from beamrank.tables.join import NeededDocs
from models.checkpoints.check import resolve_checkpoint
from models.tokenizer.bert import load_tokenizer
from pipelines.console.progress import Bar, ConsoleProgress, at_most_every, counted, duration
from pipelines.console.stage_progress import RunTimes, Scan, StageProgress
from pipelines.planning.join_passes import join_passes
from pipelines.planning.make_plan import threads_of
from pipelines.runners.names import Runner
from pipelines.runners.options import IN_MEMORY, new_pipeline
from pipelines.runners.watchdog import in_mid_run, run_watched
from transforms.join import TokenizeJob, TokenizeShards, UnitSource
from transforms.retrieve import RetrieveJob
from transforms.score import ScoreJob
from transforms.shards import RunShards, ShardTask

_log = logging.getLogger(__name__)
_REMOTE_POLL_SECONDS = 5.0


@contextmanager
def resumable() -> Iterator[None]:
    """Says of a failure of the storage, once a run has started, that the run can go on."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BeamrankError(f"{error}. Finished shards are kept; run the same command again to resume") from error


@dataclass
class Launcher:
    """Carries out a plan with one runner. `seconds` are what each stage took in this process."""

    plan: Plan
    config: RunConfig
    talk: ConsoleProgress
    runner: Runner = Runner.LOCAL
    beam_flags: Sequence[str] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    _accepted: set[str] = field(default_factory=set, init=False, repr=False)
    _times: RunTimes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._times = RunTimes(len(self.plan.shards))

    def run_all(self, stages: Sequence[StageSpec] | None = None) -> None:
        """Runs these stages in order, by default all of the plan."""
        self._times.stages = self.plan.stages if stages is None else stages
        for stage in self._times.stages:
            with log_context(stage.name):
                self.run_stage(stage)

    def run_stage(self, stage: StageSpec) -> Manifest:
        """Runs the shards of a stage that have no receipt, and seals it.

        Raises:
            PreflightError: an input is not sealed.
            BeamrankError: the job failed; what it had committed is kept.
        """
        inputs = [self._sealed_input(stage, name) for name in stage.inputs]
        digests = self.plan.shard_digests(stage, inputs)
        folder = self.plan.folder(stage.name)
        sealed = self._sealed(stage, digests)
        if sealed is not None:
            return sealed
        start = time.monotonic()
        tasks = self._open_tasks(stage, digests, inputs)
        try:
            self._do(stage, tasks, digests)
        except (BeamrankError, OSError) as error:
            # Whatever went wrong, the stage is what its receipts say: another run into this folder may have ended it.
            if folder.seal(stage.name, digests) is None:
                self._check_corpus(stage)
                if self.seconds and isinstance(error, BeamrankError):
                    # Other exit codes say that nothing has started, and stages were run.
                    raise in_mid_run(type(error), str(error)) from error
                raise
        manifest = folder.seal(stage.name, digests)
        if manifest is None:
            raise BeamrankError(
                f"the job of {stage.name} ended but {len(digests) - len(folder.receipts(digests))} of its shards have "
                "no receipt: run the same command again to do those"
            )
        self.seconds[stage.name] = time.monotonic() - start
        self.talk.note(f"{stage.name}: {counted(len(tasks), 'shard')} done in {duration(self.seconds[stage.name])}")
        return self._accept(stage, manifest)

    def _sealed(self, stage: StageSpec, digests: tuple[str, ...]) -> Manifest | None:
        sealed = self.plan.folder(stage.name).seal(stage.name, digests)
        if sealed is None:
            return None
        self.talk.note(f"{stage.name}: all {len(digests)} shards are there already")
        return self._accept(stage, sealed)

    def _open_tasks(self, stage: StageSpec, digests: tuple[str, ...], inputs: Sequence[Manifest]) -> list[ShardTask]:
        """The shards that have no receipt yet."""
        tasks = self._tasks(digests, inputs, skip=set(self.plan.folder(stage.name).discard_broken(digests)))
        if len(tasks) < len(digests):
            self.talk.note(f"{stage.name}: resuming, {len(digests) - len(tasks)} of {len(digests)} shards are there")
        return tasks

    def _do(self, stage: StageSpec, tasks: list[ShardTask], digests: tuple[str, ...]) -> None:
        _log.info("stage started: %d of %d shards to do", len(tasks), len(digests))
        with self.talk.bar(stage.name, partial(self._times.words, stage)) as bar:
            if stage.kind == "tokenize":
                self._tokenize(stage, tasks, digests, bar)
            elif stage.kind == "retrieve" and "run" in stage.places:
                folder = self.plan.folder(stage.name)
                run = stage.places["run"]
                given = DigestedFile(run, "", stage.keys["run"])
                ties = stage.keys.get("ties", "rank")
                for note in split_run(given, stage.keys["k"], self.plan.shards, digests, folder, ties):
                    self.talk.note(f"{run}: {note}")
            else:
                self._score_or_retrieve(stage, tasks, digests, bar)

    def _accept(self, stage: StageSpec, manifest: Manifest) -> Manifest:
        """A sealed stage, once what its corpus lacks was looked at and what killed attempts left is gone."""
        if stage.name not in self._accepted:
            self._accepted.add(stage.name)
            self.plan.folder(stage.name).sweep(tuple(receipt.digest for receipt in manifest.receipts))
            self._check_corpus(stage)
        return manifest

    def _sealed_input(self, stage: StageSpec, name: str) -> Manifest:
        manifest = self.plan.sealed(name)
        if manifest is None:
            raise PreflightError(
                f"{stage.name} reads {name}, which is not finished under {self.plan.output}: run it first, with "
                f"--stage {self.plan.stage(name).kind} or without --stage"
            )
        return self._accept(self.plan.stage(name), manifest)

    def _tasks(self, digests: Sequence[str], inputs: Sequence[Manifest], skip: set[int]) -> list[ShardTask]:
        return [
            ShardTask(shard.index, digest, shard.topics, tuple(manifest.receipts[shard.index] for manifest in inputs))
            for shard, digest in zip(self.plan.shards, digests, strict=True)
            if shard.index not in skip
        ]

    def _score_or_retrieve(self, stage: StageSpec, tasks: list[ShardTask], digests: tuple[str, ...], bar: Bar) -> None:
        job = self._retrieve_job(stage) if stage.kind == "retrieve" else self._score_job(stage)
        pipeline = self._new_pipeline(stage)
        _ = pipeline | "Tasks" >> beam.Create(tasks) | "RunShards" >> RunShards(job)
        self._watch(pipeline, stage, self._progress(stage, digests, bar))

    def _tokenize(self, stage: StageSpec, tasks: list[ShardTask], digests: tuple[str, ...], bar: Bar) -> None:
        sources = self._open_corpus()
        checkpoint = resolve_checkpoint(stage.places["checkpoint"], stage.places["kind"])
        vocab_size = load_tokenizer(checkpoint.folder).vocab_size
        needed = NeededDocs.collect(self._wanted(stage, tasks))
        passes = self._passes(stage, needed, [unit for unit, _ in sources], len(tasks))
        if passes > 1:
            self.talk.note(f"{stage.name}: the shuffle does not fit in memory at once; {passes} passes over the corpus")
        for number in range(passes):
            some = tasks[number * len(tasks) // passes : (number + 1) * len(tasks) // passes]
            if passes > 1:
                needed = NeededDocs.collect(self._wanted(stage, some))
            count = ScanWatch(self.plan.folder(stage.name).url).count
            scan = Scan(count, len(sources), before=number * len(sources), total=passes * len(sources))
            self._join(stage, some, needed, sources, vocab_size, digests, self._progress(stage, digests, bar, scan))

    def _open_corpus(self) -> list[UnitSource]:
        """The units of the corpus, each with its file as it was planned with; a worker checks the file when it reads.

        Raises:
            DataError: a file was added, removed or changed.
        """
        assert self.plan.corpus is not None
        files = self.plan.corpus.files
        with self.plan.corpus.held():
            units = list_units(self.config.corpus)
        added = sorted({unit.url for unit in units} - files.keys())
        if added:
            raise DataError(
                f"{added[0]} was added to the corpus {self.config.corpus.path} after the run was planned, and the "
                "plan's digest does not cover it. Nothing was read from it, and finished shards are kept. Run the same "
                "command again to plan with it, or remove the file first"
            )
        return [(unit, files[unit.url]) for unit in units]

    def _join(
        self,
        stage: StageSpec,
        tasks: Sequence[ShardTask],
        needed: NeededDocs,
        sources: Sequence[UnitSource],
        vocab_size: int,
        digests: tuple[str, ...],
        progress: Callable[[], int],
    ) -> None:
        """One pass over the corpus."""
        folder = self.plan.folder(stage.name)
        url = needed.publish(folder.url, needed_prefix(digests))
        job = self._tokenize_job(stage, url, tuple(unit for unit, _ in sources))
        pipeline = self._new_pipeline(stage)
        _ = pipeline | "Tasks" >> beam.Create(tasks) | "TokenizeShards" >> TokenizeShards(job, vocab_size, sources)
        self._watch(pipeline, stage, progress)

    def _wanted(self, stage: StageSpec, tasks: Sequence[ShardTask]) -> Iterator[tuple[int, list[str]]]:
        retrieve = self.plan.folder("retrieve")
        for task in tasks:
            part = retrieve.read_part(task.inputs[0])
            yield task.shard, part.filter(pc.less_equal(part["rank"], stage.keys["k"]))["doc_id"].to_pylist()

    def _check_corpus(self, stage: StageSpec) -> None:
        """Says what the scan could not read; asked of every run, since receipts alone would let the next one pass."""
        if stage.kind != "tokenize":
            return
        scan = read_scans(self.plan.folder(stage.name).url, stage.keys["corpus"])
        if scan.bad_rows == 0:
            return
        text = f"rows of the corpus that could not be read: {scan.bad_rows:,} (first: {'; '.join(scan.examples)})"
        if scan.bad_rows > self.config.max_bad_rows:
            raise DataError(
                f"{text}: more than max_bad_rows {self.config.max_bad_rows}. Mend the corpus, or raise max_bad_rows if "
                "their docs may be left out"
            )
        self.talk.warn(f"{text}; their docs are left out")

    def _new_pipeline(self, stage: StageSpec) -> beam.Pipeline:  # noqa: ARG002
        """An empty pipeline for one job of a stage."""
        return new_pipeline(self.runner, self.beam_flags)

    def _watch(self, pipeline: beam.Pipeline, stage: StageSpec, progress: Callable[[], int]) -> None:  # noqa: ARG002
        # Listings of an object store are paid for.
        seldom = _REMOTE_POLL_SECONDS if storage.is_remote(self.plan.output) else 0.0
        run_watched(pipeline, at_most_every(seldom, progress), self.config.stall_minutes * 60)
        progress()

    def _progress(
        self, stage: StageSpec, digests: tuple[str, ...], bar: Bar, scan: Scan | None = None
    ) -> Callable[[], int]:
        """How much of a stage is done, read from its receipts and shown."""

        def first_done(receipt: Receipt) -> None:
            if stage.kind == "mono":
                self._times.mono = receipt

        return StageProgress(self.plan.folder(stage.name), digests, bar, scan, first_done)

    def _retrieve_job(self, stage: StageSpec) -> RetrieveJob:
        keys = stage.keys
        url = self.plan.folder(stage.name).url
        return RetrieveJob(
            url, stage.places["index"], keys["index"], keys["k1"], keys["b"], keys["k"], threads_of(self.config)
        )

    def _tokenize_job(self, stage: StageSpec, needed_url: str, units: tuple[CorpusUnit, ...]) -> TokenizeJob:
        keys = stage.keys
        return TokenizeJob(
            url=self.plan.folder(stage.name).url,
            candidates_url=self.plan.folder("retrieve").url,
            checkpoint=stage.places["checkpoint"],
            kind=stage.places["kind"],
            tokenizer_digest=keys["tokenizer"],
            corpus_digest=keys["corpus"],
            needed_url=needed_url,
            units=units,
            k=keys["k"],
            max_doc_tokens=keys["max_doc_tokens"],
            on_missing_doc=keys["on_missing_doc"],
        )

    def _passes(self, stage: StageSpec, needed: NeededDocs, units: Sequence[CorpusUnit], shards: int) -> int:
        if self.runner not in IN_MEMORY:
            return 1
        return join_passes(len(needed.hashes), units, shards, stage.keys["max_doc_tokens"])

    def _score_job(self, stage: StageSpec) -> ScoreJob:
        keys = stage.keys
        return ScoreJob(
            url=self.plan.folder(stage.name).url,
            inputs=tuple(self.plan.folder(name).url for name in stage.inputs),
            kind=stage.kind,
            checkpoint=stage.places["checkpoint"],
            checkpoint_digest=keys["checkpoint"],
            device=keys["device"],
            dtype=keys["dtype"],
            threads=threads_of(self.config),
            token_budget=keys["token_budget"],
            truncation=keys["truncation"],
            max_query_length=keys["max_query_length"],
            max_length=keys["max_length"],
            k=keys["k"],
            segments=SegmentRule(*keys["segments"]) if "segments" in keys else None,
            pooling=keys.get("pooling", "max"),
            opponents=keys.get("opponents"),
            seed=keys.get("seed", 0),
        )
