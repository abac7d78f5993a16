"""The public names of Python, from the sources: signatures and docstrings."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

_ROOT = Path(__file__).resolve().parent.parent
_NAMES: Mapping[str, Sequence[str]] = {
    "models/reranker.py": ("beamrank.Reranker",),
    "contrib/adapters/cross_encoder.py": ("contrib.adapters.CrossEncoder",),
    "models/rerank.py": ("beamrank.rerank",),
    "pipelines/execute.py": ("beamrank.run",),
    "beamrank/api.py": (
        *("beamrank.evaluate", "beamrank.read_run"),
        *("beamrank.read_qrels", "beamrank.write_run"),
    ),
    "pipelines/runs/aggregate.py": ("beamrank.aggregate",),
    "beamrank/records.py": ("beamrank.Topic", "beamrank.Doc"),
    "beamrank/errors.py": (
        *("beamrank.errors.BeamrankError", "beamrank.errors.ConfigError"),
        *("beamrank.errors.PreflightError", "beamrank.errors.DataError"),
        *("beamrank.errors.ReceiptError", "beamrank.errors.TemporaryError"),
    ),
}
_HEAD = """# Python API

The public names with their arguments, written from the docstrings by `make docs`.
[Python](../guide/python.md) shows the functions with examples and their output.
"""
_Definition: TypeAlias = ast.FunctionDef | ast.ClassDef
_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns):$", re.MULTILINE)


def python() -> str:
    """The page."""
    sections = [_HEAD]
    for file, names in _NAMES.items():
        source = (_ROOT / file).read_text(encoding="utf-8")
        body = ast.parse(source).body
        for name in names:
            (node,) = (each for each in _definitions(body) if each.name == name.rpartition(".")[2])
            sections += _section(f"## {name}", node, source.splitlines())
    return "\n".join(sections)


def _definitions(body: Sequence[ast.stmt]) -> Iterator[_Definition]:
    return (each for each in body if isinstance(each, _Definition))


def _section(heading: str, node: _Definition, lines: Sequence[str]) -> Iterator[str]:
    """A function, or a class with its constructor and its public methods."""
    yield f"{heading}\n"
    yield f"```python\n{_signature(node, lines)}\n```\n"
    yield _text(node)
    if isinstance(node, ast.ClassDef):
        for each in _definitions(node.body):
            if each.name == "__init__" and ast.get_docstring(each):
                yield f"```python\n{_signature(each, lines)}\n```\n"
                yield _text(each)
            elif each.name[0] != "_":
                yield from _section(f"#{heading}.{each.name}", each, lines)


def _signature(node: _Definition, lines: Sequence[str]) -> str:
    """What stands before the docstring, and the fields of a record."""
    body = node.body if isinstance(node, ast.ClassDef) else []
    fields = (each for each in body if isinstance(each, ast.AnnAssign))
    shown = [*lines[node.lineno - 1 : node.body[0].lineno - 1]]
    shown += [lines[each.lineno - 1] for each in fields]
    return re.sub("  # noqa.*", "", textwrap.dedent("\n".join(shown)))


def _text(node: _Definition) -> str:
    """A docstring as Markdown: a list for each of its sections."""
    text, *rest = _SECTION.split(inspect.cleandoc(ast.get_docstring(node) or ""))
    parts = [_linked(text)]
    for title, section in zip(rest[::2], rest[1::2], strict=True):
        items = re.split(r"\n(?=\S)", textwrap.dedent(section).strip())
        if title == "Returns":
            parts.append(f"**{title}** {_linked(' '.join(items))}")
        else:
            named = (item.partition(": ") for item in items)
            rows = (f"- `{name}`: {_linked(meaning)}" for name, _, meaning in named)
            parts.append("\n".join([f"**{title}**\n", *rows]))
    return "\n\n".join(parts) + "\n"


def _linked(text: str) -> str:
    """Paragraphs on a line each, with mentions of pages as links."""
    paragraphs = (" ".join(each.split()) for each in re.split(r"\n\n+", text.strip()))
    return re.sub(
        r"docs/(\w+)/([\w-]+)\.md",
        lambda page: f"[{page[2]}.md](../{page[1]}/{page[2]}.md)",
        "\n\n".join(paragraphs),
    )
