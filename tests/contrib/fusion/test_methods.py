"""Fusion of runs: the published formulas, and ranx 0.3.21 with the values that it gave."""

import json
from pathlib import Path

import pytest

from beamrank.errors import ConfigError
from beamrank.formats import runs
from beamrank.formats.runs import read_run, run_of
from contrib.fusion.methods import METHODS, NORMALIZATIONS, check_fusion, fuse
from tests.support.progress import RecordedProgress

# `ranx.fuse` with kind rrf, sum, mnz and wsum, of three runs; with zmuv for z, and no normalization
# for none.
RANX = json.loads((Path(__file__).parents[2] / "support/data/fusion-ranx-0.3.21.json").read_text())
# In the second run all docs have the same score.
RUNS = [
    run_of({"q1": {"a": 4, "b": 3, "c": 2}, "q2": {"x": 1}}),
    run_of({"q1": {"c": 9, "a": 1, "d": 0}}),
]


@pytest.mark.parametrize(
    "fused", RANX["fused"], ids=lambda fused: f"{fused['method']}-{fused['norm']}"
)
def test_fusion_equals_ranx(fused):
    # ranx keeps the given order of scores that tie; the third run has some.
    runs = [run_of(run, ties="rank") for run in RANX["runs"]]
    fused_runs = fuse(runs, fused["method"], weights=fused["weights"], norm=fused["norm"])
    assert {query_id: dict(ranking) for query_id, ranking in fused_runs.items()} == {
        query_id: pytest.approx(scores, rel=1e-9, abs=1e-9)
        for query_id, scores in fused["scores"].items()
    }


def test_golden_values_cover_every_method_and_normalization():
    reads_scores = {name for name, method in METHODS.items() if not method.reads_ranks}
    wanted = {(name, norm) for name in reads_scores for norm in NORMALIZATIONS} | {("rrf", None)}
    assert {(fused["method"], fused["norm"]) for fused in RANX["fused"]} == wanted


def test_fusion_has_the_topics_of_all_runs():
    fused_runs = fuse([RUNS[1], RUNS[0]], "rrf")
    assert list(fused_runs) == ["q1", "q2"]
    assert fused_runs["q2"] == [("x", 1 / 61)]


def test_ties_keep_the_order_of_the_first_run():
    first, second = run_of({"q": {"a": 3, "b": 2, "x": 1}}), run_of({"q": {"b": 3, "a": 2, "y": 1}})
    assert [doc_id for doc_id, _ in fuse([first, second], "rrf")["q"]] == ["a", "b", "x", "y"]
    assert [doc_id for doc_id, _ in fuse([second, first], "rrf")["q"]] == ["b", "a", "y", "x"]


def test_sums_do_not_depend_on_the_order_of_the_runs():
    runs = [
        run_of({"q": {"a": score, "b": other}})
        for score, other in ((0.1, 0.3), (0.2, 0.1), (0.3, 0.2))
    ]
    (first, second) = fuse(runs, "combsum", norm="none")["q"]
    assert first[1] == second[1]


@pytest.mark.parametrize("norm", ["min-max", "z"])
def test_constant_scores_add_nothing(norm):
    constant = run_of({"q": {"a": 2, "b": 2, "c": 2}}, ties="rank")
    scores = dict(fuse([run_of({"q": {"c": 2, "b": 1}}), constant], "combsum", norm=norm)["q"])
    assert scores["a"] == 0
    assert scores["c"] > scores["b"]


def test_reading_reports_its_progress(tmp_path):
    progress = RecordedProgress()
    (tmp_path / "some.trec").write_text("q1 Q0 a 1 3 t\nq1 Q0 b 2 2 t\nq2 Q0 c 1 3 t\n")
    runs.read_run(str(tmp_path / "some.trec"), progress=progress)
    assert progress.updates[-1] == (3, None, "rows of some.trec read")


def test_k_cuts_the_fused_ranking():
    assert [doc_id for doc_id, _ in fuse(RUNS, "rrf", k=2)["q1"]] == ["a", "c"]


@pytest.mark.parametrize(
    ("runs", "method", "weights", "norm", "message"),
    [
        (1, "rrf", [], None, "two"),
        (2, "rrf", [], "z", "rrf"),
        (2, "combsum", [1, 2], None, r"combsum .*wsum"),
        (2, "wsum", [1], None, "2 .* 1 "),
        (2, "wsum", [1, float("nan")], None, "float32"),
        (2, "wsum", [1, 1e308], None, "float32"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(runs, method, weights, norm, message):
    with pytest.raises(ConfigError, match=message):
        check_fusion(runs, method, weights, norm)


@pytest.mark.data
def test_fusion_of_real_runs_is_above_its_parts(shared_data):
    from beamrank.evaluation.evaluate import evaluate
    from beamrank.formats.qrels import read_qrels

    folder = shared_data / "msmarco/ans_small"
    runs = [
        read_run(str(folder / f"run.{name}.ans_small.dev.tsv.gz"))
        for name in ("monobert", "monot5")
    ]
    qrels = read_qrels(str(folder / "qrels.dev.small.tsv"))
    values = [evaluate(run.order.items(), qrels, ["RR@10"]).means["RR@10"] for run in runs]
    fused = {
        query_id: [doc_id for doc_id, _ in docs] for query_id, docs in fuse(runs, "rrf").items()
    }
    value = evaluate(fused.items(), qrels, ["RR@10"]).means["RR@10"]
    assert values[0] == 0.40267951625094484
    assert min(values) < value
