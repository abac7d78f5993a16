"""Runs the examples of a page and compares what they print with what the page shows.

A `console` block holds commands (`$ ...`), each with its standard output. A `python` block holds
code, with its output in a `text` block below. They run in order, in one folder. In an output, a
line `...` matches any lines, and `...` inside a line any text. The comment `<!-- not run: REASON
-->` above a block excludes it: its commands are only parsed.

    python -m tests.support.docs.examples PAGE...     # rewrites the outputs that differ
"""

import ast
import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import typer.main

from beamrank.errors import BeamrankError
from pipelines.cli import LazyCommand, app
from tests import ROOT

_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+) "
    r"-->\n+)?^(?P<fence>```+)(?P<language>\w+)\n(?P<body>.*?)^(?P=fence)$",
    re.DOTALL | re.MULTILINE,
)
_TERMINAL = {"COLUMNS": "110", "TERM": "dumb", "NO_COLOR": "1"}


class Example(NamedTuple):
    """A command or a piece of Python, what its page shows below it, and the place of that in the
    page.
    """

    page: str
    source: str
    language: str
    reason: str | None
    shown: str | None
    start: int
    end: int


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def pages() -> list[str]:
    """The pages whose examples are run; the first two show what has not been run before."""
    guide = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs/guide").glob("*.md"))
    return list(dict.fromkeys(["README.md", "docs/guide/quickstart.md", *guide]))


def examples_of(page: str) -> list[Example]:
    """The examples of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(text))
    found: list[Example] = []
    for block, following in zip_longest(blocks, blocks[1:]):
        if block["language"] == "console":
            found += _commands(page, block)
        elif block["language"] == "python":
            output = following if following and following["language"] == "text" else None
            shown, start, end = (
                (output["body"], *output.span("body")) if output else ("", block.end(), block.end())
            )
            found.append(Example(page, block["body"], "python", block["reason"], shown, start, end))
    return found


def _commands(page: str, block: re.Match[str]) -> Iterator[Example]:
    """The commands of a block; one without lines below it has no output to compare."""
    for part in re.finditer(
        r"^\$ (?P<command>(?:.*\\\n)*.*)\n(?P<output>(?:(?!\$ ).*\n)*)", block["body"], re.MULTILINE
    ):
        start, end = (block.start("body") + each for each in part.span("output"))
        command = re.sub(r"\\\n\s*", "", part["command"])
        yield Example(page, command, "console", block["reason"], part["output"] or None, start, end)


def prepare(folder: Path) -> None:
    """Copies what the examples use."""
    for name in ("examples", "configs"):
        ignored = shutil.ignore_patterns("index", "out*", ".index*", "trial", "reranked")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored, dirs_exist_ok=True)


def run(example: Example, namespace: dict[str, Any]) -> str:
    """Runs an example in the current folder; its standard output."""
    if example.language == "python":
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(example.source, namespace)
        return printed.getvalue()
    words = shlex.split(example.source, comments=True)
    if words[0] == "cd":
        os.chdir(words[1])
        return ""
    if words[0] != "beamrank" or {"|", "||", "&&"} & {*words}:
        command = ["bash", "-euo", "pipefail", "-c", example.source]
        return subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env=_environment()
        ).stdout
    return _beamrank(words[1:])


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        **_TERMINAL,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


def _beamrank(arguments: list[str]) -> str:
    """The command line in this process, as at a terminal."""
    said = io.StringIO()
    with (
        patch.dict(os.environ, _TERMINAL),
        contextlib.redirect_stdout(_Terminal()) as printed,
        contextlib.redirect_stderr(said),
    ):
        code: object = None
        try:
            app(arguments)
        except SystemExit as end:
            code = end.code
        except BeamrankError as error:
            code = error
    assert not code, f"{arguments}: {code}\n{said.getvalue()}"
    lines = printed.getvalue().replace(os.getcwd() + "/", "").splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def parse(example: Example) -> None:
    """Parses the `beamrank` command of an example that is not run.

    Raises:
        TyperException: it has an unknown command or option.
    """
    words = shlex.split(example.source, comments=True)
    if "beamrank" not in words:
        return
    command, arguments = typer.main.get_command(app), words[words.index("beamrank") + 1 :]
    while commands := getattr(command, "commands", None):
        name, *arguments = arguments
        command = commands[name]
        command = command.load() if isinstance(command, LazyCommand) else command
    command.make_context(name, arguments)


def matches(shown: str, printed: str) -> bool:
    """Whether an output is what a page shows."""
    lines = (
        "(?:.*\n)*?" if line == "...\n" else re.escape(line).replace(r"\.\.\.", ".*")
        for line in shown.splitlines(keepends=True)
    )
    return re.fullmatch("".join(lines), printed) is not None


def _updated(shown: str, printed: str) -> str:
    """The output, with the lines of the page that still match it and hold `...`."""
    kept = [line for line in shown.splitlines(keepends=True) if "..." in line and line != "...\n"]
    return "".join(
        next((line for line in kept if matches(line, new)), new)
        for new in printed.splitlines(keepends=True)
    )


def _rewrite(page: str, namespace: dict[str, Any]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    changed: list[tuple[Example, str]] = []
    for example in examples_of(page):
        if example.reason:
            parse(example)
            continue
        printed = run(example, namespace)
        if example.shown is not None and not matches(example.shown, printed):
            changed.append((example, _updated(example.shown, printed)))
    for example, printed in reversed(changed):
        text = text[: example.start] + printed + text[example.end :]
        print(f"{page}: {example.source}", file=sys.stderr)
    (ROOT / page).write_text(text, encoding="utf-8")


def run_cells(path: Path) -> list[tuple[str, str, str]]:
    """Of each code cell of a notebook: its source, what it shows now, and what the file shows."""
    namespace: dict[str, Any] = {}
    cells = [
        cell
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]
    found = []
    for cell in cells:
        source = "".join(cell["source"])
        found.append((source, _shown(source, namespace), "".join(map(_text_of, cell["outputs"]))))
    return found


def _shown(source: str, namespace: dict[str, Any]) -> str:
    body = ast.parse(source).body
    last: Any = body.pop() if isinstance(body[-1], ast.Expr) else ast.parse("None").body[0]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.Module(body, []), "<cell>", "exec"), namespace)
        value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
    return printed.getvalue() + ("" if value is None else repr(value))


def _text_of(output: dict[str, Any]) -> str:
    return "".join(
        output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        prepare(Path(scratch))
        for each in sys.argv[1:] or pages():
            os.chdir(scratch)
            _rewrite(each, {})
