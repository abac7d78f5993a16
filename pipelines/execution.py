"""Carries a run out: the stages that are asked for, on the runner that is asked for, then the TREC runs."""

from collections.abc import Sequence

from beamrank.config import RunConfig
from beamrank.errors import ConfigError
from beamrank.plan import StageKind
from pipelines import dataflow
from pipelines.dataflow_launcher import DataflowLauncher
from pipelines.launcher import Launcher, resumable
from pipelines.owner import made_current
from pipelines.planning import make_plan
from pipelines.progress import Talk
from pipelines.report_table import print_measures, warn_of_losses
from pipelines.runners import beam_options, server_command
from pipelines.runs import evaluate_runs, write_runs
from pipelines.words import Runner, Stage


def execute(settings: RunConfig, runner: Runner, flags: Sequence[str], stage: Stage | None, wait: bool) -> None:
    """Runs all stages of a configuration, or one, and writes the runs.

    Args:
        settings: the configuration.
        runner: where the Beam jobs run.
        flags: Beam's own.
        stage: the one to run alone.
        wait: for the job's end; only Dataflow can do without.

    Raises:
        BeamrankError: something is wrong with one of these, or the run failed.
    """
    talk = Talk()
    beam_options(runner, flags)
    _check_stage(settings, stage)
    if stage is not Stage.RUNS:
        server_command(runner, flags, talk.note)
    if runner is Runner.DATAFLOW:
        _run_on_dataflow(settings, talk, flags, stage, wait)
        return
    plan = make_plan(settings, talk)
    launcher = Launcher(plan, settings, talk, runner, flags)
    with resumable(), made_current(plan):
        launcher.run_all([spec for spec in plan.stages if stage is None or spec.kind == stage.value])
        if stage in (None, Stage.RUNS):
            _finish(launcher)


def _run_on_dataflow(settings: RunConfig, talk: Talk, flags: Sequence[str], stage: Stage | None, wait: bool) -> None:
    """Runs all stages, or one, on Dataflow. Without waiting, the id of each job is printed on standard output."""
    if not wait and stage is None:
        raise ConfigError("--no-wait submits one stage, as each needs the one before it finished: give --stage too")
    dataflow.check_settings(settings)
    settings, scoring = dataflow.settle(settings)
    if stage is not Stage.RUNS:
        dataflow.check_flags(flags, _kinds(settings, stage), scoring.device, wait)
    plan = make_plan(settings, talk, scoring)
    launcher = DataflowLauncher(plan, settings, talk, Runner.DATAFLOW, flags)
    specs = [spec for spec in plan.stages if stage is None or spec.kind == stage.value]
    if launcher.template and len(specs) > 1:
        raise ConfigError(
            f"a template makes one job, and {stage} takes {len(specs)}, as mono and duo have different tokenizers: "
            "submit that stage without --template_location"
        )
    with resumable(), made_current(plan):
        if wait:
            launcher.run_all(specs)
        else:
            for spec in specs:
                launcher.submit_stage(spec)
        for job in [] if wait else launcher.submitted:
            print(job)
        if stage in (None, Stage.RUNS):
            _finish(launcher)


def _kinds(settings: RunConfig, stage: Stage | None) -> list[StageKind]:
    """The stages that will be submitted; a run that was given needs no job."""
    kinds: list[StageKind] = [] if settings.candidates is not None and stage is None else ["retrieve"]
    if settings.mono is not None:
        kinds += ["tokenize", "mono"]
    if settings.duo is not None:
        kinds.append("duo")
    return [kind for kind in kinds if stage is None or kind == stage.value]


def _check_stage(settings: RunConfig, stage: Stage | None) -> None:
    """Makes sure that the configuration has the stage that is asked for; mono is what tokens are for."""
    section = "duo" if stage is Stage.DUO else "mono"
    if stage in (Stage.TOKENIZE, Stage.MONO, Stage.DUO) and getattr(settings, section) is None:
        raise ConfigError(f"the configuration has no stage {stage}: there is no `{section}:` section in it")


def _finish(launcher: Launcher) -> None:
    """Writes the runs and their measures."""
    plan, settings, talk = launcher.plan, launcher.config, launcher.talk
    paths = write_runs(plan, settings, talk)
    for path in paths:
        talk.note(f"wrote {path}")
    if settings.qrels is None:
        talk.note("no qrels are given: the runs are not evaluated")
        return
    evaluations = evaluate_runs(plan, settings, talk)
    print_measures(evaluations)
    warn_of_losses(evaluations, talk)
