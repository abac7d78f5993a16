"""The hooks for packages, from the sources: each group of entry points, what its objects are, and
examples.
"""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

_ROOT = Path(__file__).resolve().parent.parent
_ROOTS = ("beamrank", "models", "pipelines")
_PACKAGE, _TESTS = "examples.plugin.beamrank_overlap", "tests.pipelines.extension"
# Examples that are tested; of other groups the smallest one that is shipped.
_TESTED = {
    "beamrank.architectures": (f"{_TESTS}.test_models:read_sum_of_ids",),
    "beamrank.backends": (f"{_TESTS}.test_models:CountTokens",),
    "beamrank.corpora": (f"{_PACKAGE}.corpus:BLOCKS",),
    "beamrank.qrels": (f"{_TESTS}.test_formats:TOY_QRELS",),
    "beamrank.report_sections": (f"{_PACKAGE}.report:SECTION",),
    "beamrank.run_formats": (f"{_TESTS}.test_formats:TOY_RUN",),
    "beamrank.stages": (f"{_PACKAGE}.stage:Overlap", f"{_TESTS}.test_stage:Dense"),
    "beamrank.topics": (f"{_TESTS}.test_formats:COLON",),
}
# A name leaves this list in the release after one that deprecates it.
PUBLIC: Mapping[str, Sequence[str]] = {
    "beamrank.commit.schemas": ("MONO",),
    "beamrank.commit.working": ("shard_at_work",),
    "beamrank.config.cascade": ("ConfiguredStage",),
    "beamrank.config.run": ("RunConfig",),
    "beamrank.config.stages": ("ModelConfig", "PointwiseConfig", "StageConfig"),
    "beamrank.errors": ("ConfigError", "DataError", "LeftOpenError", "PreflightError"),
    "beamrank.evaluation.tables": ("COUNT", "MEAN", "P_VALUE", "Cell", "Column", "Table"),
    "beamrank.formats.decode.base": (
        *("Bad", "RecordsDecoder", "WrongFormatError", "numbered_lines", "parsed"),
    ),
    "beamrank.formats.files": ("Beginning", "Format", "InputFile", "Look"),
    "beamrank.formats.schemas": ("Hints",),
    "beamrank.formats.values": ("RowError",),
    "beamrank.ranking.rankings": ("Ranking", "Rankings", "rank_docs"),
    "beamrank.ranking.variants": ("Depths", "Variants", "depth_variants"),
    "beamrank.report.blocks": ("Block", "File", "Paragraph", "Section", "TableBlock"),
    "beamrank.report.report": ("Report",),
    "beamrank.report.runs": ("PlanRuns",),
    "beamrank.section": ("CheckpointName", "Path", "Paths", "Positive", "Section"),
    "models.scoring.answers": ("Answers", "Contents", "Cut"),
    "models.stages.base": ("Key", "Stage", "Worker"),
    "models.stages.compute": ("Computed", "ShardInputs"),
    "models.stages.first_stage": ("FirstStage",),
    "models.stages.planning": ("Planning",),
    "models.stages.pointwise": ("Pointwise",),
    "models.stages.scoring": ("ModelStage",),
    "models.stages.text_stage": ("TextPairs", "TextStage"),
}
_HEAD = """# Hooks

Every group of entry points: what its objects are, then an example with what it uses of its own
file. `make docs` writes this page from the sources. [Extending beamrank](extending.md) says how to
start.

## Names that a package may import

Beside those of `beamrank` itself; a name leaves only after a release that deprecates it.

"""
_Statement: TypeAlias = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


class _Source:
    """A file of Python, with its statements by the names that they define."""

    def __init__(self, module: str) -> None:
        self.name = f"{module.replace('.', '/')}.py"
        text = (_ROOT / self.name).read_text(encoding="utf-8")
        self.lines, self.body = text.splitlines(), ast.parse(text).body
        self.defined = {
            name: node
            for node in self.body
            if isinstance(node, _Statement)
            for name in _names(node)
        }

    def text(self, node: ast.stmt, last: ast.stmt | None = None) -> str:
        """A statement, or those up to another one, without remarks for linters."""
        lines = self.lines[_first_line(node) - 1 : (last or node).end_lineno]
        return re.sub("  # noqa.*", "", "\n".join(lines))

    def docstring(self, node: ast.stmt) -> ast.stmt | None:
        """The text that follows a statement, if there is one."""
        after = self.body[self.body.index(node) + 1 :][:1]
        return after[0] if after and _text(after[0]) else None

    def find(self, name: str) -> "tuple[_Source, _Statement] | None":
        """The statement of the project that defines a name, here or where it is imported from."""
        if name in self.defined:
            return self, self.defined[name]
        imports = (each for each in self.body if isinstance(each, ast.ImportFrom))
        homes = (
            str(each.module) for each in imports if name in {alias.name for alias in each.names}
        )
        home = next(homes, "")
        return _Source(home).find(name) if home.startswith(_ROOTS) else None


class _Hook(NamedTuple):
    """The statement that declares a group, and what one of its objects is called."""

    source: _Source
    node: ast.Assign | ast.AnnAssign
    kind: str
    group: str


def hooks() -> str:
    """The page."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    shipped: Mapping[str, Mapping[str, str]] = project["entry-points"]
    shown = dict[str, str]()
    declared = sorted(_declared(shipped), key=lambda hook: hook.group)
    names = (f"- `{module}`: {', '.join(names)}\n" for module, names in PUBLIC.items())
    sections = (_section(hook, shipped.get(hook.group, {}), shown) for hook in declared)
    return "".join([_HEAD, *names, *sections])


def _declared(shipped: Mapping[str, Mapping[str, str]]) -> Iterator[_Hook]:
    for path in sorted(each for root in _ROOTS for each in (_ROOT / root).rglob("*.py")):
        source = _Source(".".join(path.relative_to(_ROOT).with_suffix("").parts))
        for node in source.body:
            if not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            match node.value:
                case ast.Call(
                    func=ast.Name(id="Registry"),
                    args=[ast.Constant(value=kind), ast.Constant(value=group), *_],
                ):
                    yield _Hook(source, node, str(kind), str(group))
                case ast.Constant(value=str(group)) if group in shipped:
                    yield _Hook(source, node, "command", group)


def _section(hook: _Hook, shipped: Mapping[str, str], shown: dict[str, str]) -> str:
    """A group; `shown` has the group of each class that the page shows."""
    entries = {f'`{name} = "{target}"`': _example(target) for name, target in shipped.items()}
    tested = {
        f"in `{source.name}`": (source, node, code)
        for target in _TESTED.get(hook.group, ())
        for source, node, code in [_example(target)]
    }
    smallest = min(entries, key=lambda entry: len(entries[entry][2]), default="")
    examples = tested or {smallest: entries[smallest]}
    text = hook.source.docstring(hook.node)
    signatures = [*_signatures(hook.source, getattr(hook.node, "annotation", None), hook, shown)]
    for source, node, _ in examples.values() if not signatures else ():
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            signatures += _signatures(source, base, hook, shown)
    parts = [
        f"\n## {hook.group}",
        f"{hook.kind[0].upper()}{hook.kind[1:]}, read by `{hook.source.name}`. "
        f"{_text(text) if text else ''}".strip(),
        *signatures,
    ]
    for name, (_, _, code) in examples.items():
        parts += [f"Example, {name}:", _code(code)]
    return "\n\n".join(parts) + "\n"


def _signatures(
    source: _Source, kind: ast.expr | None, hook: _Hook, shown: dict[str, str]
) -> Iterator[str]:
    """The classes and types of the project that a type names, then their bases."""
    for name in [each.id for each in ast.walk(kind) if isinstance(each, ast.Name)] if kind else ():
        home, node = source.find(name) or (source, None)
        if node is None or name == "Registry":
            continue
        before = shown.get(name)
        shown.setdefault(name, hook.group)
        if before == hook.group:
            continue
        if before is not None:
            yield f"`{name}`: see [{before}](#{before.replace('.', '')})."
        elif isinstance(node, ast.ClassDef):
            yield _code(_stub(home, node))
            for base in node.bases:
                yield from _signatures(home, base, hook, shown)
        elif not isinstance(node, ast.FunctionDef):
            yield _code(home.text(node, home.docstring(node)))
            yield from _signatures(home, node.value, hook, shown)


def _stub(source: _Source, node: ast.ClassDef) -> str:
    """A class without code and without what is private."""
    parts = [_head(source, node)]
    public = False
    for each in node.body:
        names = _names(each) if isinstance(each, _Statement) else []
        is_text = bool(_text(each)) and each is not node.body[0]
        public = (public and is_text) or any(name[0] != "_" or name == "__call__" for name in names)
        if public and isinstance(each, ast.FunctionDef):
            parts += ["", _head(source, each)]
        elif public:
            parts.append(source.text(each))
    return "\n".join(parts)


def _head(source: _Source, node: ast.FunctionDef | ast.ClassDef) -> str:
    """The beginning of a class or function, up to its docstring."""
    first = node.body[0]
    end = first.end_lineno if _text(first) else _first_line(first) - 1
    return re.sub("  # noqa.*", "", "\n".join(source.lines[_first_line(node) - 1 : end]))


def _example(target: str) -> tuple[_Source, _Statement, str]:
    """The statement behind an entry point, and its code with what it uses of its file."""
    module, _, name = target.partition(":")
    source = _Source(module)
    used, left = dict[str, _Statement](), [name]
    while left:
        each = left.pop()
        if each in source.defined and each not in used:
            used[each] = source.defined[each]
            left += [node.id for node in ast.walk(used[each]) if isinstance(node, ast.Name)]
    nodes = sorted(used.values(), key=lambda node: node.lineno)
    return source, used[name], "\n\n\n".join(dict.fromkeys(map(source.text, nodes)))


def _names(node: _Statement) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [each.id for each in targets if isinstance(each, ast.Name)]


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _text(node: ast.stmt) -> str:
    """The text that a statement is; empty for any other."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return " ".join(text.split())
    return ""


def _code(text: str) -> str:
    return f"```python\n{text}\n```"
