"""Writes what follows from the code, the command-line reference and the picture: `python -m docs.generate`."""

import re
from enum import Enum
from pathlib import Path
from typing import Any

import typer.main

from docs.pipeline_picture import picture
from pipelines.cli import app

_DOCS = Path(__file__).resolve().parent
_CLI = """# Command line

`python -m docs.generate` writes this page from the commands: do not edit it. Standard output is data; messages,
warnings and errors go to standard error. [Exit codes](../guide/troubleshooting.md#exit-codes).
"""


def command_line() -> str:
    """The page of all commands, their arguments and options."""
    group: Any = typer.main.get_command(app)
    sections = [_CLI]
    for name, command in group.commands.items():
        parameters = command.params
        usage = " ".join(["beamrank", name, *filter(None, map(_in_usage, parameters))])
        sections.append(f"## {name}\n\n```text\n{usage}\n```\n\n{_plain(command.help)}\n")
        rows = [f"| {_name(each)} | {_meaning(each)} | {_default(each)} |\n" for each in parameters]
        sections.append("".join(["| | | default |\n|---|---|---|\n", *rows]))
    return "\n".join(sections)


def _in_usage(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return parameter.metavar if parameter.required else f"[{parameter.metavar}]"
    return f"{parameter.opts[0]} {_value(parameter)}" if parameter.required else ""


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`"
    names = ", ".join(f"`{each}`" for each in [*parameter.opts, *parameter.secondary_opts])
    return names if parameter.is_flag else names[:-1] + f" {_value(parameter)}`"


def _value(parameter: Any) -> str:
    """What an option takes, as help texts show it."""
    kind = parameter.type_descriptor.annotation
    if parameter.metavar:
        return str(parameter.metavar)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "{" + ",".join(each.value for each in kind) + "}"
    return {int: "N", float: "X"}.get(kind, "TEXT")


def _meaning(parameter: Any) -> str:
    return _plain(parameter.help or "").replace("|", "\\|")


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if parameter.default in (None, False, ""):
        return ""
    if parameter.default is True:
        return f"`{parameter.opts[0]}`"
    return f"`{getattr(parameter.default, 'value', parameter.default)}`"


def _plain(text: str) -> str:
    """A help text with its paragraphs joined and its mentions of pages as links."""
    joined = "\n\n".join(" ".join(each.split()) for each in re.split(r"\n\n+", (text or "").strip()))
    return re.sub(r"docs/(\w+)/([\w-]+)\.md", lambda page: f"[{page[2]}.md](../{page[1]}/{page[2]}.md)", joined)


def generated() -> dict[Path, str]:
    """The text of each generated file."""
    return {_DOCS / "reference/cli.md": command_line(), _DOCS / "pictures/pipeline.svg": picture()}


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
