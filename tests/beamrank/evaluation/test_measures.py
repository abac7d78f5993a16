"""The names of measures: which are computed, which are refused, and why."""

import pytest
import pytrec_eval

from beamrank.errors import ConfigError
from beamrank.evaluation.measures import explain_names, parse_measures, split_measures


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ndcg@10", r"did you mean nDCG@10\?"),
        ("ndgc@10", r"did you mean nDCG@10\?"),
        ("gm_map", "trec_eval's measure 'gm_map' cannot be computed here; possible are AP"),
        ("11pt_avg", "trec_eval's measure '11pt_avg' cannot be computed here"),
        (
            "official",
            "'official' is a set of measures in trec_eval: name the measures that you want",
        ),
        ("recip_rank.10", "trec_eval's recip_rank takes no such number; without it, it is RR"),
        ("ndcg_cut_2.5", "trec_eval's ndcg_cut takes no such number"),
        ("P_0", "cutoff must be between 1 and"),
        ("P_10x", "unknown measure 'P_10x'"),
        ("nonsense", "unknown measure 'nonsense'; possible are AP, Bpref, Compat"),
        ("ERR@20", "cannot be computed here; possible are AP"),
        ("R", "R@ needs a number"),
        ("P@2.5", "invalid param cutoff=2.5"),
        ("AP(x=1)", "unsupported params"),
        ("nDCG@", "write it like nDCG@10"),
        ("AP(rel=0)", "rel must be between 1 and 10,000, not 0"),
        ("IPrec@1.5", "recall must be between 0 and 1"),
        ("nDCG@1_0", "plain digits"),
        ("nDCG@0x10", "plain digits"),
        ("AP(rel=0b1)", "plain digits"),
        ("nDCG@\u0661\u0660", "nDCG@"),
        ("AP(rel=2,rel=1)", "a parameter appears twice"),
        ("P" * 100_000, r"^measure 'P{1000}'\.\.\. is longer than 1000 characters$"),
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


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        # pytrec_eval would end the process.
        *(
            (f"{name}@0", "cutoff must be between 1 and 1,000,000,000, not 0")
            for name in ("P", "RR", "AP", "nDCG")
        ),
        ("P@1000000001", "cutoff must be between 1 and 1,000,000,000, not 1000000001"),
        ("P_99999999999999999999999", "cutoff must be between"),
        ("nDCG@99999999999999999999999", "cutoff must be between"),
        ("RR@99999999999999999999999", "cutoff must be between"),
        ("P@True", "cutoff must be between"),
        ("P@" + "9" * 5000, "is longer than 1000 characters"),
        ("P(rel=4294967297)@1", "rel must be between 1 and 10,000, not 4294967297"),
        ("Bpref(rel=2147483648)", "rel must be between"),
        ("NumRet(rel=10001)", "rel must be between"),
        ("RR(rel=True)", "rel must be between"),
        ("Compat(p=1e400)", "p must be between 0 and 1, not inf"),
        ("Compat(p=1.01)", "p must be between 0 and 1"),
        ("SetF(beta=1e400)", "beta must be between 0.001 and 1,000, not inf"),
        ("SetF(beta=1e-05)", "beta must be between 0.001 and 1,000"),
        ("IPrec@1e400", "recall must be between 0 and 1, not inf"),
        (
            "nDCG(gains={1:1e400})@3",
            "gains must map whole numbers to whole numbers, from 0 to 10,000",
        ),
        ("nDCG(gains={1:2.5})@3", "gains must map"),
        ("nDCG(gains={1:'2'})", "gains must map"),
        ("nDCG(gains={'1':2})", "gains must map"),
        ("nDCG(gains={1:10001})", "gains must map"),
        ("-" * 10_000 + "1", "is longer than 1000 characters"),
        ("(" * 10_000, "is longer than 1000 characters"),
    ],
)
def test_parameter_out_of_range_is_an_error(name, reason):
    """All of these were tracebacks, NaN or, for a small beta, the values of another measure."""
    with pytest.raises(ConfigError, match=reason) as caught:
        parse_measures([name])
    assert str(caught.value).startswith("measure ")


def test_empty_list_of_measures_is_an_error():
    with pytest.raises(ConfigError, match="there are no measures"):
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
