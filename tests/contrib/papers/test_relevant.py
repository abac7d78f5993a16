"""`beamrank add-relevant`: a relevant doc at rank k where the candidates have none."""

from pathlib import Path

import pytest
import yaml

from beamrank.formats.runs import run_of
from contrib.papers.commands import with_relevant
from tests.support.processes import refused, succeed
from tests.support.runs import read_trec, trec_lines
from tests.support.small_collection import CANDIDATES, SmallCollection, small_cascade

_K = 4


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> SmallCollection:
    """The relevant doc is at rank 5 of every topic but q0, where it is the second, and q1, which is
    not judged.
    """
    made = small_cascade(tmp_path_factory.mktemp("small"))
    made.with_qrels(
        {
            query_id: docs[1 if query_id == "q0" else 4]
            for query_id, docs in CANDIDATES.items()
            if query_id != "q1"
        }
    )
    made.write("bm25.trec", trec_lines(CANDIDATES))
    return made


@pytest.mark.parametrize(
    ("doc_ids", "judgments", "expected"),
    [
        (["a", "b", "c"], {"b": 1, "z": 1}, [("a", 3), ("b", 2), ("c", 1)]),
        (["a", "b", "c"], {"c": 1}, [("a", 3), ("c", 2)]),
        (["a", "b"], {"z": 1, "y": 3}, [("a", 3), ("y", 2)]),
        (["a"], {"z": 1}, [("a", 3), ("z", 2)]),
        ([], {"z": 2}, [("z", 0)]),
        (["a", "b"], {"a": 0, "z": -1}, [("a", 3), ("b", 2)]),
        (["a", "b"], {}, [("a", 3), ("b", 2)]),
    ],
)
def test_relevant_doc_takes_the_place_and_score_of_the_doc_at_rank_k(doc_ids, judgments, expected):
    queries = {
        "other": {"x": 1.0},
        "q": {doc_id: 3.0 - place for place, doc_id in enumerate(doc_ids)},
    }
    run = run_of({query_id: docs for query_id, docs in queries.items() if docs})
    assert with_relevant(run, {"q": judgments}, 2) == {"other": [("x", 1)], "q": expected}


def test_add_relevant_writes_candidates_that_a_run_reads(
    collection: SmallCollection, tmp_path: Path
):
    output = tmp_path / "candidates.trec"
    qrels, source = collection.folder / "qrels.txt", collection.folder / "bm25.trec"
    done = succeed("add-relevant", source, "--qrels", qrels, "--k", str(_K), "--output", output)
    assert done.stdout == f"{output}\n"
    assert "8 of 10 queries" in done.stderr
    metadata = yaml.safe_load(Path(f"{output}.metadata.yaml").read_text())
    assert metadata["method"]["retrieval"] == [
        {"name": "with-relevant", "run": str(source), "qrels": str(qrels), "k": _K}
    ]
    expected = {
        query_id: [*docs[:3], docs[3 if query_id in ("q0", "q1") else 4]]
        for query_id, docs in CANDIDATES.items()
    }
    assert {query_id: docs[:_K] for query_id, docs in read_trec(output).items()} == expected

    ran = collection.run(f"candidates.run={output}", f"candidates.k={_K}", f"mono.k={_K}")
    runs = Path(ran.plan.output) / "runs"
    assert read_trec(runs / "candidates.trec") == expected
    mono = read_trec(runs / "mono.trec")
    assert {query_id: set(docs) for query_id, docs in mono.items()} == {
        query_id: set(docs) for query_id, docs in expected.items()
    }


def test_add_relevant_does_not_replace_its_input(collection: SmallCollection):
    source = collection.folder / "bm25.trec"
    arguments = ("add-relevant", source, "--qrels", "qrels.txt", "--k", "4", "--output", source)
    assert "one of the runs" in refused(*arguments, code=2)
