"""A given run as the first stage: the order of its ties, and a model that makes it worse."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from beamrank.config.run import load_config
from beamrank.formats.runs import read_run
from pipelines.cli import app
from pipelines.console.progress import ConsoleProgress
from pipelines.planning.make_plan import make_plan
from tests.support.cascades import read_trec

DOCS = {f"d{number}": f"the passage number {number}, which is about {number} cats" for number in range(8)}
TOPICS = {"q1": "cats", "q2": "the passage about 3 cats", "q3": "number 7"}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """All docs are candidates of each topic; the first four of them tie."""
    (tmp_path / "corpus.tsv").write_text("".join(f"{doc_id}\t{text}\n" for doc_id, text in DOCS.items()))
    (tmp_path / "topics.tsv").write_text("".join(f"{query_id}\t{text}\n" for query_id, text in TOPICS.items()))
    rows = (
        f"{query_id} Q0 {doc_id} {rank} {min(5, 9 - rank)} t\n"
        for query_id in TOPICS
        for rank, doc_id in enumerate(DOCS, 1)
    )
    (tmp_path / "given.trec").write_text("".join(rows))
    values = {
        "corpus": {"path": "corpus.tsv", "format": "tsv"},
        "topics": {"path": "topics.tsv", "format": "tsv"},
        "candidates": {"run": "given.trec", "k": 8},
        "dtype": "float32",
        "output": "out",
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def _run(config: Path, *arguments: str) -> Any:
    result = CliRunner().invoke(app, ["run", str(config), *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result


def test_the_run_has_the_ties_order_that_is_asked_for(config: Path) -> None:
    given = config.parent / "given.trec"
    by_rank = _run(config, "--output", str(config.parent / "rank"))
    by_doc_id = _run(config, "--output", str(config.parent / "doc_id"), "--set", "candidates.ties=doc_id")
    candidates = [read_trec(config.parent / name / "runs/candidates.trec") for name in ("rank", "doc_id")]
    assert candidates[0] == {query_id: list(DOCS) for query_id in TOPICS}
    assert candidates[1] == read_run(str(given)).order != candidates[0]
    assert f"{given}: rows with the score of the row before: 9; ordered by their ranks" in by_rank.stderr
    assert f"{given}: rows with the score of the row before: 9; ordered by doc_id, descending" in by_doc_id.stderr


def test_the_default_order_of_ties_leaves_digests_as_they_were(config: Path) -> None:
    default, rank, doc_id = (
        make_plan(load_config(str(config), overrides), ConsoleProgress(quiet=True))
        for overrides in ([], ["candidates.ties=rank"], ["candidates.ties=doc_id"])
    )
    assert set(default.stages[0].keys) == {"run", "k"}
    assert default.digest == rank.digest != doc_id.digest


def test_a_model_that_makes_the_run_worse_is_warned_about(config: Path, mono_checkpoint: str) -> None:
    """The relevant docs are those that the model places last, so the run that it was given is better."""
    mono = ["--set", f"mono.checkpoint={mono_checkpoint}"]
    assert "warning" not in _run(config, *mono).stderr
    ranked = read_trec(config.parent / "out/runs/mono.trec")
    assert all(doc_ids != list(DOCS) for doc_ids in ranked.values())
    (config.parent / "qrels").write_text("".join(f"{query_id} 0 {ids[-1]} 1\n" for query_id, ids in ranked.items()))
    measured = _run(config, *mono, "--set", "qrels=qrels", "--set", "measures=recip_rank,P_8", "--stage", "runs")
    assert "warning: mono is below candidates: RR 0.1250 after " in measured.stderr
    assert "P_8 is trec_eval's name for P@8" in measured.stderr
    assert measured.stdout.splitlines()[0].split("\t") == ["run", "RR", "P@8"]
    assert json.loads((config.parent / "out/runs/measures.json").read_text())["mono"] == {"RR": 0.125, "P@8": 0.125}
