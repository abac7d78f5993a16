"""`import beamrank`: what it offers; runs and qrels as dictionaries."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import beamrank
from beamrank import ConfigError, DataError, PreflightError

RUN = {"q1": {"a": 1.0, "b": 1.0, "c": 3.0}, "q2": {"x": 0.5}}
QRELS = {"q1": {"a": 1}, "q2": {"y": 2}, "q3": {"z": 1}}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    run, qrels = tmp_path / "some.trec", tmp_path / "qrels.txt"
    rows = [
        f"{q} Q0 {d} {r} {s!r} t\n"
        for q, docs in RUN.items()
        for r, (d, s) in enumerate(docs.items())
    ]
    run.write_text("".join(rows))
    qrels.write_text(
        "".join(f"{q} 0 {d} {level}\n" for q, docs in QRELS.items() for d, level in docs.items())
    )
    return run, qrels


def test_read_run_orders_as_every_measure(files: tuple[Path, Path]) -> None:
    found = beamrank.read_run(files[0])
    assert found == RUN
    assert list(found["q1"]) == ["c", "b", "a"]


def test_read_qrels_gives_relevance(files: tuple[Path, Path]) -> None:
    assert beamrank.read_qrels(str(files[1])) == QRELS


@pytest.mark.parametrize("measures", ["RR nDCG@2", "RR, nDCG@2", ["RR", "nDCG@2"]])
def test_evaluate_gives_the_same_for_dictionaries_and_files(files, measures):
    found = beamrank.evaluate(RUN, QRELS, measures)
    assert (
        found
        == beamrank.evaluate(files[0], files[1], measures)
        == beamrank.evaluate(RUN, files[1], measures)
    )
    # `a` ties with `b`, and comes after it: docs that tie are ordered by doc_id, descending.
    assert found.per_query["q1"]["RR"] == pytest.approx(1 / 3)
    assert found.means["RR"] == pytest.approx(1 / 9)
    assert found.notes.not_in_run == ("q3",)


def test_evaluate_reads_any_list_of_measures():
    found = beamrank.evaluate(RUN, QRELS, ["RR", "nDCG@2"])
    assert beamrank.evaluate(RUN, QRELS, (name for name in ("RR", "nDCG@2"))) == found
    assert list(found.means) == ["RR", "nDCG@2"]
    for wrong in ({"RR", "nDCG@2"}, [5], 5, b"RR"):
        with pytest.raises(ConfigError, match="measures"):
            beamrank.evaluate(RUN, QRELS, wrong)  # type: ignore[arg-type]


def test_evaluate_leaves_docs_out(tmp_path):
    """As BEIR measures collections whose queries are docs."""
    run, qrels = {"a": {"a": 3.0, "b": 2.0, "c": 1.0}}, {"a": {"b": 1}}
    assert beamrank.evaluate(run, qrels, "RR@10 nDCG@10").means == {
        "RR@10": 0.5,
        "nDCG@10": pytest.approx(0.63093),
    }
    (tmp_path / "pairs.tsv").write_text("a\ta\na\ta\nz\tz\n")
    for exclude in ("self", tmp_path / "pairs.tsv", {"a": ["a"], "z": ["z"]}):
        found = beamrank.evaluate(run, qrels, "RR@10 nDCG@10", exclude=exclude)
        assert found.means == {"RR@10": 1.0, "nDCG@10": 1.0}
    assert beamrank.evaluate(run, qrels, "RR@10", exclude={"a": ["b"]}).means == {"RR@10": 0.0}


def test_evaluate_says_what_is_missing(caplog):
    qrels = {f"q{query}": {"a": 1} for query in range(10)}
    beamrank.evaluate({f"q{query}": {"a": 1.0} for query in range(9)}, qrels, "RR")
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "judged topics that are not in the run: 1 of 10 ('q9')"
    ]
    caplog.clear()
    assert beamrank.evaluate({"q1": {"a": 1.0}}, qrels, "RR").means == {"RR": 0.1}
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "1 of 10" in caplog.text
    caplog.clear()
    beamrank.evaluate({"a": {"a": 1.0}}, {"a": {"a": 1}}, "RR")
    assert "doc of their own id" in caplog.text


def test_evaluate_takes_the_numbers_of_numpy() -> None:
    run: Any = {"q1": {"a": np.float32(2)}}
    qrels: Any = {"q1": {"a": np.int64(1)}}
    assert beamrank.evaluate(run, qrels, "RR").means == {"RR": 1.0}


@pytest.mark.parametrize(
    ("run", "qrels", "measures", "error", "message"),
    [
        (RUN, QRELS, "RR@ten", ConfigError, "RR@ten"),
        (RUN, {"other": {"a": 1}}, "RR", PreflightError, "'other'"),
        (RUN, {"q1": {"a": 0.5}}, "RR", DataError, r"'a' .*'q1' .*0.5"),
        (RUN, {"q1": {"a": 20_000}}, "RR", DataError, "10,000"),
        (RUN, {"q1": {3: 1}}, "RR", DataError, r"3 \(int\)"),
        (RUN, {"q1": {}}, "RR", DataError, "qrels"),
        ({"q1": {"a": float("inf")}}, QRELS, "RR", DataError, "'a' .*inf"),
        ("/nowhere/run", QRELS, "RR", PreflightError, "/nowhere/run"),
        (b"/nowhere/run", QRELS, "RR", PreflightError, "/nowhere/run"),
        (RUN, {"q1": ["a"]}, "RR", DataError, r"dictionary .*list"),
        ({"q1": None}, QRELS, "RR", DataError, r"'q1' .*NoneType"),
        ({"q1": {"a": "1"}}, QRELS, "RR", DataError, "'q1' .*score"),
        ({"q1": {"a": 10**400}}, QRELS, "RR", DataError, "'q1' .*score"),
    ],
)
def test_evaluate_refuses_bad_input(run, qrels, measures, error, message):
    with pytest.raises(error, match=message):
        beamrank.evaluate(run, qrels, measures)


def test_write_run_writes_strictly_decreasing_scores_that_read_back(tmp_path: Path) -> None:
    path = tmp_path / "mine.trec"
    beamrank.write_run(RUN, path, tag="mine")
    lines = [line.split() for line in path.read_text().splitlines()]
    assert [line[2:4] for line in lines] == [["c", "1"], ["a", "2"], ["b", "3"], ["x", "1"]]
    assert {line[5] for line in lines} == {"mine"}
    scores = list(beamrank.read_run(path)["q1"].values())
    assert scores[0] > scores[1] > scores[2]
    # What was written is written again to the same bytes.
    before = path.read_bytes()
    beamrank.write_run(beamrank.read_run(path), path, tag="mine")
    assert path.read_bytes() == before


def test_write_run_writes_msmarco_lines(tmp_path: Path) -> None:
    beamrank.write_run(RUN, tmp_path / "run.tsv", format="msmarco")
    assert (tmp_path / "run.tsv").read_text() == "q1\tc\t1\nq1\ta\t2\nq1\tb\t3\nq2\tx\t1\n"


@pytest.mark.parametrize(
    ("run", "tag", "error", "message"),
    [
        ({"q1": {"a": float("nan")}}, "t", DataError, "'a' .*nan"),
        ({"q1": {"a b": 1.0}}, "t", DataError, "'a b'"),
        (RUN, "my run", ConfigError, "'my run'"),
        (RUN, None, ConfigError, "tag None"),
        (None, "t", DataError, r"dictionary .*NoneType"),
    ],
)
def test_write_run_refuses_what_cannot_stand_in_a_run(run, tag, error, message, tmp_path):
    with pytest.raises(error, match=message):
        beamrank.write_run(run, tmp_path / "run.trec", tag)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", beamrank.__all__)
def test_public_name_exists_and_is_documented(name: str) -> None:
    found = getattr(beamrank, name)
    assert name in dir(beamrank)
    if name != "__version__":
        assert found.__name__ == name
        assert found.__doc__


def test_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'reranker'"):
        _ = beamrank.reranker
