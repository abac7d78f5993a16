from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.tokenizers.base import Ids, Lengths, encode_in_slices
from models.tokenizers.bert import IdTable


class _Words:
    """Gives each word its length as id, and keeps how many characters each call had."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def encode(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        self.calls.append(sum(map(len, texts)))
        words = [text.split() for text in texts]
        return np.array([len(word) for each in words for word in each], np.uint16), np.array(
            list(map(len, words))
        )


@pytest.mark.parametrize("splits_at_spaces", [True, False])
def test_encode_in_slices_reads_a_long_text_as_far_as_needed(splits_at_spaces):
    words = _Words()
    text = "a bc " + "word " * 100_000
    column = encode_in_slices(
        ["short", text], 3, 100, words.encode, splits_at_spaces=splits_at_spaces
    )
    assert column.ids.to_pylist() == [[5], [1, 2, 4]]
    assert column.truncated.tolist() == [False, True]
    assert (sum(words.calls) < 50) == splits_at_spaces


@pytest.mark.parametrize(
    "text", ["x" * 1000 + " y", "a" + " " * 1000 + "b", ", " * 500, "a b" + "\n" * 90]
)
def test_encode_in_slices_reads_the_whole_text_where_its_beginning_is_not_enough(text):
    words = [len(word) for word in text.split()]
    column = encode_in_slices([text], 3, 2000, _Words().encode, splits_at_spaces=True)
    assert column.ids.to_pylist() == [words[:3]]
    assert column.truncated.tolist() == [len(words) > 3]


def test_encode_in_slices_bounds_the_characters_of_a_call():
    words = _Words()
    texts = [*["word " * 100_000] * 8, "one word", "x" * 60_000 + " x" * 1_500_000, "y"]
    column = encode_in_slices(texts, 2, 100_000_000, words.encode, splits_at_spaces=False)
    assert len(column.ids) == 11
    assert column.ids.to_pylist()[-3:] == [[3, 4], [60_000, 1], [1]]
    assert words.calls == [2_000_000, 2_000_008, 3_060_000, 1]


def text_codes(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    codes = [ord(character) for text in texts for character in text]
    return np.array(codes, np.uint32), np.array([len(text) for text in texts], np.int64)


def read_back(table: IdTable, texts: list[str]) -> list[str]:
    rows = table.rows_of(texts, len(texts))
    lengths = table.lengths(rows)
    codes = table.gather(rows, lengths)
    ends = np.cumsum(lengths)
    return [
        "".join(map(chr, codes[end - length : end]))
        for end, length in zip(ends, lengths, strict=True)
    ]


@given(
    batches=st.lists(
        st.lists(st.text(st.sampled_from("abc"), max_size=4), max_size=12), max_size=12
    ),
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
