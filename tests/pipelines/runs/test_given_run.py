"""A given run as the first stage: the order of its ties, and a model that makes it worse."""

import json

import pytest

from beamrank.formats.runs import read_run
from tests.support.processes import beamrank_here
from tests.support.runs import read_trec
from tests.support.small_collection import SmallCollection

DOCS = {f"d{number}": f"the passage number {number}, which is about {number} cats" for number in range(8)}
TOPICS = {"q1": "cats", "q2": "the passage about 3 cats", "q3": "number 7"}


@pytest.fixture
def collection(tmp_path) -> SmallCollection:
    """All docs are candidates of each topic; the first four of them tie."""
    made = SmallCollection(tmp_path, DOCS, TOPICS).given_run({}, k=8)
    rows = enumerate(DOCS, 1)
    lines = [f"{doc_id} {rank} {min(5, 9 - rank)} t" for rank, doc_id in rows]
    made.write("given.trec", (f"{query_id} Q0 {line}" for query_id in TOPICS for line in lines))
    return made


def _run(collection: SmallCollection, *arguments: str):
    done = beamrank_here("run", collection.path, *arguments)
    assert done.returncode == 0, done.stderr
    return done


def test_given_run_is_ordered_by_the_chosen_ties(collection: SmallCollection) -> None:
    expected = {"rank": {query_id: list(DOCS) for query_id in TOPICS}}
    expected["doc_id"] = read_run(str(collection.folder / "given.trec")).order
    assert expected["rank"] != expected["doc_id"]
    for ties, order in (("rank", "their ranks"), ("doc_id", "doc_id, descending")):
        done = _run(collection, "--output", str(collection.folder / ties), "--set", f"candidates.ties={ties}")
        assert f"rows with the score of the row before: 9; ordered by {order}" in done.stderr
        assert read_trec(collection.folder / ties / "runs/candidates.trec") == expected[ties]


def test_order_of_ties_decides_the_digest(collection: SmallCollection) -> None:
    default, rank, doc_id = (
        collection.plan(*overrides).plan for overrides in ([], ["candidates.ties=rank"], ["candidates.ties=doc_id"])
    )
    assert default.digest == rank.digest != doc_id.digest


def test_run_warns_about_a_worse_model(collection: SmallCollection, mono_checkpoint) -> None:
    """The relevant docs are those that the model places last, so the run that it was given is better."""
    collection.keys["mono"] = {"checkpoint": mono_checkpoint, "k": 8}
    assert "warning" not in _run(collection).stderr
    ranked = read_trec(collection.output / "runs/mono.trec")
    assert all(doc_ids != list(DOCS) for doc_ids in ranked.values())
    collection.with_qrels({query_id: ids[-1] for query_id, ids in ranked.items()}, ["recip_rank", "P_8"])
    measured = _run(collection, "--stage", "runs")
    assert "warning: mono is below candidates: RR 0.1250 after " in measured.stderr
    assert "P_8 is trec_eval's name for P@8" in measured.stderr
    assert measured.stdout.splitlines()[0].split("\t") == ["run", "RR", "P@8"]
    assert json.loads((collection.output / "runs/measures.json").read_text())["mono"] == {"RR": 0.125, "P@8": 0.125}
