"""The kinds of stages and what they keep, from the test that holds it:
tests/pipelines/runs/test_kinds_of_stages.py.
"""

import ast
from pathlib import Path

_TEST = Path(__file__).resolve().parent.parent / "tests/pipelines/runs/test_kinds_of_stages.py"
_HEAD = """# Kinds of stages

`make docs` writes this table from `{test}`, which holds every cell: one
cascade with all kinds, of small models, on a CPU. On a GPU scores depend on their batch, so that
nothing is reused but the answers of a server.

"""


def stages() -> str:
    """The page."""
    body = ast.parse(_TEST.read_text(encoding="utf-8")).body
    guarantees = [
        str(ast.get_docstring(statement))
        for statement in body
        if isinstance(statement, ast.FunctionDef) and statement.name.startswith("test_")
    ]
    (kinds,) = (
        statement.value.values
        for statement in body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.value, ast.Dict)
    )
    rows = [["kind", "stage", *guarantees], ["---"] * (2 + len(guarantees))]
    for kind in kinds:
        match kind:
            case ast.Tuple(
                elts=[
                    ast.Constant(value=str(words)),
                    ast.Dict(keys=[ast.Constant(value=str(stage))]),
                ]
            ):
                rows.append([words, f"`{stage}`", *["yes"] * len(guarantees)])
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return _HEAD.format(test=_TEST.relative_to(_TEST.parents[3])) + table
