"""The command line: `beamrank COMMAND`. Data goes to standard output, messages to standard error."""

import os
import re
from typing import Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from beamrank import __version__
from beamrank.errors import BeamrankError
from beamrank.printable import printable
from beamrank.storage.url_credentials import refuse_credentials
from pipelines.commands.aggregate import aggregate
from pipelines.commands.compare import compare
from pipelines.commands.convert import group as convert
from pipelines.commands.demo import demo
from pipelines.commands.doctor import doctor
from pipelines.commands.eval import eval_run
from pipelines.commands.fuse import fuse_runs
from pipelines.commands.gc import gc
from pipelines.commands.index import index
from pipelines.commands.inspect import inspect
from pipelines.commands.lint import lint
from pipelines.commands.plan import plan
from pipelines.commands.report import report
from pipelines.commands.run import run
from pipelines.commands.score import score
from pipelines.commands.stats import stats
from pipelines.commands.status import status
from pipelines.commands.train import train
from pipelines.commands.verify import verify
from pipelines.console.terminal import READER_GONE, reader_is_gone

_OPTION = re.compile(r"(?P<option>--[a-z-]+)(?:=|$)")
_KEY = re.compile(r"(?:--set=)?(?P<key>[a-z_0-9]+(?:\.[a-z_0-9]+)*)=")


class _Commands(TyperGroup):
    """The commands. Arguments that can carry a credential are refused before typer, which repeats arguments."""

    def make_context(self, info_name: str | None, args: list[str], *others: Any, **extra: Any) -> Any:
        """Checks the arguments, and the place of the cache, before anything else reads them.

        Raises:
            ConfigError: one can carry a credential.
        """
        refuse_credentials(os.environ.get("BEAMRANK_CACHE", ""), "BEAMRANK_CACHE")
        for before, argument in zip(["", *args], args, strict=False):
            refuse_credentials(argument, _place(before, argument))
        return super().make_context(info_name, args, *others, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Runs a command; ends quietly on a broken pipe of standard output, as other tools do."""
        try:
            return super().invoke(ctx)
        except TyperException as error:
            error.message = printable(error.message)
            raise
        except BrokenPipeError as error:
            if reader_is_gone():
                raise typer.Exit(READER_GONE) from error
            # Typer would take it for a broken pipe of standard output, and end without a message.
            raise BeamrankError(f"a connection was lost: {error}. Run the same command again") from error


def _place(before: str, argument: str) -> str:
    """The name of an argument in a message that must not repeat it."""
    named = _OPTION.match(argument) or _OPTION.fullmatch(before)
    key = _KEY.match(argument) if named and named["option"] == "--set" else None
    return " ".join(filter(None, (named["option"] if named else "an argument", key and key["key"])))


app = typer.Typer(
    name="beamrank",
    cls=_Commands,
    help="Distributed batch re-ranking on Apache Beam: BM25, monoBERT and duoBERT, from topics to TREC runs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo)
app.command("index")(index)
app.command("plan")(plan)
app.command("run", context_settings={"allow_extra_args": True})(run)
app.command("score")(score)
app.command("status")(status)
app.command("verify")(verify)
app.command("gc")(gc)
app.command("aggregate")(aggregate)
app.command("eval")(eval_run)
app.command("compare")(compare)
app.command("fuse")(fuse_runs)
app.command("lint")(lint)
app.command("stats")(stats)
app.command("inspect")(inspect)
app.command("report")(report)
app.command("train")(train)
app.add_typer(convert, name="convert")
app.command("doctor")(doctor)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"beamrank {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Batch re-ranking with monoBERT and duoBERT."""
