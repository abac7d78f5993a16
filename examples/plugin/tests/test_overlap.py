"""Whole runs with the stage, the format and the section of this package."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import beamrank

DOCS = {
    "d1": "the heron waits by the cedar",
    "d2": "amber glows in the grove",
    "d3": "a heron and a heron",
    "d4": "cedar and amber",
}
TOPICS = {"q1": "heron cedar", "q2": "amber grove"}


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    """A given run of all docs for both topics, in the order of their ids."""
    (tmp_path / "docs.blocks").write_text(
        "".join(f"={doc}\n{text}\n" for doc, text in DOCS.items())
    )
    (tmp_path / "topics.tsv").write_text(
        "".join(f"{query}\t{text}\n" for query, text in TOPICS.items())
    )
    rows = [
        f"{query} Q0 {doc} {rank} {-rank} given\n"
        for query in TOPICS
        for rank, doc in enumerate(DOCS, 1)
    ]
    (tmp_path / "given.trec").write_text("".join(rows))
    (tmp_path / "weights.json").write_text(json.dumps({"heron": 2.5}))
    return {
        "corpus": {"path": str(tmp_path / "docs.blocks"), "format": "blocks"},
        "topics": {"path": str(tmp_path / "topics.tsv"), "format": "tsv"},
        "candidates": {"run": str(tmp_path / "given.trec"), "k": 4},
        "cascade": [{"overlap": {"weights": str(tmp_path / "weights.json"), "k": 4}}],
        "shards": 2,
        "output": str(tmp_path / "out"),
    }


def _runs(output: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(output).glob("runs/*.trec")}


def test_docs_are_ranked_by_the_weights_of_shared_terms(config: dict[str, Any]) -> None:
    run = beamrank.read_run(beamrank.run(config).runs["overlap"])
    # The scores of both topics: 3.5, 0, 2.5 and 1; 0, 2, 0 and 1. Equal ones keep their order.
    assert {query: list(docs) for query, docs in run.items()} == {
        "q1": ["d1", "d3", "d4", "d2"],
        "q2": ["d2", "d4", "d1", "d3"],
    }


def test_runs_have_the_same_bytes_for_any_shards_and_when_resumed(config: dict[str, Any]) -> None:
    whole = beamrank.run(config)
    one = beamrank.run(config, output=f"{whole.output}-one", set={"shards": 1})
    assert _runs(one.output) == _runs(whole.output)
    resumed = f"{whole.output}-resumed"
    shutil.copytree(whole.output, resumed)
    for pattern in ("manifest-*", "receipts/00001-*"):
        (path,) = Path(resumed, "overlap").glob(pattern)
        path.unlink()
    beamrank.run(config, output=resumed)
    assert _runs(resumed) == _runs(whole.output)


def test_changed_weights_score_again_and_more_docs_do_not(config: dict[str, Any]) -> None:
    config["cascade"][0]["overlap"]["k"] = 2
    beamrank.run(config)
    config["cascade"][0]["overlap"]["k"] = 4
    assert _counts(config) == {"inferences": 4, "reused": 4}
    Path(config["cascade"][0]["overlap"]["weights"]).write_text(json.dumps({"heron": 0.5}))
    assert _counts(config) == {"inferences": 8, "reused": 0}


def _counts(config: dict[str, Any]) -> dict[str, int]:
    """How many docs a run scores, and how many scores it reuses."""
    before = {*Path(config["output"]).glob("overlap/receipts/*.json")}
    beamrank.run(config)
    receipts = [
        json.loads(path.read_text())["counts"]
        for path in Path(config["output"]).glob("overlap/receipts/*.json")
        if path not in before
    ]
    return {name: sum(counts[name] for counts in receipts) for name in ("inferences", "reused")}


def test_weights_that_cannot_be_read_are_refused(config: dict[str, Any]) -> None:
    Path(config["cascade"][0]["overlap"]["weights"]).write_text("[]")
    with pytest.raises(beamrank.PreflightError):
        beamrank.run(config)


def test_report_counts_docs_without_a_shared_term(config: dict[str, Any]) -> None:
    output = beamrank.run(config).output
    subprocess.run([sys.executable, "-m", "beamrank", "report", output], check=True)
    page = (Path(output) / "report/report.html").read_text()
    assert "Docs that share no term with their topic" in page
