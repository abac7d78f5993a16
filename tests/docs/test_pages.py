"""The tables of the pages agree with the code, and the site builds."""

import ast
import importlib
import operator
import os
import re
import subprocess
import sys
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest

from beamrank.commit.status import StageStatus
from beamrank.evaluation import compare, significance
from beamrank.formats import corpora, rejects, run_writer, topics
from beamrank.formats.schemas import DOCS, QRELS, TOPICS
from beamrank.ranking.aggregation import METHODS
from beamrank.ranking.input_layout import (
    MAX_DOC_TOKENS,
    InputLimits,
    Truncation,
    duo_kept,
    mono_kept,
)
from beamrank.records import SpecialTokens
from beamrank.report.runs import CandidateView
from beamrank.report.warnings import CHECKS
from contrib.fusion import methods as fusion
from contrib.pairs.score import ScorePreview
from docs.generate import generated
from docs.hooks import PUBLIC
from models.architectures.families import bert_template
from models.training.config import OBJECTIVES, RECIPES
from pipelines.plan.estimate import Estimate, StageEstimate
from pipelines.runs.run_files import PER_QUERY_TABLE
from tests import ROOT
from tests.support.shape import CORE

_PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
_OTHER_PAGES = [
    ROOT / name
    for name in ("tests/README.md", "experiments/README.md", "benchmarks/results/README.md")
]
_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")


def _table(page: str, first_column: str) -> list[list[str]]:
    """The cells of the rows below a header that begins with these columns."""
    lines = iter((ROOT / page).read_text(encoding="utf-8").splitlines())
    assert any(line.startswith(first_column) for line in lines), (
        f"{page} has no table {first_column}"
    )
    assert set(next(lines)) <= set("|-")
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
    return rows


@pytest.mark.parametrize(
    ("section", "kind"),
    [
        ("score", ScorePreview),
        ("inspect", CandidateView),
        ("plan", StageEstimate),
        ("plan", Estimate),
        ("status", StageStatus),
    ],
)
def test_json_page_names_every_field(section: str, kind: type) -> None:
    page = (ROOT / "docs/reference/json.md").read_text(encoding="utf-8")
    text = page.split(f"\n## {section}\n")[1].split("\n## ")[0]
    named = set(re.findall(r"[a-z_]+", " ".join(re.findall("`[^`]+`", text))))
    assert {field.name for field in fields(kind)} <= named


_SPECIAL = SpecialTokens(101, 102, 0)


def _shown(kept: tuple[np.ndarray, ...]) -> str:
    lengths = [int(each[0]) for each in kept]
    return f"{' + '.join(map(str, lengths))} = {sum(lengths) + len(lengths) + 1}"


def test_truncation_table_of_mono_is_what_the_code_does() -> None:
    rows = _table("docs/reference/model-inputs.md", "| query | doc | `original` |")
    assert len(rows) >= 5
    for query, doc, *cells in rows:
        query_length, doc_length = (
            np.array([min(int(each), MAX_DOC_TOKENS)]) for each in (query, doc)
        )
        limits = [InputLimits(rule, 64, 512) for rule in get_args(Truncation)]
        assert cells == [
            _shown(mono_kept(bert_template(_SPECIAL, 2), each, query_length, doc_length))
            for each in limits
        ]


def test_truncation_table_of_duo_is_what_the_code_does() -> None:
    rows = _table("docs/reference/model-inputs.md", "| query | doc_i | doc_j |")
    assert len(rows) >= 5
    for query, first, second, *cells in rows:
        one, two, three = (np.array([int(each)]) for each in (query, first, second))
        limits = [InputLimits("original", 64, 512), InputLimits("paper", 64, 512)]
        assert cells == [
            _shown(duo_kept(bert_template(_SPECIAL, 3), each, one, two, three)) for each in limits
        ]


def test_format_tables_have_every_format() -> None:
    for header, formats in (
        ("| format | one doc |", corpora.FORMATS),
        ("| format | one topic |", topics.FORMATS),
    ):
        assert {cells[0] for cells in _table("docs/reference/formats.md", header)} == set(formats)
    page = (ROOT / "docs/reference/formats.md").read_text(encoding="utf-8")
    rows = [*(each.columns for each in run_writer.FORMATS.values()), *QRELS.unnamed.values()]
    assert [columns for columns in rows if f"| `{' '.join(columns)}` |" not in page] == []


def test_table_of_names_has_those_of_each_group_in_their_order() -> None:
    rows = _table("docs/reference/formats.md", "| meaning | names |")
    named = {meaning: re.findall(r"`([^`]+)`", f"`{names}`") for meaning, names in rows}
    columns = {
        "query_id": QRELS.columns["query_id"],
        "doc_id": QRELS.columns["doc_id"],
        "id of a topic": TOPICS.columns["query_id"],
        "text of a topic": TOPICS.columns["text"],
        "relevance": QRELS.columns["relevance"],
    }
    for meaning, column in columns.items():
        assert named[meaning] == list(chain.from_iterable(column.groups)), meaning
    (texts,) = DOCS.columns["text"].groups
    assert named["text of a doc"][: len(texts)] == list(texts)
    ids = DOCS.columns["doc_id"].groups
    assert list(chain(*ids[:2], *ids[3:])) == named["doc_id"]
    assert named["id of a doc"] == [*ids[2], *ids[3]]


def test_page_of_tables_has_every_schema_with_its_columns() -> None:
    page = "docs/reference/tables.md"
    named = [
        (name, cells[1])
        for cells in _table(page, "| column | type |")
        for name in re.findall(r"\w+", cells[0])
    ]
    found = [
        pa.field(name, pa.type_for_alias(kind.partition(",")[0]), nullable="null" in kind)
        for name, kind in named
    ]
    assert pa.schema(found).equals(run_writer.RUN_TABLE)
    others = {cells[0]: cells[2] for cells in _table(page, "| schema | where |")}
    sources = "".join(
        path.read_text()
        for each in (*CORE, "contrib/pairs")
        for path in (ROOT / each).rglob("*.py")
    )
    assert others.keys() | {"run/1"} == set(re.findall(r'"beamrank\.schema": "(\w+/\d+)"', sources))
    for schema, columns in {"per_query/1": PER_QUERY_TABLE, "rejects/1": rejects.SCHEMA}.items():
        assert set(columns.names) <= set(re.findall(r"\w+", others[schema]))
    assert f"at most {rejects.MOST_ROWS:,}" in others["rejects/1"]


def test_page_of_reports_has_every_warning_with_its_threshold() -> None:
    rows = {cells[0]: cells[1] for cells in _table("docs/guide/report.md", "| warning | given")}
    assert rows.keys() == CHECKS.keys()
    for name, check in CHECKS.items():
        words = "less than" if check.holds is operator.lt else "more than"
        assert f"{words} {check.threshold:g}".replace(" 0.", " .") in rows[name]


def test_training_tables_have_every_recipe_and_objective() -> None:
    assert [
        cells[0] for cells in _table("docs/reference/training.md", "| recipe | objective |")
    ] == list(RECIPES)
    rows = {
        cells[0]: cells[1].split(", ")
        for cells in _table("docs/reference/training.md", "| name | for |")
    }
    assert rows.keys() == {name for names in OBJECTIVES.values() for name in names}
    assert all(name in OBJECTIVES[kind] for name, kinds in rows.items() for kind in kinds)
    shown = {
        cells[0]: cells for cells in _table("docs/reference/training.md", "| recipe | objective |")
    }
    for name, recipe in RECIPES.items():
        optimizer = recipe["optimizer"]
        objective = recipe["objective"]
        wanted = (
            objective if isinstance(objective, str) else f"{objective['mono']} / {objective['duo']}"
        )
        assert shown[name][1] == wanted
        assert float(shown[name][2]) == optimizer["learning_rate"]
        length = (
            f"{optimizer['steps']:,} steps"
            if "steps" in optimizer
            else f"{optimizer['epochs']} epochs"
        )
        assert shown[name][4:7] == [
            length,
            str(optimizer["batch_size"]),
            str(recipe.get("input", {}).get("max_length", 512)),
        ]


def test_aggregation_table_has_every_name() -> None:
    names = {
        name.strip("` ")
        for cells in _table("docs/reference/runs.md", "| name | score")
        for name in cells[0].split(",")
    }
    assert names == set(METHODS)
    (key,) = re.findall(
        "^- `duo.aggregation`.*$",
        (ROOT / "docs/reference/configuration.md").read_text(),
        re.MULTILINE,
    )
    assert f"Values: {', '.join(f'`{name}`' for name in METHODS)}." in key


@pytest.mark.parametrize(
    ("page", "header", "names"),
    [
        ("runs", "| method | score of a doc |", fusion.METHODS),
        ("runs", "| norm | score in a run |", fusion.NORMALIZATIONS),
        ("measures", "| test | p-value |", significance.TESTS),
        ("measures", "| correction | p-values |", significance.CORRECTIONS),
        ("measures", "| agreement | value |", compare.AGREEMENTS),
    ],
)
def test_table_of_evaluation_has_every_name(page, header, names) -> None:
    assert [cells[0] for cells in _table(f"docs/reference/{page}.md", header)] == list(names)


@pytest.mark.parametrize(
    ("page", "shown"), [("README.md", "given.yaml"), ("docs/guide/own-data.md", "config.yaml")]
)
def test_page_shows_the_configuration_of_the_example(page: str, shown: str) -> None:
    block = re.search(r"```yaml\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    assert _plain(block[1]) == _plain(
        (ROOT / "examples/own_corpus" / shown).read_text(encoding="utf-8")
    )


def _plain(text: str) -> list[str]:
    lines = (re.sub(r"(^|\s+)#.*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def test_second_tier_table_has_every_file() -> None:
    tests = ROOT / "tests"
    marked = {
        path
        for path in tests.rglob("test_*.py")
        if re.search(r"\bmark\.slow\b|\bslow_but\(", path.read_text("utf-8"))
    }
    rows = [cells[0] for cells in _table("tests/README.md", "| file | in the second tier |")]
    listed = {path for row in rows if row.endswith(".py") for path in tests.glob(row)}
    assert listed == marked - {Path(__file__)}


@pytest.mark.parametrize(
    "page", [*_PAGES, *_OTHER_PAGES], ids=lambda page: str(page.relative_to(ROOT))
)
def test_page_links_to_pages_and_sections_that_exist(page: Path) -> None:
    for path, section in _LINK.findall(page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not section or target.is_dir() or section in _sections(target), f"{path}#{section}"


def _sections(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pages_have_at_most_37000_words() -> None:
    pages = {ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")}
    names = ("cli", "errors", "python", "stages")
    written = ("internals/hooks", *(f"reference/{name}" for name in names))
    pages -= {ROOT / f"docs/{page}.md" for page in written}
    parts = re.compile("<!-- (.*), written by make docs -->.*?<!-- end of \\1 -->", re.DOTALL)
    texts = (parts.sub("", page.read_text(encoding="utf-8")) for page in pages)
    assert sum(len(text.split()) for text in texts) <= 37_000


def test_example_of_a_package_imports_public_names_alone() -> None:
    public = {(module, name) for module, names in PUBLIC.items() for name in names}
    assert all(hasattr(importlib.import_module(module), name) for module, name in public)
    statements = [
        statement
        for path in ROOT.glob("examples/plugin/beamrank_overlap/*.py")
        for statement in ast.parse(path.read_text()).body
    ]
    used = {
        (statement.module, alias.name)
        for statement in statements
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
        if str(statement.module).partition(".")[0] in ("beamrank", "models", "pipelines")
    }
    assert used <= public
    assert len(used) > 20


def test_index_names_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    pages = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")} - {
        "README.md"
    }
    assert pages - {path for path, _ in _LINK.findall(index)} == set()


@pytest.mark.parametrize(
    "folder",
    ["beamrank", "models", "transforms", "pipelines", "contrib", "configs", "examples", "infra"],
)
def test_code_mentions_pages_that_exist(folder: str) -> None:
    texts = [
        path
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".yaml", ".json", ".md", ".ipynb"}
    ]
    mentioned = {
        page
        for path in texts
        for page in re.findall(r"docs/[\w/-]+\.md", path.read_text(encoding="utf-8"))
    }
    assert [page for page in mentioned if not (ROOT / page).exists()] == []


def test_pages_mention_files_and_modules_that_exist() -> None:
    text = "".join(
        page.read_text(encoding="utf-8")
        for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    )
    roots = (
        "tests|benchmarks|experiments|models|transforms|pipelines|contrib|beamrank|infra|configs|"
        "examples"
    )
    files = set(re.findall(rf"(?<![\w/])((?:{roots})/[\w/.-]+\.\w+)", text))
    modules = {
        name.replace(".", "/") for name in re.findall(rf"python -m ((?:{roots})[\w.]*\w)", text)
    }
    found = {
        name
        for name in modules
        if (ROOT / f"{name}.py").exists() or (ROOT / name / "__main__.py").exists()
    }
    assert ({name for name in files if not (ROOT / name).exists()}, modules - found) == (
        set(),
        set(),
    )


def test_faults_name_tests_that_exist() -> None:
    pages, missing, file = [ROOT / "docs/internals/faults.md", ROOT / "tests/README.md"], [], Path()
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for path, name in re.findall(r"`(tests/[\w/]+\.py)?(?:::(test_\w+))?`", text):
        file = ROOT / path if path else file
        if not file.exists() or (name and f"def {name}(" not in file.read_text(encoding="utf-8")):
            missing.append(f"{file}::{name}")
    assert missing == []


def test_contributing_names_every_folder_of_the_layers() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    layers = ["beamrank", "models", "transforms", "pipelines", "contrib"]
    folders = [
        path
        for layer in layers
        for path in (ROOT / layer).iterdir()
        if path.is_dir() and path.name[0] != "_"
    ]
    assert [path for path in folders if f"`{path.relative_to(ROOT)}`" not in text] == []


def test_generated_pages_are_current() -> None:
    assert [
        path.name for path, text in generated().items() if path.read_text("utf-8") != text
    ] == [], "run `make docs`"


@pytest.mark.slow
def test_site_builds_without_warnings(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path / "site"),
    ]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=environ
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/llms.txt").read_text("utf-8") == (ROOT / "docs/llms.txt").read_text()
    commands = (tmp_path / "site/reference/cli/index.html").read_text(encoding="utf-8")
    assert all(f'id="{name}"' in commands for name in ("run", "score", "convert-mono", "lint"))
    checks = (tmp_path / "site/reference/lint/index.html").read_text(encoding="utf-8")
    assert all(f"<code>{name}</code>" in checks for name in ("L101", "L907", "trec-dl"))
    assert "rerank" in (tmp_path / "site/reference/python/index.html").read_text(encoding="utf-8")
