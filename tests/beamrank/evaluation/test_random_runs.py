"""Random runs and qrels, against pytrec_eval and ir_measures: to the last bit of each topic."""

from benchmarks.differential.evaluation import check


def test_random_runs_have_the_values_of_pytrec_eval_and_ir_measures(tmp_path):
    assert sum(check(seed, tmp_path) for seed in range(40)) > 4000
