"""Measures, against trec_eval's expected output and the published figures of real runs."""

import math
from collections.abc import Iterator
from pathlib import Path

import ir_measures
import pytest

from beamrank.errors import ConfigError, PreflightError
from beamrank.evaluation.evaluate import evaluate, evaluate_run_files
from beamrank.evaluation.measures import parse_measures
from beamrank.formats.excluded import Excluded
from beamrank.formats.qrels import qrels_of, read_qrels
from beamrank.formats.run_writer import write_run
from beamrank.formats.runs import read_run
from beamrank.formats.schemas import MAX_RELEVANCE

ORDER = {"q1": ["a", "b", "c", "d"], "q2": ["x", "y"], "q9": ["z"]}
QRELS = qrels_of({"q3": {"m": 1}, "q2": {"x": 0, "y": 2}, "q1": {"b": 1, "d": 3, "e": 1}})


def test_mean_is_over_all_judged_topics():
    evaluation = evaluate(ORDER.items(), QRELS, ["RR", "P@2", "R@4", "Success@1", "Judged@2"])
    assert evaluation.per_query == {
        "q1": {"RR": 0.5, "P@2": 0.5, "R@4": pytest.approx(2 / 3), "Success@1": 0, "Judged@2": 0.5},
        "q2": {"RR": 0.5, "P@2": 0.5, "R@4": 1, "Success@1": 0, "Judged@2": 1},
        "q3": {"RR": 0, "P@2": 0, "R@4": 0, "Success@1": 0, "Judged@2": 0},
    }
    assert list(evaluation.rows())[:2] == [("q1", "RR", 0.5), ("q1", "P@2", 0.5)]
    assert evaluation.means == pytest.approx(
        {"RR": 1 / 3, "P@2": 1 / 3, "R@4": 5 / 9, "Success@1": 0, "Judged@2": 0.5}
    )


def test_notes_name_topics_that_do_not_fit():
    notes = evaluate(ORDER.items(), QRELS, ["RR"], topics=["q1", "q3", "q9"]).notes
    assert (notes.topics, notes.not_in_run) == (3, ("q3",))
    assert notes.lines() == [
        "judged topics that are not in the run: 1 of 3 ('q3'); they count as 0",
        "judged topics that are not among the topics: 1 of 3 ('q2')",
        "topics of the run without judgments: 1 ('q9'); they are left out",
    ]
    assert (
        evaluate(
            {"q": ["a"]}.items(), qrels_of({"q": {"a": 1}}), ["RR"], topics=["q"]
        ).notes.lines()
        == []
    )
    unknown = evaluate(
        [*ORDER.items(), *((f"u{number}", ["a"]) for number in range(4))], QRELS, ["RR"]
    ).notes.lines()
    assert (
        "topics of the run without judgments: 5 ('q9', 'u0', 'u1', ...); they are left out"
        in unknown
    )


def test_ids_of_topics_that_do_not_meet_are_a_warning():
    qrels = qrels_of({str(query): {"d": 1} for query in range(1, 10)})
    few = evaluate({"1": ["d"], "2": ["d"]}.items(), qrels, ["RR"]).notes.warnings
    assert len(few) == 1
    assert "2 of 9" in few[0]
    assert all(shown in few[0] for shown in ("'1', '2'", "'3', '4', '5', ..."))
    assert "ids: order" not in few[0]
    # Topics of a SMART file by their numbers: as many as judged ones, with other ids.
    numbered = {f"{query:03}" if query > 3 else str(query): ["d"] for query in range(1, 10)}
    assert "topics.ids: order" in evaluate(numbered.items(), qrels, ["RR"]).notes.warnings[0]
    assert (
        evaluate({str(query): ["d"] for query in range(6)}.items(), qrels, ["RR"]).notes.warnings
        == ()
    )


def test_ids_of_docs_that_do_not_meet_are_a_warning():
    qrels = qrels_of({f"q{query}": {f"d{query}": 1} for query in range(40)})
    order = {f"q{query}": ["x", "d1"] for query in range(40)}
    (warning,) = evaluate(order.items(), qrels, ["RR"]).notes.warnings
    assert "1 of 40" in warning
    assert all(shown in warning for shown in ("'q0'", "'x', 'd1'", "'d0'"))
    # It counts the whole ranking, and a judged doc that is not relevant.
    met = order | {"q2": [*(f"x{rank}" for rank in range(2000)), "d2"]}
    judged = qrels_of({**qrels.relevance, "q2": {"d2": 0}})
    assert evaluate(met.items(), judged, ["RR"]).notes.warnings == ()
    none = qrels_of({f"q{query}": {"x": 0} for query in range(4)})
    assert evaluate({"q0": ["x"], "q1": ["x"]}.items(), none, ["RR"]).notes.warnings == ()


def test_measures_of_another_version_of_trec_eval_are_named():
    qrels = qrels_of({"q": {f"d{number}": 1 for number in range(4)}})
    found = evaluate({"q": ["d1"]}.items(), qrels, ["IPrec@0.1", "IPrec@0.5", "AP"])
    assert any("trec_eval 10: IPrec@0.1;" in line for line in found.notes.lines())
    assert evaluate({"q": ["d1"]}.items(), qrels, ["IPrec@0.5", "AP"]).notes.lines() == []


def test_names_of_results_are_those_of_ir_measures():
    names = [
        "map",
        "ndcg_cut_10",
        "recip_rank",
        "iprec_at_recall_0.10",
        "P",
        "set_F",
        "MRR@10",
        "nDCG(gains={1:3})@5",
    ]
    means = evaluate(ORDER.items(), QRELS, names).means
    assert [ir_measures.parse_measure(name) for name in means] == list(
        parse_measures(names).values()
    )


def test_judgment_counts_include_missing_topics():
    assert evaluate(ORDER.items(), QRELS, ["NumQ", "NumRel", "NumRet", "NumRelRet"]).means == {
        "NumQ": 3,
        "NumRel": 5,
        "NumRet": 6,
        "NumRelRet": 3,
    }


def test_measures_read_the_same_order():
    """ir_measures alone sends RR@10 and RR to providers with opposite tie rules."""
    order = {"q": [f"d{number:02}" for number in range(40)]}
    for position, doc_id in enumerate(order["q"], 1):
        values = evaluate(
            order.items(), qrels_of({"q": {doc_id: 1}}), ["RR", "RR@10", "RR@1000"]
        ).means
        assert values == {
            "RR": 1 / position,
            "RR@10": 1 / position if position <= 10 else 0,
            "RR@1000": 1 / position,
        }


def test_measures_do_not_change_each_other():
    """ir_measures computes nDCG and NumRet with the gains, rel and judged_only of whichever measure
    comes first.
    """
    qrels = qrels_of({"q": {"a": 1, "c": 0, "d": 2}})
    order = {"q": ["a", "x", "b", "d"]}
    names = [
        "NumRet",
        "P(judged_only=True)@2",
        "nDCG(gains={1:7})@3",
        "nDCG@3",
        "nDCG",
        "AP(rel=2)",
        "SetF(beta=2.0)",
    ]
    together = evaluate(order.items(), qrels, names).means
    assert together == {name: evaluate(order.items(), qrels, [name]).means[name] for name in names}
    assert together["NumRet"] == 4
    assert together["P(judged_only=True)@2"] == 1


@pytest.mark.parametrize("level", [-1, -127])
def test_topic_with_only_negative_judgments_counts_as_zero(level):
    """trec_eval writes before its array of levels there: it crashed, or counted with the levels of
    the topic before.
    """
    qrels = qrels_of({"a": {"x": 3, "y": 1}, "b": {"x": level, "y": level}, "c": {"x": 1, "z": 0}})
    order = {"a": ["y", "x"], "b": ["x", "y", "w"], "c": ["z", "x"]}
    names = [
        "nDCG",
        "nDCG@10",
        "AP",
        "Bpref",
        "infAP",
        "Rprec",
        "P@2",
        "R@5",
        "RR",
        "SetP",
        "SetF",
        "NumRel",
    ]
    names += [
        "nDCG(judged_only=True)@3",
        "nDCG(gains={0:5})",
        "IPrec@0.1",
        "AP(rel=3)",
        "Compat",
        "NumRet",
        "Judged@2",
    ]
    found = evaluate(order.items(), qrels, names).per_query
    assert found["b"] == dict.fromkeys(names, 0) | {"NumRet": 3, "Judged@2": 1}
    for query_id in ("a", "c"):
        alone = qrels_of({query_id: qrels.relevance[query_id]})
        assert (
            found[query_id]
            == evaluate({query_id: order[query_id]}.items(), alone, names).per_query[query_id]
        )


def test_topic_with_the_id_of_trec_evals_empty_cache():
    """pytrec_eval alone gives this topic the freed values of the call before."""
    for judged, value in ("x", 1 / 2), ("y", 1), ("z", 0):
        qrels = qrels_of({"no_query": {judged: 1}})
        assert evaluate({"no_query": ["y", "x"]}.items(), qrels, ["RR", "AP"]).means == {
            "RR": value,
            "AP": value,
        }


def test_interpolated_precision_equals_trec_eval_10():
    """Of 5 relevant docs, recall 0.29 is 1.45 docs: 1 in version 10, 2 in version 9."""
    order = {"q": ["r1", "n1", "r2", "r3", "n2", "n3", "r4"]}
    qrels = qrels_of(
        {"q": {"r1": 1, "r2": 1, "r3": 2, "r4": 1, "r5": 1, "n1": 0}, "missing": {"a": 1}}
    )
    names = [f"IPrec@{recall}" for recall in (0.0, 0.1, 0.29, 0.5, 0.7, 0.8, 1.0)]
    values = [1, 1, 1, 3 / 4, 4 / 7, 4 / 7, 0]
    assert evaluate(order.items(), qrels, names).per_query["q"] == pytest.approx(
        dict(zip(names, values, strict=True))
    )
    assert evaluate(
        order.items(), qrels, ["IPrec(rel=2)@1.0", "IPrec(judged_only=True)@0.8"]
    ).per_query == {
        "q": {"IPrec(rel=2)@1.0": 1 / 4, "IPrec(judged_only=True)@0.8": pytest.approx(4 / 5)},
        "missing": {"IPrec(rel=2)@1.0": 0, "IPrec(judged_only=True)@0.8": 0},
    }


def test_more_topics_than_one_batch():
    order = {f"q{number}": ["a", "b"] for number in range(1203)}
    qrels = qrels_of({query_id: {"b": 1} for query_id in reversed(order)})
    evaluation = evaluate(order.items(), qrels, ["RR@10", "AP"])
    assert evaluation.means == {"RR@10": 0.5, "AP": 0.5}
    assert len(evaluation.per_query) == 1203


@pytest.mark.parametrize(
    "name",
    [
        *(
            "P@1000000000",
            "R@1000000000",
            "nDCG@1000000000",
            "AP@1000000000",
            "RR@1000000000",
            "Judged@1000000000",
        ),
        *(
            "AP(rel=10000)",
            "NumRet(rel=10000)",
            "Compat(p=0.0)",
            "Compat(p=1.0)",
            "nDCG(gains={1:10000,2:0})",
        ),
    ],
)
def test_parameter_at_its_bound_is_computed(name):
    assert 0 <= evaluate(ORDER.items(), QRELS, [name]).means[name] <= 1


@pytest.mark.parametrize("beta", [0.001, 0.5, 1.0, 2.0, 1000.0])
def test_set_f_at_its_bounds_follows_its_formula(beta):
    """trec_eval's: its parameter is the square of the usual beta. Precision is 2/4 and recall
    2/3.
    """
    found = evaluate(
        {"q1": ORDER["q1"]}.items(), qrels_of({"q1": QRELS.relevance["q1"]}), [f"SetF(beta={beta})"]
    ).means
    assert found == {
        f"SetF(beta={beta})": pytest.approx((beta + 1) * (1 / 2) * (2 / 3) / (2 / 3 + beta / 2))
    }


def test_highest_relevance_is_computed(tmp_path):
    (tmp_path / "qrels").write_text(
        f"q 0 a {MAX_RELEVANCE}\nq 0 b 1000\nq 0 c 1\nq 0 d -{MAX_RELEVANCE}\nr 0 a -5\n"
    )
    qrels = read_qrels(str(tmp_path / "qrels"))
    order = {"q": ["d", "b", "x", "a"], "r": ["a"]}
    names = ["nDCG@10", "nDCG", "AP", "AP(rel=1001)", "RR", "RR@10", "NumRel"]
    dcg = 1000 / math.log2(3) + MAX_RELEVANCE / math.log2(5)
    ndcg = dcg / (MAX_RELEVANCE + 1000 / math.log2(3) + 1 / math.log2(4))
    values = [ndcg, ndcg, (1 / 2 + 2 / 4) / 3, 1 / 4, 1 / 2, 1 / 2, 3]
    assert evaluate(order.items(), qrels, names).per_query == {
        "q": pytest.approx(dict(zip(names, values, strict=True))),
        "r": dict.fromkeys(names, 0),
    }


def test_files_without_a_common_topic_are_an_error(tmp_path):
    run, qrels = tmp_path / "a.run", tmp_path / "a.qrels"
    run.write_text("001 Q0 a 1 1 t\n")
    qrels.write_text("1 0 a 1\n")
    with pytest.raises(PreflightError, match=rf"{run} .*{qrels} .*'001', .*'1'"):
        evaluate_run_files([str(run)], str(qrels), ["AP"])


def test_queries_that_seem_to_be_docs_are_noted(tmp_path):
    run, qrels = tmp_path / "a.run", tmp_path / "a.qrels"
    run.write_text("q1 Q0 q1 1 2 t\nq1 Q0 a 2 1 t\n")
    qrels.write_text("q1 0 a 1\n")
    (found,) = evaluate_run_files([str(run)], str(qrels), ["RR"])
    (without,) = evaluate_run_files([str(run)], str(qrels), ["RR"], Excluded("self"))
    assert [each.evaluation.means["RR"] for each in (found, without)] == [0.5, 1.0]
    assert [note for note in found.lines() if "exclude `self`" in note] == list(map(str, found.own))
    assert len(found.own) == 1


FIGURES = {
    "run.dev.small.tsv.gz": (0.15906651549508694, 0.1709, 0.1607, 0.2006, 0.0667, 0.5460, 0.8429),
    "run.monobert.ans_small.dev.tsv.gz": (
        0.40267951625094484,
        0.4109,
        0.3987,
        0.4659,
        0.2762,
        0.8127,
        0.8429,
    ),
    "run.monot5.ans_small.dev.tsv.gz": (
        0.39044217687074834,
        0.3973,
        0.3893,
        0.4504,
        0.2667,
        0.8016,
        0.8429,
    ),
}


@pytest.mark.data
@pytest.mark.parametrize("name", FIGURES)
def test_published_figures_of_real_runs(shared_data, tmp_path, name):
    folder = shared_data / "msmarco/ans_small"
    measures = ["RR@10", "RR", "AP", "nDCG@10", "P@1", "R@50", "R@1000"]
    qrels = str(folder / "qrels.dev.small.tsv")
    (found,) = evaluate_run_files([str(folder / name)], qrels, measures)
    # The MS MARCO script adds floats one by one; our sum is exact.
    assert found.evaluation.means["RR@10"] == pytest.approx(FIGURES[name][0], rel=1e-14)
    assert [round(value, 4) for value in found.evaluation.means.values()][1:] == list(
        FIGURES[name][1:]
    )
    assert found.lines() == []
    run = read_run(str(folder / name))
    rewritten = {
        query_id: list(zip(doc_ids, run.scores[query_id].tolist(), strict=True))
        for query_id, doc_ids in run.order.items()
    }
    write_run(str(tmp_path / "again.trec"), rewritten, "t")
    (again,) = evaluate_run_files([str(tmp_path / "again.trec")], qrels, measures)
    assert again.evaluation == found.evaluation


def _expected(path: Path) -> Iterator[tuple[str, str, str]]:
    """trec_eval's lines: query_id, its name of the measure, value."""
    for line in path.read_text().splitlines():
        name, query_id, value = line.split(None, 2)
        yield query_id, name, value


def _measure_of(trec_name: str) -> str | None:
    """The ir_measures name of a trec_eval measure; None where it has none."""
    try:
        return next(iter(parse_measures([trec_name])))
    except ConfigError:
        return None


def _six_columns(run: Path, folder: Path) -> str:
    """The run without the words after the run tags, which trec_eval's own test data have."""
    cut = folder / run.name
    cut.write_text(
        "".join(" ".join(line.split()[:6]) + "\n" for line in run.read_text().splitlines())
    )
    return str(cut)


def _compare(shared_data: Path, tmp_path: Path, run: str, output: str) -> tuple[int, set[str]]:
    """How many values of an expected output were compared, and which of its measures ir_measures
    does not have.
    """
    folder = shared_data / "trec_eval"
    expected = list(_expected(folder / output))
    names = {name: _measure_of(name) for _, name, _ in expected}
    measures = sorted({name for name in names.values() if name})
    order = read_run(_six_columns(folder / run, tmp_path)).order
    evaluation = evaluate(order.items(), read_qrels(str(folder / "qrels.test")), measures)
    with_c = output.endswith("c")
    averaged = [query_id for query_id in evaluation.per_query if with_c or query_id in order]
    compared = 0
    for query_id, trec_name, value in expected:
        name = names[trec_name]
        if name is None:
            continue
        if query_id != "all":
            found = evaluation.per_query[query_id][name]
        elif with_c:
            found = evaluation.means[name]
        else:
            found = sum(evaluation.per_query[one][name] for one in averaged)
            found /= 1 if trec_name.startswith("num_") else len(averaged)
        assert found == pytest.approx(float(value), abs=0.500001e-4), (query_id, trec_name)
        compared += 1
    return compared, {name for name in names if names[name] is None}


# Those of trec_eval that have no ir_measures counterpart; geometric means are not defined for one
# topic.
NOT_IN_IR_MEASURES = {
    "runid",
    "relstring",
    "utility",
    "11pt_avg",
    "binG",
    "G",
    "ndcg_rel",
    "Rndcg",
} | {
    *(
        "num_nonrel_judged_ret",
        "rbp",
        "rbp_resid",
        "unj_5",
        "unj_10",
        "unj_20",
        "gm_map",
        "gm_bpref",
    ),
    *(f"Rprec_mult_{tenths / 10:.2f}" for tenths in range(2, 21, 2)),
    *(f"relative_P_{cutoff}" for cutoff in (5, 10, 15, 20, 30, 100, 200, 500, 1000)),
}


@pytest.mark.data
@pytest.mark.parametrize(
    ("run", "output", "count"),
    [
        ("results.test", "out.test.a", 65),
        ("results.test", "out.test.aq", 257),
        ("results.trunc", "out.test.aqc", 257),
    ],
)
def test_measures_equal_trec_eval(shared_data, tmp_path, run, output, count):
    """The runs and flags are those of trec_eval's own `make quicktest`: only the last averages with
    -c.
    """
    compared, left_out = _compare(shared_data, tmp_path, run, output)
    assert left_out <= NOT_IN_IR_MEASURES
    assert compared == count


@pytest.mark.data
def test_measures_equal_trec_eval_for_ids_with_a_hash(shared_data):
    folder = shared_data / "trec_eval"
    expected = {name: value for _, name, value in _expected(folder / "out.comment.test")}
    names = {name: measure for name in expected if (measure := _measure_of(name))}
    run = read_run(str(folder / "results.comment.test.gz")).order
    qrels = read_qrels(str(folder / "qrels.comment.test"))
    judged = {query_id: doc_ids for query_id, doc_ids in run.items() if query_id in qrels.relevance}
    means = evaluate(run.items(), qrels, list(names.values())).means
    assert len(judged) == len(qrels.relevance) == 31
    assert len(names) == 28
    for name, measure in names.items():
        assert means[measure] == pytest.approx(float(expected[name]), abs=0.500001e-4), name


@pytest.mark.data
def test_comments_of_trec_eval_10_are_ignored(shared_data):
    folder = shared_data / "trec_eval"
    run = str(folder / "results.test")
    (commented,) = evaluate_run_files(
        [run], str(folder / "qrels.test.with-comments"), ["AP", "P@5"]
    )
    assert commented.qrels_notes.comments == 3
    assert commented.evaluation.means["AP"] == pytest.approx(0.1785, abs=0.500001e-4)
