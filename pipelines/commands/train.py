"""`beamrank train mono|duo|tcp CONFIG`: fine-tunes a re-ranker, or resumes an interrupted training."""

import contextlib
import json
import shlex
import signal
import sys
from collections.abc import Iterator
from enum import StrEnum
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from beamrank.errors import ConfigError, PreflightError
from beamrank.logs import open_in_output, run_log
from beamrank.storage import files as storage
from pipelines.commands.arguments import ConfigPath, Output, Overrides, Quiet, Verbose, console_progress
from pipelines.console.progress import ConsoleProgress
from pipelines.console.tables import print_result, print_table

if TYPE_CHECKING:
    from models.training.folds import Fold
    from models.training.session import Session


class Model(StrEnum):
    """The model to train."""

    MONO = "mono"
    DUO = "duo"
    TCP = "tcp"


class _Signals:
    """The first Ctrl-C or SIGTERM stops the training after its step; the second stops it at once."""

    def __init__(self) -> None:
        self.number = 0

    def received(self) -> bool:
        """Whether a signal was received."""
        return self.number != 0

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Replaces the signals' handlers."""
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def remember(number: int, _frame: FrameType | None) -> None:
            self.number = number
            for each, handler in before.items():
                signal.signal(each, handler)

        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, remember)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def train(
    model: Annotated[
        Model,
        typer.Argument(help="What to train; tcp: masked-LM pre-training on the target corpus, to start mono from."),
    ],
    config: ConfigPath,
    overrides: Overrides = None,
    output: Output = None,
    folds: Annotated[
        int | None,
        typer.Option(min=2, help="Cross-validation: train as often, each time hold out a part, and measure all parts."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Validate and print the plan, then exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: print one JSON object.")] = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Train a re-ranker (docs/guide/training.md). The same command resumes an interrupted training.

    Several GPUs: torchrun --nproc-per-node 4 --no-python beamrank train mono config.yaml
    """
    if missing := [name for name in ("accelerate", "datasets") if find_spec(name) is None]:
        raise PreflightError(f"training needs {' and '.join(missing)}: pip install 'beamrank[train]'")
    from models.training.config import load_train_config
    from models.training.folds import GIVEN, POOLED, fold_configs, rank_held_out, write_pooled
    from models.training.processes import joined_processes
    from models.training.session import Session, plan_training
    from pipelines.plan.named_inputs import named_training

    if as_json and not dry_run:
        raise ConfigError("--json needs --dry-run")
    if folds is None:
        configs = [load_train_config(config, model.value, overrides or (), output)]
    else:
        configs = fold_configs(config, model.value, overrides or (), output, folds)
    with joined_processes(configs[0].device) as processes:
        console = console_progress(verbose and processes.first, quiet or not processes.first)
        configs = [named_training(each, console) for each in configs]
        done: list[Fold] = []
        for settings in configs:
            session = Session(settings, model.value, processes, dry_run=dry_run)
            for line in session.lines():
                console.note(line)
            if dry_run:
                if processes.first:
                    _show(plan_training(session), as_json)
                return
            with run_log(console.events()):
                code = _train(session, console)
            if code:
                raise typer.Exit(code)
            if folds is not None and processes.first:
                done.append(rank_held_out(session))
        if done and settings.dev is not None:
            place = storage.parent(settings.output)
            table = write_pooled(done, place, settings.dev.measure)
            print_result(table, None, "table")
            console.note(f"wrote {storage.join(place, POOLED)} and {storage.join(place, GIVEN)}")


def _train(session: "Session", console: ConsoleProgress) -> int:
    """Trains, or resumes; returns the exit code."""
    from models.training.trainer import train

    output, command = session.config.output, shlex.join(["beamrank", *sys.argv[1:]])
    open_in_output(output)
    if session.before.finished:
        train(session, lambda: False, console, command)
        console.note(f"{output} is already trained ({session.before.step:,} steps)")
        return 0
    signals = _Signals()
    with signals.caught(), console.bar(f"train {session.kind}") as bar:
        progress = train(session, signals.received, bar, command)
    if not progress.finished:
        console.note(f"interrupted after step {progress.step:,}: run the same command again to resume")
        return 128 + (signals.number or signal.SIGTERM)
    console.note(f"wrote {output}")
    return 0


def _show(plan: dict[str, object], as_json: bool) -> None:
    if as_json:
        print(json.dumps(plan))
        return
    rows = [[name, line] for name, value in plan.items() for line in _text(value).splitlines()]
    print_table([f"train {plan['kind']}", "value"], rows)


def _text(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, dict):
        return ", ".join(f"{name} x {weight:g}" for name, weight in value.items())
    return "\n".join(value) if isinstance(value, list) else str(value)
