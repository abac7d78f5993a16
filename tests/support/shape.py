"""How much a reader of the code has to read and to follow, and what it may be at most.

`python -m tests.support.shape` prints every figure beside its bound and its goal.

Nodes of the syntax tree, without docstrings, are what one reads: names, constants, calls. Decisions
are what one follows: branches, loops, handlers, operands of `and` and `or`, comprehensions and
their conditions. No formatter changes either, and a line is no cost.
"""

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from tests import ROOT

CORE = ("beamrank", "models", "transforms", "pipelines")
_PROJECT = (*CORE, "contrib", "experiments", "benchmarks")
_TRAINING = "models/training"
_BRANCHES = (
    *(ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While),
    *(ast.Try, ast.TryStar, ast.ExceptHandler, ast.match_case),
)
_NOT_READ = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop, ast.Module)
_STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
# What a newcomer reads to follow a candidate from the command to a run file, in this order.
READING_ORDER = (
    "beamrank/ranking/rankings",
    *(f"beamrank/commit/{name}" for name in ("shards", "plan", "receipts", "parts", "listing")),
    *("beamrank/commit/stage", "beamrank/commit/schemas"),
    *("beamrank/join/join", "models/stages/base", "models/stages/core", "models/stages/planning"),
    *("models/stages/first_stage", "models/stages/given_run", "models/stages/tokenize"),
    *("models/stages/join_docs", "models/stages/scatter", "models/stages/corpus_scan"),
    *("models/stages/attempt", "models/stages/scoring"),
    *("models/stages/mono", "models/stages/duo"),
    *("models/scoring/mono", "models/scoring/duo", "models/scoring/packing"),
    *("models/scoring/engine", "beamrank/ranking/input_layout"),
    *("transforms/shards", "transforms/scatter"),
    *("pipelines/passes", "pipelines/launcher"),
    *("pipelines/plan/make_plan", "pipelines/execute"),
    *("pipelines/runs/run_file", "pipelines/runs/run_files", "beamrank/formats/run_writer"),
)
_TRACE = """
import os, sys, threading
_entered = set()
_file = open(os.path.join(os.environ["SHAPE_TRACE"], f"{os.getpid()}.txt"), "a", buffering=1)
def _note(frame, event, arg, root=os.environ["SHAPE_ROOT"]):
    code = frame.f_code
    if event == "call" and code not in _entered:
        _entered.add(code)
        if code.co_filename.startswith(root):
            _file.write(f"{code.co_filename[len(root):]}\\t{code.co_firstlineno}\\n")
sys.setprofile(_note)
threading.setprofile(_note)
"""


@dataclass(frozen=True)
class Bound:
    """What a figure may be today, and the goal."""

    at_most: float
    goal: float


BOUNDS = {
    "core: nodes": Bound(159_011, 135_000),
    "core: decisions": Bound(6_216, 5_300),
    "core: files": Bound(179, 130),
    "core: nodes a statement": Bound(8.1, 7.9),
    "core: decisions in 100 statements": Bound(31.7, 31.5),
    "core: decisions in 100 statements of the worst folder": Bound(40.6, 38),
    "core: most names of the project that one file imports": Bound(50, 30),
    "reading order: nodes": Bound(31_612, 26_000),
    "reading order: decisions": Bound(858, 760),
    "training: nodes": Bound(18_130, 18_200),
    "contrib: nodes": Bound(61_304, 45_000),
    "shipped: nodes": Bound(238_445, 203_000),
    "benchmarks: nodes": Bound(41_881, 35_000),
    "tests: nodes": Bound(320_066, 195_000),
}
# Two small runs take half a minute.
SPINE_BOUNDS = {
    "spine: files": Bound(138, 105),
    "spine: nodes": Bound(70_400, 57_000),
    "spine: decisions": Bound(3_150, 2_550),
}


def _nodes(trees: Iterable[ast.AST]) -> int:
    return sum(not isinstance(node, _NOT_READ) for tree in trees for node in ast.walk(tree))


def _decisions(trees: Iterable[ast.AST]) -> int:
    count = 0
    for node in (node for tree in trees for node in ast.walk(tree)):
        count += isinstance(node, _BRANCHES)
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        if isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
    return count


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _is_of_project(module: str | None) -> bool:
    return (module or "").split(".")[0] in _PROJECT


@dataclass(frozen=True)
class Source:
    """One Python file; `path` is below the root."""

    path: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree without docstrings."""
        tree = ast.parse((ROOT / self.path).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(node, ast.Module | ast.stmt | ast.ExceptHandler) and body:
                node.body = [statement for statement in body if not _is_text(statement)]
        return tree

    @property
    def is_init(self) -> bool:
        return self.path.endswith("__init__.py")

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def imported_names(self) -> int:
        """Names of the project that the file imports; of a whole module, the used attributes."""
        count = 0
        modules: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and _is_of_project(node.module):
                count += len(node.names)
            if isinstance(node, ast.Import):
                names = [alias for alias in node.names if _is_of_project(alias.name)]
                modules |= {alias.asname or alias.name.split(".")[0] for alias in names}
        return count + len(
            {
                node.attr
                for node in ast.walk(self.tree)
                if isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in modules
            }
        )


@dataclass(frozen=True)
class Sources:
    """Files, and their figures in all."""

    files: list[Source]

    @property
    def trees(self) -> list[ast.Module]:
        return [file.tree for file in self.files]

    @cached_property
    def nodes(self) -> int:
        return _nodes(self.trees)

    @cached_property
    def decisions(self) -> int:
        return _decisions(self.trees)

    @cached_property
    def statements(self) -> int:
        return sum(isinstance(node, _STATEMENTS) for tree in self.trees for node in ast.walk(tree))

    @property
    def decisions_in_100_statements(self) -> float:
        return round(100 * self.decisions / self.statements, 1)

    @property
    def named(self) -> list[Source]:
        """The files but `__init__.py`."""
        return [file for file in self.files if not file.is_init]


@cache
def _below(*roots: str) -> Sources:
    paths = [path for root in roots for path in sorted((ROOT / root).rglob("*.py"))]
    return Sources([Source(path.relative_to(ROOT).as_posix()) for path in paths])


def core() -> Sources:
    files = _below(*CORE).files
    return Sources([file for file in files if not file.path.startswith(_TRAINING)])


def _large_folders(sources: Sources) -> list[Sources]:
    folders = sorted({file.folder for file in sources.files})
    of_folders = [
        Sources([file for file in sources.files if file.folder == folder]) for folder in folders
    ]
    return [folder for folder in of_folders if folder.statements >= 300]


def measure() -> dict[str, float]:
    """Every figure of `BOUNDS`."""
    ours = core()
    training = _below(_TRAINING)
    contrib = _below("contrib")
    order = Sources([Source(f"{path}.py") for path in READING_ORDER])
    return {
        "core: nodes": ours.nodes,
        "core: decisions": ours.decisions,
        "core: files": len(ours.named),
        "core: nodes a statement": round(ours.nodes / ours.statements, 2),
        "core: decisions in 100 statements": ours.decisions_in_100_statements,
        "core: decisions in 100 statements of the worst folder": max(
            folder.decisions_in_100_statements for folder in _large_folders(ours)
        ),
        "core: most names of the project that one file imports": max(
            file.imported_names for file in ours.named
        ),
        "reading order: nodes": order.nodes,
        "reading order: decisions": order.decisions,
        "training: nodes": training.nodes,
        "contrib: nodes": contrib.nodes,
        "shipped: nodes": ours.nodes + training.nodes + contrib.nodes,
        "benchmarks: nodes": _below("benchmarks").nodes,
        "tests: nodes": _below("tests").nodes,
    }


def _entered_lines(folder: Path) -> dict[str, set[int]]:
    """The first lines of the functions that two small runs enter, by file."""
    for name in ("hooks", "traces"):
        (folder / name).mkdir()
    (folder / "hooks/sitecustomize.py").write_text(_TRACE)
    shutil.copytree(ROOT / "examples/own_corpus", folder / "data")
    environment = os.environ | {
        "SHAPE_TRACE": str(folder / "traces"),
        "SHAPE_ROOT": f"{ROOT}{os.sep}",
        "PYTHONPATH": f"{folder / 'hooks'}{os.pathsep}{ROOT}",
    }
    for config in ("given.yaml", "config.yaml"):
        command = [sys.executable, "-m", "beamrank", "run", config, "--output", f"out-{config}"]
        subprocess.run(command, cwd=folder / "data", env=environment, check=True)
    lines: dict[str, set[int]] = {}
    for trace in (folder / "traces").iterdir():
        for row in trace.read_text().splitlines():
            path, line = row.split("\t")
            lines.setdefault(path, set()).add(int(line))
    return lines


def _entered_functions(tree: ast.Module, lines: set[int]) -> list[ast.AST]:
    """The outermost functions that start at one of the lines, or whose decorators do."""
    functions: list[ast.AST] = []
    ended = 0
    for node in sorted(
        (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)),
        key=lambda node: node.lineno,
    ):
        starts = {node.lineno, *(decorator.lineno for decorator in node.decorator_list)}
        if node.lineno > ended and starts & lines:
            functions.append(node)
            ended = node.end_lineno or node.lineno
    return functions


def measure_spine() -> dict[str, float]:
    """Every figure of `SPINE_BOUNDS`: the core's functions that two small runs enter."""
    with tempfile.TemporaryDirectory() as folder:
        lines = _entered_lines(Path(folder))
    entered = [_entered_functions(file.tree, lines.get(file.path, set())) for file in core().files]
    return {
        "spine: files": sum(bool(functions) for functions in entered),
        "spine: nodes": sum(map(_nodes, entered)),
        "spine: decisions": sum(map(_decisions, entered)),
    }


def main() -> None:
    figures = {**measure(), **measure_spine()}
    for name, bound in {**BOUNDS, **SPINE_BOUNDS}.items():
        missed = "  missed" if figures[name] > bound.goal else ""
        print(f"{name:<54} {figures[name]:>9,}   goal {bound.goal:,g}{missed}")


if __name__ == "__main__":
    main()
