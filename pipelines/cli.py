"""The command line: `beamrank COMMAND`. Standard output is data, standard error is talk."""

import logging
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import typer

from beamrank import __version__
from beamrank.errors import BeamrankError
from pipelines.commands.aggregate import aggregate
from pipelines.commands.demo import demo
from pipelines.commands.doctor import doctor
from pipelines.commands.eval import eval_run
from pipelines.commands.index import index
from pipelines.commands.plan import plan
from pipelines.commands.run import run
from pipelines.commands.status import status
from pipelines.runners import prepare_environment
from pipelines.watch import end_children

app = typer.Typer(
    name="beamrank",
    help="Distributed batch re-ranking on Apache Beam: BM25, monoBERT and duoBERT, from topics to TREC runs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo)
app.command("index")(index)
app.command("plan")(plan)
app.command("run", context_settings={"allow_extra_args": True})(run)
app.command("status")(status)
app.command("aggregate")(aggregate)
app.command("eval")(eval_run)
app.command("doctor")(doctor)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"beamrank {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Re-rank in bulk."""


class _Terminated(BaseException):
    """SIGTERM arrived."""


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise _Terminated


def main() -> NoReturn:
    """The console script."""
    prepare_environment()
    # Beam and its friends warn of much that is not the user's business; what matters is raised.
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, _terminate)
    _leave(_run())


def _run() -> int:
    try:
        app(standalone_mode=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    except BeamrankError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, _Terminated) as interruption:
        print("interrupted: finished shards are kept; run the same command again to resume", file=sys.stderr)
        return 130 if isinstance(interruption, KeyboardInterrupt) else 143
    return 0


def _leave(code: int) -> NoReturn:
    """Ends the process at once: a pipeline that hangs would keep its threads, and so this process, for ever."""
    sys.stdout.flush()
    sys.stderr.flush()
    end_children()
    os._exit(code)


if __name__ == "__main__":
    main()
