"""Measures, against trec_eval's expected output and the published figures of real runs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytrec_eval

from beamrank.errors import ConfigError, PreflightError
from beamrank.evaluation import evaluate, evaluate_run
from beamrank.measures import explain_names, parse_measures, split_measures
from beamrank.qrels import Qrels, QrelsNotes, read_qrels
from beamrank.runs import read_run
from beamrank.trec import write_run


def _qrels(relevance: dict[str, dict[str, int]]) -> Qrels:
    return Qrels(relevance, QrelsNotes("trec", len(relevance), sum(map(len, relevance.values())), 0, 0))


ORDER = {"q1": ["a", "b", "c", "d"], "q2": ["x", "y"], "q9": ["z"]}
QRELS = _qrels({"q3": {"m": 1}, "q2": {"x": 0, "y": 2}, "q1": {"b": 1, "d": 3, "e": 1}})


def test_the_mean_is_over_all_judged_topics() -> None:
    evaluation = evaluate(ORDER.items(), QRELS, ["RR", "P@2", "R@4", "Success@1", "Judged@2"])
    assert evaluation.per_query == {
        "q1": {"RR": 0.5, "P@2": 0.5, "R@4": pytest.approx(2 / 3), "Success@1": 0, "Judged@2": 0.5},
        "q2": {"RR": 0.5, "P@2": 0.5, "R@4": 1, "Success@1": 0, "Judged@2": 1},
        "q3": {"RR": 0, "P@2": 0, "R@4": 0, "Success@1": 0, "Judged@2": 0},
    }
    assert evaluation.means == pytest.approx({"RR": 1 / 3, "P@2": 1 / 3, "R@4": 5 / 9, "Success@1": 0, "Judged@2": 0.5})


def test_topics_that_do_not_fit_are_named() -> None:
    notes = evaluate(ORDER.items(), QRELS, ["RR"], topics=["q1", "q3", "q9"]).notes
    assert (notes.topics, notes.not_in_run, notes.not_in_topics, notes.not_judged) == (3, ("q3",), ("q2",), ("q9",))
    assert notes.lines() == [
        "judged topics that are not among the topics: 1 of 3 ('q2')",
        "judged topics that are not in the run: 1 of 3 ('q3'); they count as 0",
        "topics of the run without judgments: 1 ('q9'); they are left out",
    ]
    assert evaluate({"q": ["a"]}.items(), _qrels({"q": {"a": 1}}), ["RR"], topics=["q"]).notes.lines() == []


def test_what_counts_judgments_counts_those_of_missing_topics() -> None:
    assert evaluate(ORDER.items(), QRELS, ["NumQ", "NumRel", "NumRet", "NumRelRet"]).means == {
        "NumQ": 3,
        "NumRel": 5,
        "NumRet": 6,
        "NumRelRet": 3,
    }


def test_every_measure_reads_the_same_order() -> None:
    """ir_measures alone sends RR@10 and RR to providers with opposite tie rules."""
    order = {"q": [f"d{number:02}" for number in range(40)]}
    for position, doc_id in enumerate(order["q"], 1):
        values = evaluate(order.items(), _qrels({"q": {doc_id: 1}}), ["RR", "RR@10", "RR@1000"]).means
        assert values == {"RR": 1 / position, "RR@10": 1 / position if position <= 10 else 0, "RR@1000": 1 / position}


def test_measures_do_not_change_each_other() -> None:
    """ir_measures computes nDCG and NumRet with the gains, rel and judged_only of whichever measure comes first."""
    qrels = _qrels({"q": {"a": 1, "c": 0, "d": 2}})
    order = {"q": ["a", "x", "b", "d"]}
    names = ["NumRet", "P(judged_only=True)@2", "nDCG(gains={1:7})@3", "nDCG@3", "nDCG", "AP(rel=2)", "SetF(beta=2.0)"]
    together = evaluate(order.items(), qrels, names).means
    assert together == {name: evaluate(order.items(), qrels, [name]).means[name] for name in names}
    assert together["NumRet"] == 4
    assert together["P(judged_only=True)@2"] == 1


def test_negative_and_missing_judgments_are_not_relevant() -> None:
    qrels = _qrels({"q": {"a": -1, "b": 1}, "r": {"a": 0}})
    means = evaluate({"q": ["a", "x", "b"], "r": ["a"]}.items(), qrels, ["AP", "P@3", "NumRel", "nDCG@2"]).means
    assert means == {"AP": pytest.approx(1 / 6), "P@3": pytest.approx(1 / 6), "NumRel": 1, "nDCG@2": 0}


def test_interpolated_precision_is_that_of_trec_eval_10() -> None:
    """Of 5 relevant docs, recall 0.29 is 1.45 docs: 1 in version 10, 2 in version 9."""
    order = {"q": ["r1", "n1", "r2", "r3", "n2", "n3", "r4"]}
    qrels = _qrels({"q": {"r1": 1, "r2": 1, "r3": 2, "r4": 1, "r5": 1, "n1": 0}, "missing": {"a": 1}})
    names = [f"IPrec@{recall}" for recall in (0.0, 0.1, 0.29, 0.5, 0.7, 0.8, 1.0)]
    values = [1, 1, 1, 3 / 4, 4 / 7, 4 / 7, 0]
    assert evaluate(order.items(), qrels, names).per_query["q"] == pytest.approx(dict(zip(names, values, strict=True)))
    assert evaluate(order.items(), qrels, ["IPrec(rel=2)@1.0", "IPrec(judged_only=True)@0.8"]).per_query == {
        "q": {"IPrec(rel=2)@1.0": 1 / 4, "IPrec(judged_only=True)@0.8": pytest.approx(4 / 5)},
        "missing": {"IPrec(rel=2)@1.0": 0, "IPrec(judged_only=True)@0.8": 0},
    }


def test_values_have_the_names_they_were_asked_by() -> None:
    assert evaluate(ORDER.items(), QRELS, ["MRR@10", "RR@10"]).means.keys() == {"MRR@10", "RR@10"}


def test_more_topics_than_are_taken_at_once() -> None:
    order = {f"q{number}": ["a", "b"] for number in range(1203)}
    qrels = _qrels({query_id: {"b": 1} for query_id in reversed(order)})
    evaluation = evaluate(order.items(), qrels, ["RR@10", "AP"])
    assert evaluation.means == {"RR@10": 0.5, "AP": 0.5}
    assert len(evaluation.per_query) == 1203


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ndcg@10", r"did you mean nDCG@10\?"),
        ("ndgc@10", r"did you mean nDCG@10\?"),
        ("gm_map", "trec_eval's measure 'gm_map' cannot be computed here; possible are AP"),
        ("11pt_avg", "trec_eval's measure '11pt_avg' cannot be computed here"),
        ("official", "'official' is a set of measures in trec_eval: name those that you want"),
        ("recip_rank.10", "trec_eval's recip_rank takes no such number; without it, it is RR"),
        ("ndcg_cut_2.5", "trec_eval's ndcg_cut takes no such number"),
        ("P_0", "cutoff must be 1 or more"),
        ("P_10x", "unknown measure 'P_10x'"),
        ("nonsense", "unknown measure 'nonsense'; possible are AP, Bpref, Compat"),
        ("ERR@20", "cannot be computed here; possible are AP"),
        ("R", "R@ needs a number"),
        ("P@2.5", "invalid param cutoff=2.5"),
        ("AP(x=1)", "unsupported params"),
        ("nDCG@", "write it like nDCG@10"),
        ("AP(rel=0)", "rel must be 1 or more"),
        ("IPrec@1.5", "between 0 and 1"),
    ],
)
def test_a_measure_that_cannot_be_is_an_error(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_measures(["AP", name])


@pytest.mark.parametrize("name", ["P@0", "RR@0", "AP@0", "nDCG@0", "Success@0", "Judged@0"])
def test_a_cutoff_of_zero_is_an_error(name: str) -> None:
    """pytrec_eval would end the process."""
    with pytest.raises(ConfigError, match="cutoff must be 1 or more"):
        parse_measures([name])


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("map", ["AP"]),
        ("ndcg", ["nDCG"]),
        ("ndcg_cut_10", ["nDCG@10"]),
        ("ndcg_cut.10,100", ["nDCG@10", "nDCG@100"]),
        ("recip_rank", ["RR"]),
        ("P_10", ["P@10"]),
        ("recall_1000", ["R@1000"]),
        ("success_10", ["Success@10"]),
        ("success", ["Success@1", "Success@5", "Success@10"]),
        ("map_cut_100", ["AP@100"]),
        ("iprec_at_recall_0.10", ["IPrec@0.1"]),
        ("bpref", ["Bpref"]),
        ("num_rel", ["NumRel"]),
        ("set_recall", ["SetR"]),
        ("Rprec", ["Rprec"]),
        ("infAP", ["infAP"]),
    ],
)
def test_trec_evals_names_are_translated(name: str, names: list[str]) -> None:
    assert list(parse_measures([name])) == names
    same = [name] == names
    assert explain_names([name]) == ([] if same else [f"{name} is trec_eval's name for {', '.join(names)}"])


def test_every_measure_of_trec_eval_is_computed_or_refused(capsys: pytest.CaptureFixture[str]) -> None:
    refused = set()
    for name in sorted(pytrec_eval.supported_measures | pytrec_eval.supported_nicknames.keys()):
        try:
            names = parse_measures([name])
        except ConfigError:
            refused.add(name)
        else:
            assert list(parse_measures(list(names))) == list(names)
    assert refused == {"runid", "relstring", "utility", "11pt_avg", "binG", "G", "ndcg_rel", "Rndcg"} | {
        *("num_nonrel_judged_ret", "gm_map", "gm_bpref", "Rprec_mult", "relative_P"),
        *("official", "set", "all_trec", "all_prefs", "prefs", "qrels_jg"),
    }
    assert capsys.readouterr().out == ""


def test_results_of_trec_evals_names_have_ir_measures_names() -> None:
    found = evaluate(ORDER.items(), QRELS, ["recip_rank", "RR", "P_2"])
    assert found.means == pytest.approx({"RR": 1 / 3, "P@2": 1 / 3})
    assert all(values.keys() == {"RR", "P@2"} for values in found.per_query.values())


def test_no_measure_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no measure is asked for"):
        evaluate(ORDER.items(), QRELS, [])


def test_a_list_of_measures_is_split_outside_parentheses() -> None:
    text = "RR@10, nDCG(dcg='log2', judged_only=True)@10\nAP(rel=2)  R@1000,P@5"
    names = ["RR@10", "nDCG(dcg='log2', judged_only=True)@10", "AP(rel=2)", "R@1000", "P@5"]
    assert split_measures(text) == names
    assert list(parse_measures(names)) == names
    assert split_measures(" ") == []
    assert split_measures("map,ndcg_cut.10,100 P.5,10,RR@10,5x") == ["map", "ndcg_cut.10,100", "P.5,10", "RR@10", "5x"]


def test_files_without_a_common_topic_are_an_error(tmp_path: Path) -> None:
    run, qrels = tmp_path / "a.run", tmp_path / "a.qrels"
    run.write_text("001 Q0 a 1 1 t\n")
    qrels.write_text("1 0 a 1\n")
    with pytest.raises(PreflightError, match="no topic in common: the run's first is '001', the qrels' '1'"):
        evaluate_run(str(run), str(qrels), ["AP"])


def test_the_core_needs_no_jvm_no_torch_and_no_beam() -> None:
    code = "import sys, beamrank.evaluation, beamrank.merge, beamrank.trec; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"apache_beam", "torch", "transformers", "pyserini", "typer"} & set(loaded)


FIGURES = {
    "run.dev.small.tsv.gz": (0.15906651549508694, 0.1709, 0.1607, 0.2006, 0.0667, 0.5460, 0.8429),
    "run.monobert.ans_small.dev.tsv.gz": (0.40267951625094484, 0.4109, 0.3987, 0.4659, 0.2762, 0.8127, 0.8429),
    "run.monot5.ans_small.dev.tsv.gz": (0.39044217687074834, 0.3973, 0.3893, 0.4504, 0.2667, 0.8016, 0.8429),
}


@pytest.mark.data
@pytest.mark.parametrize("name", FIGURES)
def test_published_figures_of_real_runs(shared_data: Path, tmp_path: Path, name: str) -> None:
    folder = shared_data / "msmarco/ans_small"
    measures = ["RR@10", "RR", "AP", "nDCG@10", "P@1", "R@50", "R@1000"]
    qrels = str(folder / "qrels.dev.small.tsv")
    found = evaluate_run(str(folder / name), qrels, measures)
    assert found.evaluation.means["RR@10"] == FIGURES[name][0]
    assert [round(value, 4) for value in found.evaluation.means.values()][1:] == list(FIGURES[name][1:])
    assert found.lines() == []
    run = read_run(str(folder / name))
    rewritten = {
        query_id: list(zip(doc_ids, run.scores[query_id].tolist(), strict=True))
        for query_id, doc_ids in run.order.items()
    }
    write_run(str(tmp_path / "again.trec"), rewritten, "t")
    assert evaluate_run(str(tmp_path / "again.trec"), qrels, measures).evaluation == found.evaluation


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


def _compare(shared_data: Path, run: str, output: str) -> tuple[int, set[str]]:
    """How many values of an expected output were compared, and which of its measures ir_measures does not have."""
    folder = shared_data / "trec_eval"
    expected = list(_expected(folder / output))
    names = {name: _measure_of(name) for _, name, _ in expected}
    measures = sorted({name for name in names.values() if name})
    order = read_run(str(folder / run)).order
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


# Those of trec_eval that have no ir_measures counterpart; geometric means are no measure of a topic.
NOT_IN_IR_MEASURES = {"runid", "relstring", "utility", "11pt_avg", "binG", "G", "ndcg_rel", "Rndcg"} | {
    *("num_nonrel_judged_ret", "rbp", "rbp_resid", "unj_5", "unj_10", "unj_20", "gm_map", "gm_bpref"),
    *(f"Rprec_mult_{tenths / 10:.2f}" for tenths in range(2, 21, 2)),
    *(f"relative_P_{cutoff}" for cutoff in (5, 10, 15, 20, 30, 100, 200, 500, 1000)),
}


@pytest.mark.data
@pytest.mark.parametrize(
    ("run", "output", "count"),
    [("results.test", "out.test.a", 65), ("results.test", "out.test.aq", 257), ("results.trunc", "out.test.aqc", 257)],
)
def test_agrees_with_trec_eval_on_every_measure_that_ir_measures_has(
    shared_data: Path, run: str, output: str, count: int
) -> None:
    """The runs and flags are those of trec_eval's own `make quicktest`: only the last averages with -c."""
    compared, left_out = _compare(shared_data, run, output)
    assert left_out <= NOT_IN_IR_MEASURES
    assert compared == count


@pytest.mark.data
def test_agrees_with_trec_eval_on_a_run_with_a_hash_in_its_ids(shared_data: Path) -> None:
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
def test_the_same_figures_with_trec_eval_10s_comments(shared_data: Path) -> None:
    folder = shared_data / "trec_eval"
    run = str(folder / "results.test")
    commented = evaluate_run(run, str(folder / "qrels.test.with-comments"), ["AP", "P@5"])
    assert commented.qrels_notes.comments == 3
    assert commented.evaluation.means["AP"] == pytest.approx(0.1785, abs=0.500001e-4)
