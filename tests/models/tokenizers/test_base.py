from collections.abc import Sequence

import numpy as np
import pytest

from models.tokenizers.base import Ids, Lengths, encode_in_slices


class _Words:
    """Gives each word its length as id, and keeps how many characters each call had."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def encode(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        self.calls.append(sum(map(len, texts)))
        words = [text.split() for text in texts]
        return np.array([len(word) for each in words for word in each], np.uint16), np.array(list(map(len, words)))


@pytest.mark.parametrize("splits_at_spaces", [True, False])
def test_encode_in_slices_reads_a_long_text_as_far_as_needed(splits_at_spaces):
    words = _Words()
    text = "a bc " + "word " * 100_000
    column = encode_in_slices(["short", text], 3, 100, words.encode, splits_at_spaces=splits_at_spaces)
    assert column.ids.to_pylist() == [[5], [1, 2, 4]]
    assert column.truncated.tolist() == [False, True]
    assert (sum(words.calls) < 50) == splits_at_spaces


@pytest.mark.parametrize("text", ["x" * 1000 + " y", "a" + " " * 1000 + "b", ", " * 500, "a b" + "\n" * 90])
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
