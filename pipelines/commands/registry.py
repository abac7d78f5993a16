"""The commands: ours in a table, those of plugins through entry points. Each is imported when it is called."""

import ast
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from beamrank.errors import PreflightError
from beamrank.plugins import load_entry, package_of

ENTRY_POINTS = "beamrank.commands"
"""The group of entry points: `NAME = "module:function"`, or `GROUP.NAME` for `beamrank GROUP NAME`."""
GROUPS = {"convert": "Convert checkpoints, data and collections from or to other formats."}

_OURS = {
    "demo": "pipelines.commands.first_steps:demo",
    "index": "pipelines.commands.run:index",
    "plan": "pipelines.commands.plan:plan",
    "run": "pipelines.commands.run:run",
    "score": "pipelines.commands.score:score",
    "status": "pipelines.commands.output:status",
    "verify": "pipelines.commands.output:verify",
    "gc": "pipelines.commands.output:gc",
    "aggregate": "pipelines.commands.output:aggregate",
    "eval": "pipelines.commands.evaluate:eval_run",
    "compare": "pipelines.commands.evaluate:compare",
    "inspect": "pipelines.commands.inspect:inspect",
    "report": "pipelines.commands.report:report",
    "train": "pipelines.commands.train:train",
    "doctor": "pipelines.commands.first_steps:doctor",
}


def find_commands() -> dict[str, list[EntryPoint]]:
    """The commands by name; a name has several entry points if packages disagree about it."""
    ours = (EntryPoint(name, target, ENTRY_POINTS) for name, target in _OURS.items())
    found: dict[str, list[EntryPoint]] = {}
    for each in (*ours, *entry_points(group=ENTRY_POINTS)):
        found.setdefault(each.name, []).append(each)
    return found


def short_help(entries: Sequence[EntryPoint]) -> str:
    """The first paragraph of a command's docstring, read without importing its module: that can take seconds."""
    try:
        spec = find_spec(entries[0].module)
        source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        functions = (each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef))
        function = next(each for each in functions if each.name == entries[0].attr)
    except (ImportError, OSError, SyntaxError, StopIteration):
        return f"(cannot be imported from {package_of(entries[0])})"
    return (ast.get_docstring(function) or "").partition("\n\n")[0]


def load_command(name: str, entries: Sequence[EntryPoint]) -> Any:
    """The command, as typer makes it; one that takes a typer.Context also takes arguments after `--`.

    Raises:
        PreflightError: it cannot be imported, or two packages have a command of this name.
    """
    if len(entries) > 1:
        packages = " and ".join(map(package_of, entries))
        raise PreflightError(f"{packages} both have a command {name!r}: uninstall one of them")
    function = load_entry(entries[0], "command")
    extra = typer.Context in getattr(function, "__annotations__", {}).values()
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(name.rpartition(".")[2], context_settings={"allow_extra_args": extra})(function)
    return typer.main.get_command(app)
