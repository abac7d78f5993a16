"""`add_relevant`: a relevant doc at rank k where the first stage found none, in whole runs behind both first stages."""

import json
from pathlib import Path

import pytest
import yaml

from beamrank.config.run import load_config
from beamrank.errors import ConfigError
from pipelines.plan.plan_changes import plan_changes
from tests.support.processes import beamrank_here
from tests.support.runs import read_trec
from tests.support.small_collection import CANDIDATES, TOPICS, SmallCollection, small_cascade

_ON = "candidates.add_relevant=true"


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> SmallCollection:
    """The relevant doc is at rank 5 of every topic but q0, where it is the second, and q1, which is not judged."""
    made = small_cascade(tmp_path_factory.mktemp("small"))
    made.with_qrels({each: docs[1 if each == "q0" else 4] for each, docs in CANDIDATES.items() if each != "q1"})
    made.keys |= {"candidates": {"run": "given.trec", "k": 4}, "mono": made.keys["mono"] | {"k": 4}}
    return made


@pytest.fixture(scope="module")
def output(collection: SmallCollection) -> Path:
    done = beamrank_here("run", collection.path, "--set", _ON)
    assert done.returncode == 0, done.stderr
    assert (
        "retrieve: 8 of 10 topics (80.0 %) got a relevant doc (add_relevant): all measures are flattered" in done.stderr
    )
    return collection.output


def test_add_relevant_puts_the_relevant_doc_at_rank_k(output: Path):
    expected = {each: docs[:4] for each, docs in CANDIDATES.items()}
    for query_id in expected.keys() - {"q0", "q1"}:
        expected[query_id] = [*CANDIDATES[query_id][:3], CANDIDATES[query_id][4]]
    assert read_trec(output / "runs/candidates-with-relevant.trec") == expected
    mono = read_trec(output / "runs/mono-with-relevant.trec")
    assert {each: set(docs) for each, docs in mono.items()} == {each: set(docs) for each, docs in expected.items()}
    measures = json.loads((output / "runs/measures.json").read_text())
    assert measures["candidates-with-relevant"]["RR@10"] == pytest.approx((0.5 + 8 * 0.25) / 9)


def test_add_relevant_is_in_every_name(output: Path):
    runs = {path.name for path in (output / "runs").glob("*.trec")}
    assert runs == {f"{name}-with-relevant.trec" for name in ("candidates", "mono", "duo-sum")}
    metadata = yaml.safe_load((output / "runs/mono-with-relevant.trec.metadata.yaml").read_text())
    assert len(metadata["method"]["retrieval"][0]["add_relevant"]) == 64
    aggregated = beamrank_here("aggregate", output, "--aggregation", "min", "--k1", "2")
    assert aggregated.stdout.strip().endswith("runs/duo-min-k2-with-relevant.trec")
    verified = beamrank_here("verify", output)
    assert verified.returncode == 0, verified.stderr
    assert "not checked: runs/" not in verified.stderr
    Path(aggregated.stdout.strip()).unlink()


def test_add_relevant_is_in_the_report(output: Path, tmp_path: Path):
    done = beamrank_here("report", output, "--output", tmp_path / "report")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report/report.html").read_text(encoding="utf-8")
    assert "This flatters every measure" in page
    assert "candidates-with-relevant" in page
    assert "duo-sum-with-relevant" in page


def test_add_relevant_and_its_qrels_are_in_the_digest(collection: SmallCollection, tmp_path: Path):
    plain, added = collection.plan().plan, collection.plan(_ON).plan
    assert [change.key for change in plan_changes(plain, added)] == ["candidates.add_relevant"]
    (tmp_path / "qrels.txt").write_text("q0 0 d1 1\n")
    other = f"qrels={tmp_path / 'qrels.txt'}"
    assert collection.plan(other).plan.digest == plain.digest
    changed = plan_changes(added, collection.plan(_ON, other).plan)
    assert [(change.key, change.stages) for change in changed] == [
        ("candidates.add_relevant", ("retrieve", "tokenize", "mono", "duo"))
    ]


def test_add_relevant_needs_qrels(collection: SmallCollection):
    with pytest.raises(ConfigError, match=r"candidates.add_relevant adds docs that the qrels judge relevant"):
        load_config(str(collection.path), [_ON, "qrels=null", "measures=[]"])


@pytest.mark.jvm
def test_add_relevant_works_behind_bm25(tmp_path: Path):
    collection = SmallCollection(tmp_path).with_index(k=2).with_qrels(dict.fromkeys(TOPICS, "d0"))
    plain = collection.run(output=tmp_path / "plain")
    added = collection.run("bm25.add_relevant=true", output=tmp_path / "added")
    without, found = (
        read_trec(tmp_path / name) for name in ("plain/runs/bm25.trec", "added/runs/bm25-with-relevant.trec")
    )
    assert plain.plan.digest != added.plan.digest
    assert found == {each: docs if "d0" in docs else [docs[0], "d0"] for each, docs in without.items()}
    assert any("d0" not in docs for docs in without.values())
