"""Executes a configuration: the chosen stages on the chosen runner, then the TREC runs.

The way of a candidate: `make_plan` cuts the topics into shards (`commit/shards`), and
`core.plan_stages` puts a stage that joins the docs, such as `tokenize-DIGEST`, before those that
score. `Launcher` gives each open shard of a stage to a job (`transforms/shards`). A worker's
attempt (`models/stages/attempt`) reads the shard's inputs, calls `Stage.compute`, and commits a
part and its receipt (`commit/receipts`). Retrieved candidates meet their docs in a scatter
(`models/stages/corpus_scan`, `transforms/scatter`). `ModelStage.compute` (`models/stages/scoring`)
ranks the parts before (`commit/parts`, `ranking/rankings`), lays inputs out (`scoring/mono`,
`scoring/duo`) and scores them (`scoring/engine`). `write_runs` (`runs/run_files`, `runs/run_file`,
`formats/run_writer`) ranks the parts once more and writes the lines.
"""

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psutil

from beamrank.commit.listing import RUNS
from beamrank.commit.owner import made_current
from beamrank.commit.plan import config_digest
from beamrank.commit.status import read_status
from beamrank.config.load import load_config
from beamrank.config.run import RunConfig
from beamrank.errors import ConfigError, PreflightError, thread_limit
from beamrank.evaluation.evaluate import Evaluation
from beamrank.logs import run_log
from beamrank.machine import environment, usable_threads
from beamrank.report.report import Report
from beamrank.report.stage_rows import answer_words
from beamrank.section import Texts, check_ordered, texts_of
from models.scoring.backends.registry import Device
from models.stages.core import open_stages, steps_of
from pipelines.console.progress import ConsoleProgress
from pipelines.console.tables import cost_words
from pipelines.launcher import RETRIES, Launcher, resumable
from pipelines.plan.estimate import Limits
from pipelines.plan.make_plan import make_plan
from pipelines.plan.named_inputs import named_inputs
from pipelines.run_options import with_options
from pipelines.runners.options import Runner, check_server, resolve_kernel
from pipelines.runners.workers import job_environment
from pipelines.runs.run_file import run_files
from pipelines.runs.run_files import check_places, write_runs
from pipelines.shares import Share, ShareLauncher, check_share

# An execution has the log, standard error and the environment of its process to itself.
_one_at_a_time = threading.Lock()
# An execution in this process had so many threads, its main thread among them.
_THREADS_BESIDE_MODELS = 10


@dataclass(frozen=True)
class RunResult:
    """The results of an execution.

    Attributes:
        output: the folder.
        runs: the path of each written run by its name, such as `duo-sum`; in the first of
            `run_formats`.
        evaluations: the figures of each run by its name; empty without qrels.
        submitted: the ids of the jobs that were submitted without waiting.
        report: `stages`, what each did and its cost, and the `warnings` that need no curve; None
            where no runs were written.
    """

    output: str
    runs: Mapping[str, str] = field(default_factory=dict)
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    submitted: tuple[str, ...] = ()
    report: Report | None = None

    @property
    def measures(self) -> dict[str, dict[str, float]]:
        """The mean of each measure of each run."""
        return {name: evaluation.means for name, evaluation in self.evaluations.items()}


def run(
    config: str | os.PathLike[str] | Mapping[str, Any],
    *,
    runner: str = "local",
    set: Mapping[str, Any] | None = None,
    output: str | os.PathLike[str] | None = None,
    reuse: Texts = (),
    stage: str | None = None,
    flags: Texts = (),
    limits: Mapping[str, float] | None = None,
    retries: int = RETRIES,
    quiet: bool = True,
    options: Mapping[str, Any] | None = None,
) -> RunResult:
    """Runs a configuration in this process, as `beamrank run` does. Finished shards are skipped.

    Calls in several threads take turns. While one runs, what the process writes to standard error
    goes to its log. Afterwards the process is as it was: its environment, streams and loggers.

    Args:
        config: the path of a YAML configuration, or its content; then paths are relative to the
            current folder.
        runner: local, embed, prism, spark, flink or dataflow.
        set: keys of the configuration to override, such as `{"mono.k": 100}`.
        output: the output folder, instead of the configuration's `output`.
        reuse: earlier outputs, whose scores of the same inputs are reused.
        stage: the one to run on its own: retrieve, tokenize, the name of a later stage, or runs.
        flags: Beam's own.
        limits: `max_inferences` and `max_hours`, by receipts: work that exceeds one is not started,
            or with reuse ends before the stage that makes more inferences.
        retries: how often open shards are started again after a worker or a job server died.
        quiet: without notes and progress on standard error; warnings are printed there either way.
        options: packages' options, such as `{"deepen": True}`.

    Returns:
        Paths and measures of the runs; there are none after a single stage other than `runs`.

    Raises:
        ConfigError: the configuration or an argument is wrong.
        PreflightError: a file, a model or the runner is missing or wrong, found before anything
            started.
        TemporaryError: another attempt may succeed: the output is in use, or a store or a server
            does not answer.
        BeamrankError: a job failed; finished shards are kept.
    """
    overrides = [_override(key, value) for key, value in (set or {}).items()]
    source = config if isinstance(config, Mapping) else os.fspath(config)
    settings = load_config(
        source, overrides, None if output is None else os.fspath(output), texts_of("reuse", reuse)
    )
    if runner not in list(Runner):
        raise ConfigError(f"runner {runner!r} does not exist: give one of {', '.join(Runner)}")
    words, most = texts_of("flags", flags), Limits.of(limits or {})
    with _one_at_a_time, environment(**job_environment()):
        console = ConsoleProgress(quiet=quiet)
        with run_log(console.events()):
            return execute(
                settings, Runner(runner), words, stage, True, console, most, retries, None, options
            )


def execute(
    settings: RunConfig,
    runner: Runner,
    flags: Sequence[str],
    stage: str | None,
    wait: bool,
    console: ConsoleProgress,
    limits: Limits = Limits(),  # noqa: B008
    retries: int = RETRIES,
    share: Share | None = None,
    options: Mapping[str, Any] | None = None,
) -> RunResult:
    """Runs all stages of a configuration, or only one, and writes the runs; only Dataflow can do
    without `wait`.

    A `share` of the shards is done in this process, which writes the runs only where all others are
    done.
    """
    if share is not None:
        share.check_alone(runner, flags, stage)
    _check_threads(_THREADS_BESIDE_MODELS + usable_threads(settings.threads))
    written = settings.model_dump(mode="json", exclude_unset=True)
    written["flags"] = [str(part) for part in (runner, *flags, limits, options)]
    settings = named_inputs(settings, console)
    if share is None:
        settings = resolve_kernel(settings, runner, flags)
    settings = with_options(settings, limits.max_inferences, options or {})
    steps = steps_of(settings)
    if stage not in (None, RUNS, *steps):
        raise ConfigError(
            f"the configuration has no stage {stage}: give one of {', '.join([*steps, RUNS])}"
        )
    # A job of workers writes parts of runs.
    has_parts = any(map(settings.in_parts, settings.run_formats))
    if stage != RUNS or has_parts:
        check_server(runner, flags, console)
    scoring: Device | None = None
    template: str | None = None
    if runner is Runner.DATAFLOW:
        from pipelines.runners import dataflow

        settings, scoring = dataflow.prepare(settings, flags, stage, wait, has_parts)
        template = dataflow.template_location(flags)
    most = None if stage == RUNS or limits == Limits() else limits.check(settings, stage)
    plan = replace(
        make_plan(settings, console, scoring), written=config_digest(written, settings.output)
    )
    if share is not None:
        check_share(plan)
    common = (plan, settings, console, runner, flags, wait, retries, most)
    launcher = Launcher(*common) if share is None else ShareLauncher(*common, share=share)
    if stage in (None, RUNS):
        runs = run_files(open_stages(plan.stages), settings)
        check_places(plan, [file.folder(plan) for file in runs])
    stages = [record for record in plan.stages if stage in (None, record.step)]
    if template and len(stages) > 1:
        raise ConfigError(
            f"a template makes one job, and {stage} takes {len(stages)}, as its models have "
            "different tokenizers: submit that stage without --template_location"
        )
    with resumable(), made_current(plan):
        launcher.run(stages)
        if template and stages and not launcher.submitted:
            launcher.submit_nothing(stages[-1])
        if stage in (None, RUNS) and launcher.finish():
            return _write_runs(launcher, settings)
    return RunResult(plan.output, submitted=() if wait else tuple(launcher.submitted))


def _check_threads(count: int) -> None:
    """Raises PreflightError where this process may not have so many threads: libraries in C++ that
    cannot start one end it without an error of ours.
    """
    end = threading.Event()
    more = range(psutil.Process().num_threads(), count)
    threads = [threading.Thread(target=end.wait, daemon=True) for _ in more]
    try:
        for thread in threads:
            thread.start()
    except RuntimeError as error:
        limit = thread_limit(f"RuntimeError: {error}")
        raise PreflightError(f"a run in this process needs {count} threads{limit}") from error
    finally:
        end.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()


def _write_runs(launcher: Launcher, settings: RunConfig) -> RunResult:
    plan, console = launcher.plan, launcher.console
    by_workers = launcher.runner is not Runner.LOCAL and launcher.wait
    write_parts = launcher.write_parts if by_workers else None
    paths, evaluations, reader = write_runs(plan, settings, console, write_parts)
    statuses = read_status(plan)
    for status in statuses:
        console.note(f"{status.stage}: {', '.join(cost_words(status))}")
    for path in paths.values():
        console.note(f"wrote {path}")
    if settings.judgments is None:
        missing = "qrels" if settings.qrels is None else "measures"
        console.note(f"no {missing} are given: the runs are not evaluated")
    stages = reader.rows(statuses, evaluations)
    names = [row.run for row in stages]
    report = Report(plan.output, names, names, names[0], stages=stages, evaluations=evaluations)
    console.note(answer_words(stages))
    for warning in report.warnings:
        console.warn(warning.text)
    runs = {
        file.name: path
        for file, path in paths.items()
        if file.run_format == settings.run_formats[0]
    }
    return RunResult(plan.output, runs, evaluations, report=report)


def _override(key: str, value: object) -> str:
    check_ordered(key, value)
    try:
        return f"{key}={json.dumps(value)}"
    except TypeError as error:
        raise ConfigError(f"{key}: {error}: give what a YAML file can hold") from error
