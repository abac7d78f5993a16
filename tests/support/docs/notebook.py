"""Runs the code cells of a notebook and keeps what Jupyter would show below them."""

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any


def run_cells(path: Path) -> list[tuple[str, str, str]]:
    """The source of each code cell, what it shows now, and what the file shows."""
    namespace: dict[str, Any] = {}
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    found = []
    for cell in cells:
        source = "".join(cell["source"])
        found.append((source, _shown(source, namespace), "".join(map(_text, cell["outputs"]))))
    return found


def _shown(source: str, namespace: dict[str, Any]) -> str:
    body = ast.parse(source).body
    last: Any = body.pop() if isinstance(body[-1], ast.Expr) else ast.parse("None").body[0]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.Module(body, []), "<cell>", "exec"), namespace)
        value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
    return printed.getvalue() + ("" if value is None else repr(value))


def _text(output: dict[str, Any]) -> str:
    return "".join(output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"])
