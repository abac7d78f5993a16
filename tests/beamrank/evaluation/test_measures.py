"""The names of measures: which are computed, which are refused, and why."""

import pytest
import pytrec_eval

from beamrank.errors import ConfigError
from beamrank.evaluation.measures import explain_names, parse_measures, split_measures


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ndcg@10", r"nDCG@10\?"),
        ("ndgc@10", r"nDCG@10\?"),
        ("gm_map", r"'gm_map' .*AP"),
        ("11pt_avg", "'11pt_avg'"),
        ("official", "'official'"),
        ("recip_rank.10", r"recip_rank .*RR"),
        ("ndcg_cut_2.5", "ndcg_cut"),
        ("P_0", "cutoff"),
        ("P_10x", "'P_10x'"),
        ("nonsense", r"'nonsense'.*AP, Bpref, Compat"),
        ("ERR@20", "'ERR@20'.*AP, Bpref"),
        ("R", "R@"),
        ("P@2.5", r"cutoff=2.5"),
        ("AP(x=1)", "'x'"),
        ("nDCG@", "nDCG@10"),
        ("AP(rel=0)", r"rel .*10,000, .*0"),
        ("IPrec@1.5", "recall"),
        ("nDCG@1_0", "digits"),
        ("nDCG@0x10", "digits"),
        ("AP(rel=0b1)", "digits"),
        ("nDCG@\u0661\u0660", "nDCG@"),
        ("AP(rel=2,rel=1)", "twice"),
        ("P" * 100_000, r"^measure 'P{1000}'\.\.\. .*1000"),
        # Those below were tracebacks, NaN or, for a small beta, the values of another measure.
        # pytrec_eval would end the process.
        *((f"{name}@0", "cutoff .*1,000,000,000") for name in ("P", "RR", "AP", "nDCG")),
        ("P@1000000001", r"cutoff .*1,000,000,000, .*1000000001"),
        ("P_99999999999999999999999", "cutoff"),
        ("nDCG@99999999999999999999999", "cutoff"),
        ("RR@99999999999999999999999", "cutoff"),
        ("P@True", "cutoff"),
        ("P@" + "9" * 5000, "1000"),
        ("P(rel=4294967297)@1", r"rel .*10,000, .*4294967297"),
        ("Bpref(rel=2147483648)", "rel "),
        ("NumRet(rel=10001)", "rel "),
        ("RR(rel=True)", "rel "),
        ("Compat(p=1e400)", r"p .*0 and 1, .*inf"),
        ("Compat(p=1.01)", "^measure .*: p "),
        ("SetF(beta=1e400)", r"beta .*0.001 .*1,000, .*inf"),
        ("SetF(beta=1e-05)", "beta"),
        ("IPrec@1e400", r"recall .*inf"),
        ("nDCG(gains={1:1e400})@3", r"gains .*10,000"),
        ("nDCG(gains={1:2.5})@3", "gains"),
        ("nDCG(gains={1:'2'})", "gains"),
        ("nDCG(gains={'1':2})", "gains"),
        ("nDCG(gains={1:10001})", "gains"),
        ("-" * 10_000 + "1", "1000"),
        ("(" * 10_000, "1000"),
    ],
)
def test_unknown_measure_is_an_error(name, reason):
    with pytest.raises(ConfigError, match=reason):
        parse_measures(["AP", name])


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("map", "AP"),
        ("ndcg", "nDCG"),
        ("ndcg_cut_10", "nDCG@10"),
        ("ndcg_cut.10,100", "nDCG@10 nDCG@100"),
        ("recip_rank", "RR"),
        ("recall_1000", "R@1000"),
        ("success", "Success@1 Success@5 Success@10"),
        ("iprec_at_recall_0.10", "IPrec@0.1"),
        ("num_rel", "NumRel"),
        ("Rprec", "Rprec"),
    ],
)
def test_trec_eval_names_are_translated(name, names):
    assert list(parse_measures([name])) == names.split()
    explained = f"{name} is trec_eval's name for {', '.join(names.split())}"
    assert explain_names([name]) == ([] if name == names else [explained])


def test_trec_eval_measures_are_computed_or_refused(capsys):
    refused = set()
    for name in sorted(pytrec_eval.supported_measures | pytrec_eval.supported_nicknames.keys()):
        try:
            names = parse_measures([name])
        except ConfigError:
            refused.add(name)
        else:
            assert list(parse_measures(list(names))) == list(names)
    assert refused == {
        "runid",
        "relstring",
        "utility",
        "11pt_avg",
        "binG",
        "G",
        "ndcg_rel",
        "Rndcg",
    } | {
        *("num_nonrel_judged_ret", "gm_map", "gm_bpref", "Rprec_mult", "relative_P"),
        *("official", "set", "all_trec", "all_prefs", "prefs", "qrels_jg"),
    }
    assert capsys.readouterr().out == ""


def test_empty_list_of_measures_is_an_error():
    with pytest.raises(ConfigError, match="RR@10"):
        parse_measures([])


def test_split_measures_ignores_parentheses():
    text = "RR@10, nDCG(dcg='log2', judged_only=True)@10\nAP(rel=2)  R@1000,P@5"
    names = ["RR@10", "nDCG(dcg='log2', judged_only=True)@10", "AP(rel=2)", "R@1000", "P@5"]
    assert split_measures(text) == names
    assert list(parse_measures(names)) == names
    assert split_measures(" ") == []
    assert split_measures("map,ndcg_cut.10,100 P.5,10,RR@10,5x") == [
        "map",
        "ndcg_cut.10,100",
        "P.5,10",
        "RR@10",
        "5x",
    ]
