"""The README, the guide and the notebook show what their commands and their Python print."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beamrank
from tests import ROOT
from tests.support.docs.examples import examples_of, matches, pages, parse, prepare, run, run_cells
from tests.support.processes import succeed
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


_TABLE = "query_id,query,doc_id,text,label\nq1,what is tea,d1,tea is a drink,1\n"
_SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "Tea",
            "paragraphs": [
                {
                    "context": "Tea is a drink.",
                    "qas": [
                        {
                            "id": "q1",
                            "question": "What is tea?",
                            "answers": [{"text": "a drink", "answer_start": 7}],
                        }
                    ],
                }
            ],
        }
    ],
}


def _have(folder: Path) -> None:
    """One doc and one topic in each form of the page."""
    (folder / "pairs.csv").write_text(_TABLE)
    (folder / "corpus.jsonl").write_text('{"id": "d1", "text": "tea is a drink"}\n')
    (folder / "topics.tsv").write_text("q1\twhat is tea\n")
    (folder / "dense.trec").write_text("q1 Q0 d1 1 2.5 dense\n")
    pq.write_table(
        pa.table({"sku": ["d1"], "description": ["tea is a drink"]}), folder / "products.parquet"
    )
    (folder / "searches.csv").write_text("number,words\nq1,what is tea\n")
    (folder / "dev-v2.0.json").write_text(json.dumps(_SQUAD))
    succeed("convert", "squad", folder / "dev-v2.0.json", "--output", folder / "squad")


def test_configuration_for_what_you_have_is_planned(tmp_path: Path) -> None:
    _have(tmp_path)
    page = (ROOT / "docs/guide/what-you-have.md").read_text(encoding="utf-8")
    planned = {}
    for section in page.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
            (tmp_path / "config.yaml").write_text(block)
            assert len(block.splitlines()) <= 6, title
            # Other checkpoints are downloaded.
            here = () if "embedded:" in block else ("--set", "mono.checkpoint=embedded:mono")
            plan = json.loads(succeed("plan", tmp_path / "config.yaml", "--json", *here).stdout)
            planned[title] = plan["topics"], plan["stages"][-1]["inferences"]
    assert planned == {
        "Labelled pairs": (1, 1000),
        "SQuAD's JSON": (1, 1000),
        "Texts in another language": (1, 100),
        "Long docs": (1, 1600),
        "A run of a dense retriever": (1, 100),
        "Tables with their own columns": (1, 100),
    }
