"""The shape of the code against the bounds of its design: `python -m tests.support.shape` prints the table."""

import ast
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests import ROOT

CORE = ("beamrank", "models", "transforms", "pipelines")
_TRAINING = "models/training/"
_STAGES = ("models/stages/", "models/scoring/", _TRAINING, "contrib/")
# A study's option, as it is spelled in code.
CONCEPTS = {
    "chunks": r"(architecture|model)\.chunks|\bchunks: int|\"chunks\"|chunk_(rows|pool|size)",
    "opponents": r"opponents",
    "add_relevant": r"add_relevant|added_relevant|relevant_added",
    "score_missing": r"score_missing|missing_pairs",
    "prompts": r"prompts?(?![a-z])",
}


@dataclass(frozen=True)
class Bound:
    """What a figure may be today, and what the design wants it to be."""

    figure: str
    at_most: float
    aim: float
    at_least: float = 0
    aim_at_least: float = 0


BOUNDS = (
    Bound("lines: core", 32_700, 23_000),
    Bound("lines: training", 3_350, 2_800),
    Bound("lines: contrib", 9_500, 9_500),
    Bound("files: core", 158, 150),
    Bound("test lines per shipped line", 0.95, 0.9),
    Bound("share of imports", 0.084, 0.06),
    Bound("files in the fullest folder", 12, 12),
    Bound("files in circles", 0, 0),
    Bound("lines of the median file", 250, 250, at_least=130, aim_at_least=130),
    Bound("files: chunks", 12, 12),
    Bound("files: opponents", 12, 12),
    Bound("files: add_relevant", 2, 12),
    Bound("files: score_missing", 2, 12),
    Bound("files: prompts", 12, 12),
    Bound('files: "mono", "duo"', 15, 15),
)


class Source:
    """One Python file; `path` is below the root."""

    def __init__(self, file: Path) -> None:
        self.path = file.relative_to(ROOT).as_posix()
        self.module = self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self.text = file.read_text(encoding="utf-8")
        self.lines = self.text.count("\n")
        self.is_init = file.name == "__init__.py"

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property  # those inside functions too
    def imports(self) -> Iterator[ast.Import | ast.ImportFrom]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.Import | ast.ImportFrom))

    @property
    def import_lines(self) -> int:
        return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in self.imports)

    def imported(self, modules: set[str]) -> set[str]:
        """The modules, of these, that this one imports by name."""
        names: set[str] = set()
        for node in self.imports:
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
                continue
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= (below & modules) or {node.module or ""}
        return names & modules - {self.module}

    @property
    def spells_a_stage(self) -> bool:
        return any(
            getattr(node, "attr", None) in ("mono", "duo") or getattr(node, "value", None) in ("mono", "duo")
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Attribute | ast.Constant)
        )


def sources(*roots: str) -> list[Source]:
    return [Source(file) for root in roots for file in sorted((ROOT / root).rglob("*.py"))]


def circles(files: list[Source]) -> list[str]:
    """The modules of one circle of imports; none if there is no circle."""
    modules = {file.module for file in files}
    try:
        TopologicalSorter({file.module: file.imported(modules) for file in files}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def measure() -> dict[str, float]:
    """Every figure of `BOUNDS` by its name."""
    shipped = sources(*CORE, "contrib")
    training = [file for file in shipped if file.path.startswith(_TRAINING)]
    contrib = [file for file in shipped if file.path.startswith("contrib/")]
    core = [file for file in shipped if file not in training and file not in contrib]
    full = [file for file in shipped if not file.is_init]
    lines = sum(file.lines for file in shipped)
    return {
        "lines: core": sum(file.lines for file in core),
        "lines: training": sum(file.lines for file in training),
        "lines: contrib": sum(file.lines for file in contrib),
        "files: core": sum(not file.is_init for file in core),
        "test lines per shipped line": round(sum(file.lines for file in sources("tests")) / lines, 3),
        "share of imports": round(sum(file.import_lines for file in shipped) / lines, 3),
        "files in the fullest folder": max(Counter(file.path.rpartition("/")[0] for file in full).values()),
        "files in circles": len(circles(shipped)),
        "lines of the median file": statistics.median(file.lines for file in full),
        **{
            f"files: {concept}": sum(re.search(words, file.text) is not None for file in shipped)
            for concept, words in CONCEPTS.items()
        },
        'files: "mono", "duo"': sum(file.spells_a_stage for file in shipped if not file.path.startswith(_STAGES)),
    }


def main() -> None:
    figures = measure()
    for bound in BOUNDS:
        figure = figures[bound.figure]
        low = f"{bound.aim_at_least:,g} to " if bound.aim_at_least else ""
        missed = "" if bound.aim_at_least <= figure <= bound.aim else "  missed"
        print(f"{bound.figure:<30} {figure:>9,}   aim {low}{bound.aim:,g}{missed}")


if __name__ == "__main__":
    main()
