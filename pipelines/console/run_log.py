"""Sets up the log of a command that runs something: a file under the run's output, and the terminal where verbose."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from beamrank.commit.plan import Plan
from beamrank.logs import logging_run, open_in_output
from beamrank.version import __version__
from pipelines.console.progress import ConsoleProgress
from pipelines.console.terminal import write_error

_log = logging.getLogger(__name__)


@contextmanager
def run_log(console: ConsoleProgress) -> Iterator[None]:
    """Logs what happens in the `with` block, with the traceback of the error that ends it.

    An error found before the run has an output leaves no log file.
    """
    with logging_run() as log, console.events():
        try:
            yield
        except BaseException as error:
            if isinstance(error, Exception):
                _log.error("failed: %s", error, exc_info=True)
            else:
                _log.warning("interrupted")
            if log.url is not None:
                error.add_note(f"log file: {log.url}")
            raise


def open_log_in(output: str) -> None:
    """Puts the log under an output folder; where that fails, there is no log."""
    try:
        open_in_output(output)
    except OSError as error:
        write_error(f"warning: there will be no log of this run: {error}")


def open_run_log(plan: Plan) -> None:
    """Puts the log under the output of a plan."""
    open_log_in(plan.output)
    stages = ", ".join(stage.name for stage in plan.stages)
    _log.info("beamrank %s runs plan %s into %s", __version__, plan.digest[:12], plan.output)
    _log.info("topics: %d, shards: %d, stages: %s", len(plan.topics), len(plan.shards), stages)
