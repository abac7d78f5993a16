"""Writes what follows from the code: commands, keys, checks, messages of errors, hooks, Python's
names, the picture of the pipeline, and an index for language models.

python -m docs.generate
"""

import re
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer.main
from pydantic.fields import FieldInfo

from beamrank.config.cascade import PLUGINS
from beamrank.config.run import JobConfig, RunConfig
from beamrank.config.stages import StageConfig
from beamrank.section import OneOf, Section, keys
from contrib.lint.check import TRACKS, Track
from contrib.lint.registry import CHECKS
from docs.error_messages import errors
from docs.hooks import hooks
from docs.index_text import index_text
from docs.pipeline_picture import picture
from docs.python_page import python
from docs.stages_page import stages
from models.training.config import TrainConfig
from pipelines.cli import app

_DOCS = Path(__file__).resolve().parent
_SHARED_BY = 2
_UNGROUPED = "Without a section"
_USUAL = ": The columns or fields, where they do not have the usual names.\n"
_COMMANDS = """# Command line

Standard output has the data, standard error the messages. Troubleshooting lists the [exit
codes](../guide/troubleshooting.md#exit-codes). `make docs` writes this page from the commands.

"""
_TRACKS = """| track | first rank | run tag | query_id | doc_id | docs per query |
|---|---|---|---|---|---|
"""


def command_line() -> str:
    """The page of all commands, their arguments and options."""
    group: Any = typer.main.get_command(app)
    commands = list(_commands(group))
    times = Counter(_line(each) for _, command in commands for each in command.params)
    often = [line for line, count in times.items() if count >= _SHARED_BY]
    names = Counter(line.split()[1] for line in often)
    shared = [line for line in often if names[line.split()[1]] == 1]
    panels = (
        f"- {panel}: {', '.join(f'[{name}](#{_first(group, name)})' for name in names)}\n"
        for panel, names in group.panels().items()
    )
    sections = ["".join(panels), f"Several commands share these:\n\n{''.join(shared)}"]
    for name, command in commands:
        usage = " ".join(["beamrank", name, *filter(None, map(_in_usage, command.params))])
        sections.append(f"## {name}\n\n`{usage}`\n\n{_plain(command.help)}\n")
        own = [_line(each) for each in command.params if _line(each) not in shared]
        common = [
            f"`{each.opts[0]}`"
            for each in command.params
            if _line(each) in shared and each.opts[0][0] == "-"
        ]
        sections.append("".join([*own, f"- {', '.join(common)}\n" if common else ""]))
    return _COMMANDS + "\n".join(filter(None, sections))


def _first(group: Any, name: str) -> str:
    """The anchor of a command, or of the first one of a group."""
    inner = getattr(group.commands[name], "commands", None)
    return f"{name}-{next(iter(inner))}" if inner else name


def _line(parameter: Any) -> str:
    """What an argument or option means, as an item of a list."""
    default = "" if parameter.required else _default(parameter)
    return (
        f"- {_name(parameter)}{f' ({default})' if default else ''}: "
        f"{_plain(parameter.help or '')}\n"
    )


def _commands(group: Any) -> Iterator[tuple[str, Any]]:
    """Every command with its full name; those of a group follow each other."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from ((f"{name} {each}", inner) for each, inner in _commands(command))
        else:
            yield name, command.load()


def _in_usage(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return _value(parameter) if parameter.required else f"[{_value(parameter)}]"
    return f"{parameter.opts[0]} {_value(parameter)}" if parameter.required else ""


def _name(parameter: Any) -> str:
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    if parameter.param_type_name == "argument":
        names = _value(parameter)
    elif not parameter.is_flag:
        names = f"{names} {_value(parameter)}"
    return "`" + names.replace(", ", "`, `") + "`"


def _value(parameter: Any) -> str:
    """What an argument or option takes, as help texts show it."""
    kind = parameter.type_descriptor.annotation
    if parameter.metavar:
        return f"{parameter.metavar}{'...' * (parameter.nargs == -1)}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "{" + ",".join(each.value for each in kind) + "}"
    if get_origin(kind) is Literal:
        return "{" + ",".join(get_args(kind)) + "}"
    return {int: "N", float: "X"}.get(kind, "TEXT")


def _default(parameter: Any) -> str:
    if parameter.default in (None, False, ""):
        return ""
    if parameter.default is True:
        return f"`{parameter.opts[0]}`"
    return f"`{getattr(parameter.default, 'value', parameter.default)}`"


def _plain(text: str) -> str:
    """A help text with its paragraphs joined and its mentions of pages as links."""
    joined = "\n\n".join(
        " ".join(each.split()) for each in re.split(r"\n\n+", (text or "").strip())
    )
    return re.sub(
        r"docs/(\w+)/([\w-]+)\.md",
        lambda page: f"[{page[2]}.md](../{page[1]}/{page[2]}.md)",
        joined,
    )


def configuration(name: str, model: type[Section]) -> str:
    """The page of a configuration, with its keys from the model, in a list for each section; for a
    run also those of packages' stages.

    Keys of a training that are those of a run are left out.
    """
    page = (_DOCS / "reference" / name).read_text(encoding="utf-8")
    shown = (
        set()
        if model is RunConfig
        else {(key, _meaning(field)) for key, field in keys(RunConfig) if "." in key}
    )
    # The model's own keys, then those that it shares with others.
    shared = {*JobConfig.model_fields} if issubclass(model, JobConfig) else set()
    ordered = sorted(keys(model), key=lambda each: each[0].partition(".")[0] in shared)
    of_stages = list(_stage_keys()) if model is RunConfig else []
    rows = {key: _meaning(field) for key, field in [*ordered, *of_stages]}
    own = [
        (key, row)
        for key, row in rows.items()
        if not {(key, row), (key.partition(".")[2], row)} & shown
    ]
    sections: dict[str, dict[str, list[str]]] = {"": {}}
    for key, meaning in own:
        nested = "." in key or key == "cascade"
        section = key.partition(".")[0] if nested else ""
        usual = ".columns." in key
        items = sections.setdefault(section, {})
        items.setdefault(_USUAL if usual else meaning, []).append(f"`{key}`")
    lists = [
        "".join(f"- {', '.join(names)}{meaning}" for meaning, names in items.items())
        for items in sections.values()
    ]
    written = "\n".join(
        f"### {section or _UNGROUPED}\n\n{items}"
        for section, items in zip(sections, lists, strict=True)
        if items
    )
    return _between(page, "keys", written)


def _stage_keys() -> Iterator[tuple[str, FieldInfo]]:
    """The keys of the stages that packages bring for `cascade`; others have no section."""
    for kind, stage in sorted(PLUGINS.importable().items()):
        if stage.section is not StageConfig:
            yield from keys(stage.section, f"{kind}.")


def _meaning(field: FieldInfo) -> str:
    values = _values(field.annotation, *field.metadata)
    choices = f" Values: {', '.join(f'`{each}`' for each in values)}." if values else ""
    default = _shown(field)
    return f"{f' ({default})' if default else ''}: {_plain(field.description or '')}{choices}\n"


def _values(*annotations: Any) -> list[str]:
    """The values that a key may have, if they are listed."""
    for each in annotations:
        if isinstance(each, OneOf):
            return list(each.names)
        if get_origin(each) is Literal:
            return list(get_args(each))
        if found := _values(*get_args(each)):
            return found
    return []


def _shown(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    values = default if isinstance(default, tuple) else (default,)
    shown = (
        f"`{str(each).lower() if isinstance(each, bool) else each}`"
        for each in values
        if each not in (None, {}, "")
    )
    return " ".join(shown)


def lint() -> str:
    """The page of the checks of run files, with the codes and tracks."""
    page = (_DOCS / "reference/lint.md").read_text(encoding="utf-8")
    codes = [
        f"- `{code}` {check.severity}: {check.summary}{_fix(check)}\n"
        for code, check in sorted(CHECKS.items())
    ]
    tracks = [_TRACKS, *(_track(*each) for each in TRACKS.items())]
    return _between(_between(page, "codes", "".join(codes)), "tracks", "".join(tracks))


def _fix(check: Any) -> str:
    if check.blocks_fix:
        return " (blocks `--fix`)"
    return f" (`--fix` {check.fix})" if check.fix else ""


def _between(page: str, name: str, text: str) -> str:
    """A page with this text between the two marks of a name."""
    start, mark, rest = page.partition(f"<!-- {name}, written by make docs -->\n")
    _, end, after = rest.partition(f"<!-- end of {name} -->\n")
    assert end, f"no marks for {name}"
    return f"{start}{mark}\n{text}\n{end}{after}"


def _track(name: str, track: Track) -> str:
    ranks = " or ".join(map(str, track.first_ranks))
    rules = [
        pattern and f"`{pattern.decode()}`"
        for pattern in (track.run_tag, track.query_id, track.doc_id)
    ]
    most = track.max_docs and f"at most {track.max_docs:,}"
    cells = [(cell or "").replace("|", "\\|") for cell in (f"`{name}`", ranks, *rules, most)]
    return f"| {' | '.join(cells)} |\n"


def generated() -> dict[Path, str]:
    """The text of each generated file."""
    return {
        _DOCS / "reference/configuration.md": configuration("configuration.md", RunConfig),
        _DOCS / "reference/training.md": configuration("training.md", TrainConfig),
        _DOCS / "reference/cli.md": command_line(),
        _DOCS / "reference/lint.md": lint(),
        _DOCS / "reference/python.md": python(),
        _DOCS / "reference/errors.md": errors(),
        _DOCS / "internals/hooks.md": hooks(),
        _DOCS / "reference/stages.md": stages(),
        _DOCS / "pictures/pipeline.svg": picture(),
        _DOCS / "llms.txt": index_text(),
    }


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
