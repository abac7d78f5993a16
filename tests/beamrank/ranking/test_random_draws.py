"""Random draws of everything in this folder, against loops over one number or one token at a time."""

from benchmarks.differential.ranking import check


def test_random_draws_equal_plain_loops(tmp_path):
    assert sum(check(seed, tmp_path) for seed in range(60)) > 60_000
