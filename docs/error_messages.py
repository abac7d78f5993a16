"""The messages of errors, from the sources: their class, their kind and their text, in which names
stand in braces.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_FILLED_IN = re.compile(r"\{[^{}]*\}")
_ROOTS = ("beamrank", "models", "transforms", "pipelines", "infra", "contrib")
_HEAD = """# Errors

Every message, with its class and its `kind`; a part in braces is filled in. `make docs` writes this
page, so that a change of wording shows here. In Python an error also has `file` and `place`. Exit
codes are in [troubleshooting](../guide/troubleshooting.md).
"""


def errors() -> str:
    """The page."""
    trees = [
        ast.parse(path.read_text(encoding="utf-8"))
        for root in _ROOTS
        for path in sorted((_ROOT / root).rglob("*.py"))
    ]
    classes = _error_classes(trees)
    messages: dict[str, set[str]] = defaultdict(set)
    for tree in trees:
        for name, message in _messages(tree, classes):
            messages[name].add(message)
    sections = (
        f"\n## {name}\n\n```text\n" + "\n".join(sorted(lines)) + "\n```\n"
        for name, lines in sorted(messages.items())
    )
    return _HEAD + "".join(sections)


def _error_classes(trees: Sequence[ast.Module]) -> set[str]:
    """The names of the project's errors, and ValueError, which a configuration's checks raise."""
    bases = {
        node.name: {_name(base) for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    classes = {"BeamrankError", "ValueError"}
    while more := {name for name, of in bases.items() if of & classes} - classes:
        classes |= more
    return {name for name in classes if name.endswith("Error")}


def _messages(tree: ast.Module, classes: set[str]) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _name(node.func) not in classes or not node.args:
            continue
        text = " ".join(_text(node.args[0]).split())
        # An error that is only raised anew has no words of its own.
        if any(map(str.isalpha, _FILLED_IN.sub("", text))):
            kinds = [_text(keyword.value) for keyword in node.keywords if keyword.arg == "kind"]
            if _name(node.func) == "RowError":
                kinds += map(_text, node.args[1:])
            yield _name(node.func), ": ".join([*kinds[:1], text])


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _text(node: ast.expr) -> str:
    """A string as it is written, with its expressions in braces."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.FormattedValue):
        return "{" + ast.unparse(node.value) + "}"
    return "{" + ast.unparse(node) + "}"
