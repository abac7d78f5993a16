"""Inputs of pre-training: segments, token types, hidden wordpieces, next-sentence labels."""

from itertools import pairwise

import numpy as np
import pytest

from models.tokenizers.bert import load_bert
from models.training.data.pretraining import (
    IS_NEXT,
    IS_RANDOM,
    NOT_PREDICTED,
    Ids,
    MaskedInput,
    Masking,
)
from tests.support.training import COLOURS, THINGS, WORDS, save_start

_CLS, _SEP, _MASK = (WORDS.index(word) for word in ("[CLS]", "[SEP]", "[MASK]"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_start(tmp_path_factory.mktemp("start"))


def _masking(folder: str, max_length: int = 32, next_sentence: bool = False) -> Masking:
    return Masking(load_bert(folder), _MASK, max_length, next_sentence, seed=0)


def _packs(*packs: list[str]) -> list[list[Ids]]:
    """The token ids of the passages of each input."""
    return [
        [np.array([WORDS.index(word) for word in text.split()], np.int64) for text in pack]
        for pack in packs
    ]


def _words(found: MaskedInput) -> list[str]:
    """The words of an input before they were hidden."""
    ids = np.where(found.hidden == NOT_PREDICTED, found.ids, found.hidden)
    return [WORDS[token_id] for token_id in ids]


def test_masking_hides_fifteen_percent_as_bert(folder):
    masking = _masking(folder)
    text = " ".join(THINGS + COLOURS)
    ids = [WORDS.index(word) for word in text.split()]
    guessed, masked, same = 0, 0, 0
    for number in range(2000):
        ((shown, types, wanted, label),) = masking.inputs(_packs([text]), number)
        assert (shown[0], shown[-1], label) == (_CLS, _SEP, NOT_PREDICTED)
        assert not types.any()
        hidden = np.flatnonzero(wanted != NOT_PREDICTED)
        assert [wanted[place] for place in hidden] == [ids[place - 1] for place in hidden]
        guessed += len(hidden)
        masked += int((shown[hidden] == _MASK).sum())
        same += int((shown[hidden] == wanted[hidden]).sum())
    assert guessed == 2000 * 3
    assert masked / guessed == pytest.approx(0.8 + 0.1 / len(WORDS), abs=0.03)
    assert same / guessed == pytest.approx(0.1 + 0.1 / len(WORDS), abs=0.03)


def test_packed_passages_keep_their_borders(folder):
    (found,) = _masking(folder).inputs(_packs(["the sky", "is blue", "snow"]), 0)
    assert " ".join(_words(found)) == "[CLS] the sky [SEP] is blue [SEP] snow [SEP]"
    assert found.types.tolist() == [0] * 7 + [1] * 2
    assert (found.hidden != NOT_PREDICTED).sum() == 1
    assert found.hidden[[0, 3, 6, 8]].tolist() == [NOT_PREDICTED] * 4


def test_next_sentence_swaps_segments_of_half_of_the_pairs(folder):
    masking = _masking(folder, next_sentence=True)
    things, colours = [" ".join(THINGS[:6]), " ".join(THINGS[6:])], [" ".join(COLOURS)]
    labels = []
    for number in range(0, 400, 2):
        pair = masking.inputs(_packs(things, colours), number)
        assert len({each.next_label for each in pair}) == 1
        labels.append(pair[0].next_label)
        for found, first, others in zip(pair, (THINGS, COLOURS), (COLOURS, THINGS), strict=True):
            words = _words(found)
            assert (words[0], words[-1]) == ("[CLS]", "[SEP]")
            border = int(found.types.argmax())
            assert words[border - 1] == "[SEP]"
            (one, *_), (other, *_) = (
                [w for w in part if w != "[SEP]"] for part in (words[1:border], words[border:])
            )
            assert one in first
            assert other in (first if found.next_label == IS_NEXT else others)
        used = sorted(word for found in pair for word in _words(found) if word[0] != "[")
        assert used == sorted(THINGS + COLOURS)
    assert set(labels) == {IS_NEXT, IS_RANDOM}
    assert np.mean(labels) == pytest.approx(0.5, abs=0.1)


def test_next_sentence_cuts_within_passages(folder):
    masking = _masking(folder, next_sentence=True)
    packs = _packs(["sky sky", "sky sky sky"], ["sea sea sea", "sea sea"])
    cuts = set()
    for number in range(0, 200, 2):
        one, other = masking.inputs(packs, number)
        assert [len(one.ids), len(other.ids)] == [9, 9]
        assert not any(a == b == "[SEP]" for a, b in pairwise(_words(one)))
        cuts.add(int(one.types.argmax()) - 2)
    # The third token of one and the fourth of the other are borders of passages.
    assert cuts == {1, 5}


def test_next_sentence_leaves_uncut_what_it_cannot_cut(folder):
    masking = _masking(folder, next_sentence=True)
    found = masking.inputs(_packs(["sky"], ["sea"], ["the sky is blue"]), 0)
    assert [each.next_label for each in found] == [NOT_PREDICTED] * 3


def test_inputs_depend_on_their_number_alone(folder):
    masking = _masking(folder, next_sentence=True)
    packs = _packs(*([" ".join(words)] for words in (THINGS, COLOURS, COLOURS, THINGS)))
    whole = masking.inputs(packs, 6)
    parts = masking.inputs(packs[:2], 6) + masking.inputs(packs[2:], 8)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one.ids, other.ids)
        assert one.next_label == other.next_label
