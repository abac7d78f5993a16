"""The README, the guide and the notebook show what their commands and their Python print."""

from pathlib import Path
from typing import Any

import pytest

import beamrank
from tests import ROOT
from tests.support.docs.examples import examples_of, matches, pages, parse, prepare, run, run_cells
from tests.support.tiers import slow_but

# The first ten minutes.
_QUICK = ("README.md",)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all pages: a page that repeats a run resumes it."""
    found = tmp_path_factory.mktemp("docs")
    prepare(found)
    return found


@pytest.mark.jvm
@pytest.mark.parametrize("page", slow_but(_QUICK, pages()))
def test_page_examples_print_what_the_page_shows(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    namespace: dict[str, Any] = {}
    for example in examples_of(page):
        if example.reason:
            parse(example)
            continue
        printed = run(example, namespace)
        assert example.shown is None or matches(example.shown, printed), (
            f"{example.source}\n{printed}"
        )


def test_examples_with_a_wrong_option_or_output_are_found(tmp_path: Path) -> None:
    assert matches("a  ...\n...\nz\n", "a  1.5\nb\nc\nz\n")
    assert not matches("a  1.5\n", "a  1.6\n")
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- not run: a test -->\n```console\n$ beamrank run config.yaml --no-such-option\n```\n"
    )
    (example,) = examples_of(str(page))
    with pytest.raises(Exception, match="no-such-option"):
        parse(example)


def test_python_page_names_everything_that_is_public() -> None:
    page = (ROOT / "docs/guide/python.md").read_text(encoding="utf-8")
    assert [
        name for name in beamrank.__all__ if f"`{name}`" not in page and not name.startswith("__")
    ] == []


@pytest.mark.jvm
@pytest.mark.slow
def test_notebook_shows_what_its_cells_print() -> None:
    cells = run_cells(ROOT / "examples/python.ipynb")
    assert len(cells) == 8
    for source, shown, committed in cells:
        assert shown == committed, source
