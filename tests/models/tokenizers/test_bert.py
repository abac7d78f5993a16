from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from beamrank.errors import DataError
from models.tokenizers.bert import BertTokenizer, load_bert
from tests.models.tokenizers.reference import (
    UNICODE_TEXTS,
    all_ids,
    reference_ids,
    transformers_backend,
)
from tests.support.checkpoints import MINILM


@pytest.fixture(scope="session")
def folder() -> str:
    """The tokenizer of bert-base-uncased, as a development dependency carries it."""
    return str(MINILM)


@pytest.fixture(scope="session")
def tokenizer(folder: str) -> BertTokenizer:
    return load_bert(folder)


@pytest.fixture(scope="session")
def reference(folder: str) -> Tokenizer:
    """What transformers would run, told to read special tokens as text."""
    return transformers_backend(folder)


@pytest.mark.parametrize("text", UNICODE_TEXTS)
def test_text_has_the_ids_of_transformers(tokenizer, reference, text):
    assert all_ids(tokenizer, [text]) == reference_ids(reference, [text])


def test_tokenizer_equals_transformers_for_every_character(tokenizer, reference):
    codes = [
        *range(0xD800),
        *range(0xE000, 0x10000),
        *range(0x1F000, 0x1FB00),
        *range(0x2B700, 0x2B940),
    ]
    codes += [*range(0x2F800, 0x2FA20), *range(0xE0000, 0xE0200), *range(0x10FFF0, 0x110000)]
    texts = [f"the a{chr(code)}b {chr(code)}x Y{chr(code)}" for code in codes]
    differing = [
        hex(code)
        for code, ours, theirs in zip(
            codes, all_ids(tokenizer, texts), reference_ids(reference, texts), strict=True
        )
        if ours != theirs
    ]
    assert differing == []


def test_tokenizer_equals_original_bert_for_common_characters(tokenizer, reference):
    from transformers.models.bert.tokenization_bert_legacy import BasicTokenizer, WordpieceTokenizer

    vocabulary = reference.get_vocab()
    basic, wordpiece = BasicTokenizer(do_lower_case=True), WordpieceTokenizer(vocabulary, "[UNK]")
    # The library's Unicode tables differ from Python's for some characters:
    # docs/reference/model-inputs.md.
    texts = [text for text in UNICODE_TEXTS if "unassigned" not in text]
    expected = [
        [vocabulary[token] for word in basic.tokenize(text) for token in wordpiece.tokenize(word)]
        for text in texts
    ]
    assert all_ids(tokenizer, texts) == expected


_characters = st.one_of(
    st.sampled_from("abcdeEXY0159 .,-'[]#_\t\n\r\x00\x0b\x0c\x1c\x1f\x7f\x85\xa0\xad"),
    st.sampled_from(
        "éÉßİıΣσς東京가ｱ\u0301\u0308\u200b\u200d\u2028\u3000\ufeff\ufffd😀–“”…\U00020000"
    ),
    st.characters(exclude_categories=["Cs"]),
)
_words = st.sampled_from(
    ["the", "The", "[SEP]", "##ing", "playing", "x" * 101, "unaffable", "U.S.A.", "\x0b", "\u200b"]
)
_texts = st.lists(st.one_of(_words, st.text(_characters, max_size=12)), max_size=12).map(" ".join)


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(_texts, max_size=6), max_tokens=st.integers(1, 12))
def test_tokenizer_batch_equals_transformers(tokenizer, reference, texts, max_tokens):
    expected = reference_ids(reference, texts)
    column = tokenizer.encode(texts, max_tokens)
    assert column.ids.to_pylist() == [ids[:max_tokens] for ids in expected]
    assert column.truncated.tolist() == [len(ids) > max_tokens for ids in expected]
    assert all_ids(tokenizer, texts) == expected


def test_tokenizer_has_its_ids_and_digest(tokenizer):
    assert tokenizer.vocab_size == 30522
    assert (tokenizer.special.pad_id, tokenizer.special.cls_id, tokenizer.special.sep_id) == (
        0,
        101,
        102,
    )


def test_encode_without_texts_gives_an_empty_column(tokenizer):
    column = tokenizer.encode([], 512)
    assert column.ids.type == pa.list_(pa.uint16())
    assert len(column.ids) == 0
    assert column.truncated.dtype == np.bool_
    assert column.truncated.shape == (0,)


def test_empty_and_unknown_texts_keep_their_places(tokenizer, reference):
    unknown = reference.token_to_id("[UNK]")
    column = tokenizer.encode(["", "\u4dff \u4dff", "\u200b\x00", "the"], 512)
    assert column.ids.to_pylist() == [[], [unknown, unknown], [], [1996]]
    assert column.truncated.tolist() == [False] * 4


@pytest.mark.parametrize(
    "text",
    [
        "word " * 20_000,
        "word\n" * 20_000,
        "supercalifragilistic" * 3_000,
        "\u200b " * 20_000 + "the end",
        "of\x85the " * 4_000,
        "東京" * 10_000,
        "a." * 10_000,
    ],
    ids=[
        "words",
        "lines",
        "one word",
        "words without ids",
        "joined words",
        "no blanks",
        "punctuation",
    ],
)
@pytest.mark.parametrize("max_tokens", [1, 2, 100, 512])
def test_long_text_is_cut_to_its_first_ids(tokenizer, reference, text, max_tokens):
    [expected] = reference_ids(reference, [text])
    column = tokenizer.encode(["short", text, "and the last"], max_tokens)
    assert column.ids.to_pylist()[1] == expected[:max_tokens]
    assert column.truncated[1] == (len(expected) > max_tokens)
    assert column.ids.to_pylist()[2] == reference_ids(reference, ["and the last"])[0][:max_tokens]


def test_batch_of_many_slices_is_whole(tokenizer, reference):
    texts = [f"passage {number} of the batch" for number in range(5000)]
    assert all_ids(tokenizer, texts) == reference_ids(reference, texts)


def test_tokenizer_survives_half_a_surrogate_pair(tokenizer, reference):
    with pytest.raises(DataError, match=r"text 1 .*U\+D83D.*character 4"):
        tokenizer.encode(["fine neverseenbefore", "half\ud83d"], 512)
    assert all_ids(tokenizer, ["fine neverseenbefore"]) == reference_ids(
        reference, ["fine neverseenbefore"]
    )


def test_threads_share_one_tokenizer(folder, reference):
    shared = load_bert(folder)
    batches = [
        [f"thread{batch} word{number} common" for number in range(300)] for batch in range(8)
    ]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda batch: all_ids(shared, batch), batches))
    assert found == [reference_ids(reference, batch) for batch in batches]
