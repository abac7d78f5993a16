"""The command line: `beamrank COMMAND`. Data goes to standard output, messages to standard error.

Our commands are in a table, plugins' commands are entry points; each is imported when it is called.
"""

import ast
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from beamrank.errors import BeamrankError, ConfigError, PreflightError
from beamrank.plugins import load_entry, package_of
from beamrank.storage.urls import printable, refuse_credentials
from beamrank.version import __version__
from pipelines.console.terminal import READER_GONE, reader_is_gone

ENTRY_POINTS = "beamrank.commands"
"""The group of entry points: `NAME = "module:function"`, or `GROUP.NAME` for `beamrank GROUP NAME`.
A constant of the module, `HELP_PANEL = "Evaluate"`, names the part of `beamrank --help`.
"""
GROUPS = {"convert": "Convert checkpoints, data and collections from or to other formats."}

_OURS = {
    "Run": {
        "index": "pipelines.commands.run:index",
        "plan": "pipelines.commands.run:plan",
        "run": "pipelines.commands.run:run",
    },
    "Look": {
        "status": "pipelines.commands.output:status",
        "report": "pipelines.commands.report:report",
    },
    "Evaluate": {
        "eval": "pipelines.commands.evaluate:eval_run",
        "compare": "pipelines.commands.evaluate:compare",
        "aggregate": "pipelines.commands.output:aggregate",
    },
    "Data and models": {"train": "pipelines.commands.train:train"},
    "Tools": {
        "verify": "pipelines.commands.output:verify",
        "gc": "pipelines.commands.output:gc",
    },
}
_PANEL_OF = {target: panel for panel, commands in _OURS.items() for target in commands.values()}
_OTHERS = "Others"


def find_commands() -> dict[str, list[EntryPoint]]:
    """The commands by name; a name has several entry points if packages disagree about it."""
    named = (command for commands in _OURS.values() for command in commands.items())
    ours = (EntryPoint(name, target, ENTRY_POINTS) for name, target in named)
    commands: dict[str, list[EntryPoint]] = {}
    for entry in (*ours, *entry_points(group=ENTRY_POINTS)):
        commands.setdefault(entry.name, []).append(entry)
    return commands


def describe(entries: Sequence[EntryPoint]) -> tuple[str, str]:
    """The part of the help that a command belongs to, and the first paragraph of its docstring,
    read without importing its module: that can take seconds.
    """
    try:
        spec = find_spec(entries[0].module)
        source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        body = ast.parse(source).body
        functions = (node for node in body if isinstance(node, ast.FunctionDef))
        function = next(function for function in functions if function.name == entries[0].attr)
    except Exception:  # Python imports the package around the module, which can fail in any way.
        return _OTHERS, f"(cannot be imported from {package_of(entries[0])})"
    panel = _PANEL_OF.get(entries[0].value, _OTHERS)
    for node in body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id="HELP_PANEL")], value=ast.Constant(value=str(named))
            ):
                panel = named
    return panel, (ast.get_docstring(function) or "").partition("\n\n")[0]


def load_command(name: str, entries: Sequence[EntryPoint]) -> Any:
    """The command, as typer makes it; one that takes a typer.Context also takes arguments after
    `--`.
    """
    if len(entries) > 1:
        packages = " and ".join(map(package_of, entries))
        raise PreflightError(f"{packages} both have a command {name!r}: uninstall one of them")
    function = load_entry(entries[0], "command")
    extra = typer.Context in getattr(function, "__annotations__", {}).values()
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(name.rpartition(".")[2], context_settings={"allow_extra_args": extra})(function)
    command = typer.main.get_command(app)
    for parameter in command.params:
        parameter.process_value = partial(_plain, parameter.process_value)  # type: ignore[method-assign]
    return command


def _plain(process: Callable[[Any, Any], Any], context: Any, text: Any) -> Any:
    """The value of an option; a number has no underscore, which typer would read over."""
    value = process(context, text)
    if isinstance(text, str) and "_" in text and isinstance(value, int | float):
        raise typer.BadParameter(f"{text!r} is not a number: write it without underscores")
    return value


_BY_PRICE = "multiply `remaining_seconds` of `plan --json` by the price of a machine"
# Advice in place of the options that commands of earlier versions had.
REMOVED = {
    ("plan", "--price"): _BY_PRICE,
    ("plan", "--machine"): _BY_PRICE,
    ("plan", "--machines"): "divide `remaining_seconds` of `plan --json` by the workers",
    ("plan", "--save"): "keep what `plan --json` prints",
    ("report", "--exclude"): "set `exclude` in the section of the run's first stage",
}

_OPTION = re.compile(r"(?P<option>--[a-z-]+)(?:=|$)")
_KEY = re.compile(r"(?:--set=)?(?P<key>[a-z_0-9]+(?:\.[a-z_0-9]+)*)=")


class LazyCommand(TyperCommand):
    """A command whose module is not imported yet."""

    def __init__(self, name: str, entries: Sequence[EntryPoint]) -> None:
        super().__init__(name.rpartition(".")[2])
        self._full_name, self._entries = name, entries

    def load(self) -> Any:
        """The command itself; see `load_command`."""
        return load_command(self._full_name, self._entries)

    def get_short_help_str(self, limit: int = 45) -> str:
        self.rich_help_panel, self.help = describe(self._entries)
        return super().get_short_help_str(limit)


class LazyGroup(TyperGroup):
    """A group of commands that are imported when they are called, or for their own help."""

    def get_short_help_str(self, limit: int = 45) -> str:
        panels = list(self.panels(limit))
        self.rich_help_panel = panels[0] if panels else None
        return super().get_short_help_str(limit)

    def panels(self, limit: int = 45) -> dict[str, dict[str, str]]:
        """The parts of the help, ours first: the short help of each command by its name."""
        panels: dict[str, dict[str, str]] = {panel: {} for panel in _OURS}
        for name, command in self.commands.items():
            text = command.get_short_help_str(limit)
            panel = getattr(command, "rich_help_panel", None) or _OTHERS
            panels.setdefault(panel, {})[name] = text
        return {panel: commands for panel, commands in panels.items() if commands}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest


class _Commands(LazyGroup):
    """All commands. Arguments that can carry a credential are refused before typer, which repeats
    arguments.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, entries in find_commands().items():
            group, _, last = name.rpartition(".")
            holder: Any = self
            if group:
                made = LazyGroup(
                    name=group, no_args_is_help=True, help=GROUPS.get(group), rich_markup_mode=None
                )
                holder = self.commands.setdefault(group, made)
            if isinstance(holder, LazyGroup):
                holder.commands[last] = LazyCommand(name, entries)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        widest = max(map(len, self.commands))
        for panel, commands in self.panels(formatter.width - 6 - widest).items():
            with formatter.section(panel):
                formatter.write_dl([(name.ljust(widest), text) for name, text in commands.items()])

    def make_context(
        self, info_name: str | None, args: list[str], *others: Any, **extra: Any
    ) -> Any:
        """Checks the arguments, and the place of the cache, before anything else reads them."""
        refuse_credentials(os.environ.get("BEAMRANK_CACHE", ""), "BEAMRANK_CACHE")
        for before, argument in zip(["", *args], args, strict=False):
            # The name of the argument, in a message that must not repeat it.
            named = _OPTION.match(argument) or _OPTION.fullmatch(before)
            key = _KEY.match(argument) if named and named["option"] == "--set" else None
            place = (named["option"] if named else "an argument", key and key["key"])
            refuse_credentials(argument, " ".join(filter(None, place)))
            if named and (instead := REMOVED.get((args[0], named["option"]))):
                raise ConfigError(
                    f"{args[0]} {named['option']} is no option any more: {instead}",
                    kind="option-removed",
                )
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
            raise BeamrankError(
                f"a connection was lost: {error}. Run the same command again"
            ) from error


app = typer.Typer(
    name="beamrank",
    cls=_Commands,
    help="Distributed batch re-ranking on Apache Beam: BM25, monoBERT and duoBERT, from topics to "
    "TREC runs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Rich takes longer to import than all else that help needs.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(shown: bool) -> None:
    if shown:
        print(f"beamrank {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Batch re-ranking with monoBERT and duoBERT."""
