"""`beamrank train mono|duo|tcp CONFIG`: fine-tunes a re-ranker, or resumes an interrupted
training.
"""

import contextlib
import json
import shlex
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from beamrank.errors import ConfigError, PreflightError
from beamrank.logs import open_in_output, run_log
from beamrank.storage import files as storage
from pipelines.commands.arguments import (
    ConfigPath,
    Output,
    Overrides,
    Quiet,
    Verbose,
    console_progress,
)
from pipelines.console.progress import ConsoleProgress
from pipelines.console.tables import print_result, print_table
from pipelines.runners.workers import INTERRUPTIONS

if TYPE_CHECKING:
    from beamrank.ranking.rankings import Rankings
    from models.training.dev import DevSet
    from models.training.session import Session


@contextlib.contextmanager
def _received_signals() -> Iterator[list[int]]:
    """The signals so far: the first Ctrl-C, SIGTERM or SIGHUP stops the training after its step,
    the second at once.
    """
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in INTERRUPTIONS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def remember(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        restore()
        # A lost terminal sends several.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, remember)
    try:
        yield received
    finally:
        restore()


def train(
    model: Annotated[
        Literal["mono", "duo", "tcp"],
        typer.Argument(
            help="What to train; tcp: masked-LM pre-training on the target corpus, to start mono "
            "from."
        ),
    ],
    config: ConfigPath,
    overrides: Overrides = None,
    output: Output = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Cross-validation: train N models, each without one part of the topics, and "
            "measure all parts.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Validate and print the plan, then exit.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --dry-run: print one JSON object.")
    ] = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Train a re-ranker (docs/guide/training.md). The same command resumes an interrupted training.

    Several GPUs: torchrun --nproc-per-node 4 --no-python beamrank train mono config.yaml
    """
    if missing := [name for name in ("accelerate", "datasets") if find_spec(name) is None]:
        raise PreflightError(f"training needs {' and '.join(missing)}: pip install '.[train]'")
    from models.scoring.backends.torch import cpu_warning
    from models.training.config import fold_configs, load_train_config
    from models.training.dev import POOLED, POOLED_GIVEN, rank_held_out, write_pooled
    from models.training.session import Session, join_processes, plan_training
    from pipelines.plan.named_inputs import named_training

    if as_json and not dry_run:
        raise ConfigError("--json needs --dry-run")
    if folds is None:
        configs = [load_train_config(config, model, overrides or (), output)]
    else:
        configs = fold_configs(config, model, overrides or (), output, folds)
    processes = join_processes(configs[0].device)
    first = processes.is_main_process
    console = console_progress(verbose and first, quiet or not first)
    if warning := cpu_warning(configs[0].device, processes.device.type):
        console.warn(warning)
    done: list[tuple[DevSet, Rankings]] = []
    for settings in [named_training(config, console) for config in configs]:
        session = Session(settings, model, processes, dry_run=dry_run)
        for line in session.lines():
            console.note(line)
        if dry_run:
            if first:
                _show(plan_training(session), as_json)
            break
        with run_log(console.events()):
            code = _train(session, console)
        if code:
            raise typer.Exit(code)
        if folds is not None and first and session.dev is not None:
            reranked = rank_held_out(session.dev, settings.output, processes.device.type)
            done.append((session.dev, reranked))
    if done:
        place = storage.parent(settings.output)
        print_result(write_pooled(done, place), None, "table")
        console.note(f"wrote {storage.join(place, POOLED)} and {storage.join(place, POOLED_GIVEN)}")
    # Not after an error: other processes may be waiting for this one, and torchrun ends them.
    processes.destroy_process_group()


def _train(session: "Session", console: ConsoleProgress) -> int:
    """Trains, or resumes; returns the exit code."""
    from models.training.trainer import train

    output, command = session.config.output, shlex.join(["beamrank", *sys.argv[1:]])
    open_in_output(output)
    if session.before.finished:
        train(session, lambda: False, console, command)
        console.note(f"{output} is already trained ({session.before.step:,} steps)")
        return 0
    with _received_signals() as received, console.bar(f"train {session.kind}") as bar:
        progress = train(session, lambda: bool(received), bar, command)
    if not progress.finished:
        console.note(
            f"interrupted after step {progress.step:,}: run the same command again to resume"
        )
        return 128 + next(iter(received), signal.SIGTERM)
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
