"""Runs beside a baseline: equal to `eval --against`, corrected together, defined where that is
possible.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from beamrank.errors import ConfigError, PreflightError
from beamrank.evaluation.compare import (
    AGREEMENTS,
    agreement,
    compare_runs,
    kendalls_tau,
    overlap,
    rank_biased_overlap,
)
from beamrank.evaluation.evaluate import evaluate_run_files
from beamrank.evaluation.significance import compare_evaluations, holm
from tests.support.refusals import refuses

MEASURES = ["RR@10", "nDCG@10", "Judged@1"]
QRELS = "".join(f"q{query} 0 a 1\n" for query in range(8))


def _run(order_of):
    """A run with the docs that a function gives for a query, best first."""
    return "".join(
        f"q{query} Q0 {doc_id} {rank} {-rank} t\n"
        for query in range(8)
        for rank, doc_id in enumerate(order_of(query), 1)
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "qrels").write_text(QRELS)
    (tmp_path / "base").write_text(_run(lambda query: "xa" if query % 2 else "xya"))
    (tmp_path / "good").write_text(_run(lambda query: "xya" if query == 7 else "axy"))
    (tmp_path / "poor").write_text(_run(lambda query: "yx" if query < 4 else "xya"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _compare(*runs, qrels="qrels", measures=MEASURES, **options):
    return compare_runs(runs, "base", qrels, measures, **options)


def test_comparison_equals_eval_against_the_baseline(folder):
    found = _compare("good", "poor")
    base, *others = (
        each.evaluation for each in evaluate_run_files(["base", "good", "poor"], "qrels", MEASURES)
    )
    assert ([each.run for each in found.runs], found.warnings) == (["base", "good", "poor"], [])
    assert [each.measures for each in found.runs] == [each.means for each in (base, *others)]
    for compared, evaluation in zip(found.runs[1:], others, strict=True):
        expected = compare_evaluations(evaluation, base)
        assert compared.differences == expected | {
            "Judged@1": replace(expected["Judged@1"], p_value=None)
        }


def test_all_tests_of_the_table_are_corrected_together(folder):
    found = _compare("good", "poor")
    p_values = [
        each.differences[name].p_value for each in found.runs[1:] for name in ("RR@10", "nDCG@10")
    ]
    corrected = [each.corrected[name] for each in found.runs[1:] for name in ("RR@10", "nDCG@10")]
    assert corrected == holm(p_values)
    for each in _compare("good", "poor", correction="none").runs[1:]:
        assert each.corrected["RR@10"] == each.differences["RR@10"].p_value


def test_share_of_judged_docs_is_compared_and_not_tested(folder):
    found = _compare("good")
    judged = found.runs[1].differences["Judged@1"]
    assert (judged.baseline, judged.mean, judged.p_value) == (0, 7 / 8, None)
    assert found.as_object()["runs"][1]["differences"]["Judged@1"]["corrected_p_value"] is None
    assert "Judged is not tested: it is the share of docs that the qrels judge" in found.notes


def test_randomization_test_replaces_the_t_test(folder):
    good = _compare("good", test="randomization").runs[1].differences["RR@10"]
    assert good.p_value == pytest.approx(2 * (1 + 1) / 2**8)
    assert good.p_value != _compare("good").runs[1].differences["RR@10"].p_value


def test_agreement_is_that_of_the_rankings(folder):
    found = _compare("good", "poor").runs
    assert found[0].agreement is None
    assert found[1].agreement.topics == 8
    # Of two runs "xya" and "axy" two pairs of three disagree; "xa" and "axy" share two docs in
    # opposite order.
    assert found[1].agreement.means["tau"] == pytest.approx((4 * -1 / 3 + 3 * -1 + 1) / 8)


def test_without_qrels_only_the_rankings_are_compared(folder):
    found = _compare("good", qrels=None)
    assert found.notes[0] == "no qrels: measures, differences and tests need judgments (--qrels)"
    assert found.table().header == ["run", "measure", "mean"]
    assert [row[:2] for row in found.table().rows] == [
        ["good", name] for name in ("RBO", "tau", "overlap@10")
    ]
    assert found.as_object()["queries"] is None


def test_identical_runs_have_no_p_value(folder):
    found = _compare("base", "good")
    same, good = found.runs[1:]
    assert [each.p_value for each in same.differences.values()] == [None] * 3
    assert set(same.corrected.values()) == {None}
    assert same.agreement.means == pytest.approx({"RBO": 1, "tau": 1, "overlap@10": 1})
    # Two tests: those of the other run are undefined.
    found_p = [good.differences[name].p_value for name in ("RR@10", "nDCG@10")]
    assert list(good.corrected.values()) == holm(found_p)
    assert (
        "base: no topic differs from the baseline, so that p is undefined: RR@10, nDCG@10"
        in found.notes
    )
    assert [row[4] for row in found.table().shown() if row[:2] == ["base", "RR@10"]] == ["-", "-"]


def test_one_topic_is_measured_and_not_tested(folder):
    (folder / "qrels").write_text("q1 0 a 1\n")
    found = _compare("good")
    assert found.runs[1].measures["RR@10"] == 1
    assert found.runs[1].differences == {}
    note = (
        "not compared, because they are not means over two or more topics: RR@10, nDCG@10, Judged@1"
    )
    assert note in found.notes
    assert [row[3:] for row in found.table().rows] == [[None] * 6] * 9


def test_runs_without_a_common_topic_have_no_agreement(folder):
    (folder / "qrels").write_text(QRELS + "p1 0 a 1\n")
    (folder / "other").write_text("p1 Q0 a 1 1 t\n")
    found = _compare("other")
    assert set(found.runs[1].agreement.means.values()) == {None}
    assert (
        "other and base have no topic in common: the agreement of their rankings is undefined"
        in found.notes
    )
    assert found.runs[1].differences["RR@10"].worse == 8


def test_constant_scores_are_ordered_by_doc_id_and_noted(folder):
    (folder / "ties").write_text(
        "".join(f"q{query} Q0 {doc} 1 5 t\n" for query in range(8) for doc in "ab")
    )
    found = _compare("ties")
    assert found.runs[1].measures["RR@10"] == 1 / 2
    assert any(
        note.startswith("ties: rows with the score of the row before: 8") for note in found.notes
    )


def test_table_shows_file_names_that_differ_without_their_folders(folder):
    (folder / "sub").mkdir()
    (folder / "sub/good").write_bytes((folder / "good").read_bytes())
    assert {row[0] for row in _compare("sub/good").table().rows} == {"base", "good"}
    assert {row[0] for row in _compare("good", "sub/good").table().rows} == {
        "base",
        "good",
        "sub/good",
    }


def test_json_holds_no_nan(folder):
    (folder / "qrels").write_text("q1 0 a 1\nq2 0 a 1\n")
    json.dumps(_compare("base", "good", "poor").as_object(), allow_nan=False)


def test_object_and_table_hold_what_was_compared(folder):
    found = _compare("good", test="randomization", correction="bonferroni")
    base, good = found.runs
    values = found.as_object()
    first, second = values.pop("runs")
    assert values == {
        "baseline": "base",
        "queries": 8,
        "judged_queries": 8,
        "topics": "qrels",
        "test": "randomization",
        "correction": "bonferroni",
    }
    assert first == {"name": "base", "run": "base", "queries": 8, "measures": base.measures} | {
        "differences": {},
        "agreement": None,
    }
    assert (second["name"], second["agreement"]) == ("good", {"queries": 8, **good.agreement.means})
    table = found.table()
    p_values = [("p", ".2g"), ("p (bonferroni)", ".2g")]
    assert [(each.name, each.spec) for each in table.columns] == [
        *(("run", ""), ("measure", ""), ("mean", ".4f"), ("diff", "+.4f"), *p_values),
        *(("wins", ","), ("ties", ","), ("losses", ",")),
    ]
    assert table.rows[-1] == ["good", "overlap@10", good.agreement.means["overlap@10"], *[None] * 6]
    assert not any("not tested" in note for note in _compare("good", measures=["RR@10"]).notes)


def test_rows_that_cannot_be_used_are_left_out_up_to_a_number(folder):
    for name, row in ("qrels", "q1 0 b x"), ("good", "q1 Q0 b 9 x t"):
        with (folder / name).open("a") as file:
            file.write(f"{row}\n")
    with pytest.raises(PreflightError):
        _compare("good")
    (evaluated,) = evaluate_run_files(["good"], "qrels", ["RR@10"], max_bad_rows=1)
    assert (
        _compare("good", max_bad_rows=1).runs[1].measures["RR@10"]
        == evaluated.evaluation.means["RR@10"]
    )
    assert len(evaluated.lines()) == 2


def test_bad_input_is_refused(folder):
    with pytest.raises(ConfigError, match="'X'"):
        _compare("none", measures=["X"])
    with refuses(PreflightError, "no-file"):
        _compare("none")
    (folder / "other").write_text("p1 Q0 a 1 1 t\n")
    with pytest.raises(PreflightError, match=r"other .*qrels .*'p1'"):
        _compare("other")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("abcdefg", "abcdefg", 1),
        ("abcde", "bcdae", 0.828),  # the README of b4ny4n/rankmeasures
        ("abcdefg", "bacdefg", 0.9),  # the doctest of dlukes/rbo
        # rbo 0.1.3 on PyPI
        ("abcdefg", "zcavwxybe", 0.38985537696428574),
        ("zcavwxybe", "abc", 0.59380840125),
        ("abc", "xyz", 0),
    ],
)
def test_rbo_equals_published_values(one, other, expected):
    assert rank_biased_overlap(one, other) == pytest.approx(expected, abs=1e-12)
    assert rank_biased_overlap(other, one) == pytest.approx(expected, abs=1e-12)


def test_rbo_equals_equation_32():
    random = np.random.default_rng(0)
    for _ in range(20):
        s, long = sorted(random.integers(1, 30, size=2).tolist())
        short_list, long_list = (
            random.permutation(40)[:s].tolist(),
            random.permutation(40)[:long].tolist(),
        )
        p = random.uniform(0.1, 0.99)
        x = {d: len({*short_list[:d]} & {*long_list[:d]}) for d in range(1, long + 1)}
        sums = sum(x[d] / d * p**d for d in x) + sum(
            x[s] * (d - s) / s / d * p**d for d in range(s + 1, long + 1)
        )
        expected = (1 - p) / p * sums + ((x[long] - x[s]) / long + x[s] / s) * p**long
        assert rank_biased_overlap(short_list, long_list, p) == pytest.approx(expected)


def test_tau_counts_pairs_of_shared_docs():
    """Of the pairs of a, b, c two have the same order and one has not."""
    assert kendalls_tau("abxc", "ybac") == pytest.approx(1 / 3)
    assert kendalls_tau("abc", "cba") == pytest.approx(-1)
    assert kendalls_tau("ab", "ax") is None


def test_overlap_divides_by_the_longer_list():
    assert overlap("abcd", "cxab", 2) == 0
    assert overlap("abcd", "bxab", 2) == 1 / 2
    assert overlap("ab", "abc", 10) == 2 / 3


def test_agreement_is_a_mean_over_the_topics_of_both_runs():
    found = agreement({"q1": "abc", "q2": "ab", "q3": "a"}, {"q2": "ba", "q1": "abc", "q4": "a"})
    assert found.topics == 2
    assert found.means == {"RBO": pytest.approx((1 + 0.9) / 2), "tau": 0, "overlap@10": 1}


def test_agreement_of_runs_without_a_common_topic_is_undefined():
    found = agreement({"q1": "abc"}, {"q2": "abc"})
    assert (found.topics, found.means) == (0, dict.fromkeys(AGREEMENTS))


@pytest.mark.data
def test_real_runs_have_published_measures(shared_data):
    folder = shared_data / "msmarco/ans_small"
    base, mono, t5 = (
        str(folder / name)
        for name in (
            "run.dev.small.tsv.gz",
            "run.monobert.ans_small.dev.tsv.gz",
            "run.monot5.ans_small.dev.tsv.gz",
        )
    )
    found = compare_runs(
        [mono, t5], base, str(folder / "qrels.dev.small.tsv"), ["RR@10", "Judged@10"]
    )
    first, *others = found.runs
    assert others[0].measures["RR@10"] == 0.40267951625094484
    for each in others:
        assert each.measures["RR@10"] > first.measures["RR@10"]
        corrected, rbo = each.corrected["RR@10"], each.agreement.means["RBO"]
        assert corrected is not None
        assert corrected < 1e-4
        assert each.agreement.topics == 105
        assert rbo is not None
        assert 0 < rbo < 1
