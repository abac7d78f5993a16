from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.tokenizers.id_table import IdTable


def text_codes(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    codes = [ord(character) for text in texts for character in text]
    return np.array(codes, np.uint32), np.array([len(text) for text in texts], np.int64)


def read_back(table: IdTable, texts: list[str]) -> list[str]:
    rows = table.rows_of(texts, len(texts))
    lengths = table.lengths(rows)
    codes = table.gather(rows, lengths)
    ends = np.cumsum(lengths)
    return ["".join(map(chr, codes[end - length : end])) for end, length in zip(ends, lengths, strict=True)]


@given(
    batches=st.lists(st.lists(st.text(st.sampled_from("abc"), max_size=4), max_size=12), max_size=12),
    max_rows=st.integers(0, 20),
)
def test_full_table_forgets_and_stays_correct(batches, max_rows):
    table = IdTable(np.dtype(np.uint32), text_codes, max_rows=max_rows)
    for batch in batches:
        assert read_back(table, batch) == batch
        assert len(table) <= max_rows + len(set(batch))


def test_long_texts_do_not_stay_in_a_full_table():
    table = IdTable(np.dtype(np.uint32), text_codes, max_chars=1000)
    assert read_back(table, ["x" * 2000, "a", "b", "c"]) == ["x" * 2000, "a", "b", "c"]
    assert read_back(table, ["d"]) == ["d"]
    assert len(table) == len("abcd")


def test_failed_call_leaves_no_rows_without_ids():
    def refuse_x(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        if "x" in texts:
            raise ValueError("x")
        return text_codes(texts)

    table = IdTable(np.dtype(np.uint32), refuse_x)
    assert read_back(table, ["ab", "c"]) == ["ab", "c"]
    with pytest.raises(ValueError, match="x"):
        table.rows_of(["new", "x"], 2)
    assert read_back(table, ["new", "c", "ab"]) == ["new", "c", "ab"]
