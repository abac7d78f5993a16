"""What the notebook and the page on Python show is what they do."""

import contextlib
import io
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import beamrank
from tests.support.notebook import run_cells

_ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", ["docs/guide/python.md", "README.md"])
def test_python_blocks_of_a_page_print_what_it_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(_ROOT / "examples/own_corpus", tmp_path / "examples/own_corpus")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    blocks = _BLOCK.findall((_ROOT / page).read_text(encoding="utf-8"))
    assert "python" in {language for language, _ in blocks}
    for (language, block), (following, shown) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(block, namespace)
            assert printed.getvalue() == (shown if following == "text" else ""), block


def test_python_page_names_everything_that_is_public() -> None:
    page = (_ROOT / "docs/guide/python.md").read_text(encoding="utf-8")
    assert [name for name in beamrank.__all__ if f"`{name}`" not in page and not name.startswith("__")] == []


@pytest.mark.jvm
def test_notebook_shows_what_its_cells_give() -> None:
    cells = run_cells(_ROOT / "examples/python.ipynb")
    assert len(cells) == 8
    for source, shown, committed in cells:
        assert shown == committed, source
