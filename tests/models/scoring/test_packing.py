from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from models.scoring.packing import cut_batches, even_budget, fill_batches, fill_blocks, padded_width

LENGTHS = st.lists(st.integers(3, 512), max_size=200).map(lambda values: np.array(values, np.int64))


@given(lengths=LENGTHS, budget=st.integers(8, 4096))
def test_batch_stays_within_the_token_budget(lengths, budget):
    batches = cut_batches(lengths, budget, 512)
    assert sorted(row for rows in batches for row in rows.tolist()) == list(range(len(lengths)))
    for rows in batches:
        assert len(rows) == 1 or padded_width(lengths[rows], 512) * len(rows) <= budget


@given(lengths=LENGTHS, budget=st.integers(8, 4096))
def test_batches_go_from_long_to_short_and_are_full(lengths, budget):
    batches = cut_batches(lengths, budget, 512)
    for rows, following in pairwise(batches):
        assert lengths[rows].min() >= lengths[following].max()
        assert padded_width(lengths[rows], 512) * (len(rows) + 1) > budget


def test_inputs_of_one_length_stay_in_order():
    batches = cut_batches(np.array([10, 12, 10, 12, 10]), 32, 512)
    assert [rows.tolist() for rows in batches] == [[1, 3], [0, 2], [4]]


def test_batch_width_is_a_multiple_of_8():
    assert padded_width(np.array([3, 9]), 512) == 16
    assert padded_width(np.array([16]), 512) == 16
    assert padded_width(np.array([509]), 510) == 510


@given(lengths=LENGTHS.filter(len), streams=st.integers(1, 8))
def test_streams_get_about_the_same_tokens(lengths, streams):
    budget = even_budget(lengths, 4096, streams)
    assert budget <= 4096
    rounds = -(-int(lengths.sum()) // (4096 * streams))
    assert budget * streams * rounds >= lengths.sum()
    assert budget == 1024 or budget * streams * rounds < lengths.sum() + streams * rounds


def test_budget_of_a_shard_is_cut_evenly():
    lengths = np.full(180, 50)
    assert even_budget(lengths, 4096, 2) == 2250
    assert [len(rows) for rows in fill_batches(lengths, even_budget(lengths, 4096, 2))] == [45] * 4
    assert even_budget(np.full(10, 50), 4096, 2) == 1024


@given(rows=LENGTHS, block=st.sampled_from([64, 256, 1024]))
def test_blocks_take_the_longest_inputs_that_fit(rows, block):
    batches = fill_blocks(rows, block)
    assert sorted(row for some in batches for row in some.tolist()) == list(range(len(rows)))
    for place, some in enumerate(batches):
        room = block - int(rows[some].sum())
        assert room >= 0 or len(some) == 1
        assert all(rows[later].min() > room for later in batches[place + 1 :])
        assert (np.diff(rows[some]) <= 0).all()


def test_long_input_has_a_block_of_its_own():
    assert [some.tolist() for some in fill_blocks(np.array([48, 2000, 16, 32, 16]), 64)] == [[1], [0, 2], [3, 4]]
