"""`exclude`: docs that are left out before k is counted, in whole runs behind both first stages."""

from pathlib import Path

import pytest

import beamrank
from beamrank.config.load import load_config
from beamrank.errors import ConfigError, PreflightError
from tests.support.processes import beamrank_here, succeed
from tests.support.refusals import refuses
from tests.support.runs import read_trec
from tests.support.small_collection import DOCS, SmallCollection

# Topics that are docs.
_TOPICS = {doc_id: DOCS[doc_id] for doc_id in ("d0", "d1", "d2")}
_GIVEN = {
    doc_id: [doc_id, *(each for each in sorted(DOCS) if each != doc_id)][:6] for doc_id in _TOPICS
}


@pytest.fixture
def collection(tmp_path: Path) -> SmallCollection:
    made = SmallCollection(tmp_path, topics=_TOPICS).given_run(_GIVEN, k=3)
    return made.with_qrels({"d0": "d1", "d1": "d0", "d2": "d0"})


def test_topics_that_are_docs_are_said_and_left_out(collection: SmallCollection):
    done = beamrank_here("run", collection.path)
    assert "3 of 3 topics (100.0 %)" in done.stderr
    assert read_trec(collection.output / "runs/candidates.trec") == {
        each: docs[:3] for each, docs in _GIVEN.items()
    }
    (collection.folder / "pairs.txt").write_text("d1 d1\nd1 d1\nd2 d0\nq9 d1\n")
    done = succeed("run", collection.path, "--set", "candidates.exclude=pairs.txt")
    assert "retrieve: 2 docs" in done.stderr
    assert "1 of 3 ('q9')" in done.stderr
    assert "relevant: 1 ('d2 d0')" in done.stderr
    found = read_trec(collection.output / "runs/candidates.trec")
    assert found["d0"] == _GIVEN["d0"][:3]
    assert found["d1"] == _GIVEN["d1"][1:4]
    assert found["d2"] == [_GIVEN["d2"][0], *_GIVEN["d2"][2:4]]
    succeed("report", collection.output, "--no-texts")
    refused = beamrank_here("report", collection.output, "--exclude", "self")
    assert refused.returncode == 2


def test_excluded_docs_are_checked_before_the_start(collection: SmallCollection):
    assert (
        load_config(str(collection.path), ["candidates.exclude=self"]).first_stage.exclude == "self"
    )
    named = load_config(str(collection.path), ["candidates.exclude=a/self"]).first_stage.exclude
    assert named == str(collection.folder / "a/self")
    with refuses(PreflightError, "no-file"):
        collection.plan("candidates.exclude=none.txt")
    with pytest.raises(ConfigError):
        load_config(str(collection.path), ["candidates.exclude=''"])


def test_arguments_that_are_lists_of_texts(collection: SmallCollection, tmp_path: Path):
    first = beamrank.run(str(collection.path), output=tmp_path / "first")
    again = beamrank.run(str(collection.path), output=tmp_path / "second", reuse=first.output)
    assert again.measures == first.measures
    for wrong in (
        {"reuse": {first.output}},
        {"flags": {"--x"}},
        {"set": {"measures": {"RR", "AP"}}},
        {"set": {"k": b""}},
    ):
        with pytest.raises(ConfigError):
            beamrank.run(str(collection.path), output=tmp_path / "third", **wrong)


def test_run_warns_of_ids_that_do_not_meet(
    collection: SmallCollection, tmp_path: Path, capsys: pytest.CaptureFixture
):
    qrels = tmp_path / "qrels.txt"
    qrels.write_text("".join(f"d{number} 0 x 1\n" for number in range(9)))
    done = beamrank_here("run", collection.path, "--quiet", "--set", f"qrels={qrels}")
    assert ": 3 of 9" in done.stderr
    assert ": 0 of 3" in done.stderr
    beamrank.run(str(collection.path), set={"qrels": str(qrels)}, output=tmp_path / "python")
    assert "judged topics that are in the run: 3 of 9" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.jvm
def test_bm25_finds_k_docs_beside_those_that_are_left_out(tmp_path: Path):
    collection = SmallCollection(tmp_path, topics=_TOPICS).with_index(k=4)
    deep = read_trec(
        Path(
            beamrank.run(str(collection.path), output=tmp_path / "deep", set={"bm25.k": 9}).runs[
                "bm25"
            ]
        )
    )
    others = {
        each: [doc_id for doc_id in docs if doc_id != each][:4] for each, docs in deep.items()
    }
    assert others != {each: docs[:4] for each, docs in deep.items()}
    alone = beamrank.run(
        str(collection.path), output=tmp_path / "alone", set={"bm25.exclude": "self"}
    ).runs["bm25"]
    assert read_trec(Path(alone)) == others
    (tmp_path / "pairs.txt").write_text("".join(f"d1 {doc_id}\n" for doc_id in deep["d1"][:5]))
    keys = {"bm25.exclude": str(tmp_path / "pairs.txt")}
    found = read_trec(
        Path(beamrank.run(str(collection.path), output=tmp_path / "file", set=keys).runs["bm25"])
    )
    assert found == {each: docs[5:9] if each == "d1" else docs[:4] for each, docs in deep.items()}
