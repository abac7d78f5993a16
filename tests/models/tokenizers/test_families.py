"""The ids of every family of tokenizers, against transformers' own layout of a pair."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beamrank.ranking.input_layout import InputLimits, InputTemplate, mono_kept
from beamrank.records import NO_TOKEN
from benchmarks.datasets.collection import Collection
from benchmarks.datasets.nfcorpus import read_nfcorpus
from benchmarks.datasets.squad import read_squad
from models.tokenizers.base import Tokenizer
from models.tokenizers.bert import BertTokenizer
from models.tokenizers.library import LibraryTokenizer, load_tokenizer
from tests.models.tokenizers.reference import UNICODE_TEXTS, all_ids
from tests.support.models.tokenizers import FAMILIES, TEXTS, save_tokenizer

_OTHER_TEXTS = [
    "  leading,  double  and   triple    spaces, trailing  ",
    "tabs\tand\nnew\n\nlines \n and\r\nboth\n",
    "don't DON'T we'll  I'm 's",
    "नमस्ते दुनिया, คนไทยเขียนติดกัน, 北京大学, مرحبا بالعالم, שלום",
    "NFC \u00e9\u00c5 NFD e\u0301A\u030a \u0301 space, \u1100\u1161\u11a8 jamo, \u0600prepend "
    "\u0605 \u0301x",
    "👩\u200d🔬 👍🏽 🇫🇷 \ufe0f \u200b zero\u200bwidth \u2060 \ufeff \u00ad",
    "mailto |||EMAIL_ADDRESS||| and <think> x </think>",
    "x" * 300 + " " + "ab " * 200,
]
# Transformers takes an empty second text for none, and text that spells a special token for the
# token.
ORDINARY = [text for text in [*TEXTS, *_OTHER_TEXTS] if text and "[SEP]" not in text]
_SPELLED = [
    "[CLS]",
    "[SEP]",
    "[PAD]",
    "<s>",
    "</s>",
    "<pad>",
    "<mask>",
    "[MASK]",
    "<|im_end|>",
    "<|endoftext|>",
]


@dataclass(frozen=True)
class Family:
    """A tokenizer as beamrank and as transformers load it, and its layout of a pair."""

    name: str
    ours: Tokenizer
    theirs: Any

    @property
    def template(self) -> InputTemplate:
        cls, sep, pad = self.ours.special[:3]
        start, middle, end = {
            "roberta": ((cls,), (sep, sep), (sep,)),
            "xlm-roberta": ((cls,), (sep, sep), (sep,)),
            "camembert": ((cls,), (sep, sep), (sep,)),
            "t5": ((), (sep,), (sep,)),
            "qwen2": ((), (), ()),
        }.get(self.name, ((cls,), (sep,), (sep,)))
        return InputTemplate(start, (middle, end), (0, 1), pad)

    def laid_out(self, query: str, doc: str, limits: InputLimits | None = None) -> list[int]:
        first, second = all_ids(self.ours, [query, doc])
        if limits is not None:
            kept = mono_kept(self.template, limits, np.array([len(first)]), np.array([len(second)]))
            first, second = first[: kept[0][0]], second[: kept[1][0]]
        template = self.template
        return [*template.start, *first, *template.ends[0], *second, *template.ends[1]]

    def reference(self, query: str, doc: str, **settings: Any) -> list[int]:
        ids: list[int] = self.theirs(
            query, doc, **{"padding": False, "truncation": False, **settings}
        )["input_ids"]
        return ids


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    folder = save_tokenizer(request.param, tmp_path_factory.mktemp(request.param))
    return Family(
        request.param, load_tokenizer(folder), transformers.AutoTokenizer.from_pretrained(folder)
    )


def test_pair_layout_equals_transformers(family):
    pairs = [
        (query, doc) for place, query in enumerate(ORDINARY) for doc in ORDINARY[place % 3 :: 3]
    ]
    assert [family.laid_out(*pair) for pair in pairs] == [family.reference(*pair) for pair in pairs]


@pytest.mark.parametrize("max_length", [16, 33, 64])
def test_hf_truncation_equals_transformers(family, max_length):
    pairs = [(query, doc) for query in ORDINARY[::4] for doc in ORDINARY if doc != query]
    limits = InputLimits("hf", 64, max_length)
    expected = [family.reference(*pair, truncation=True, max_length=max_length) for pair in pairs]
    assert [family.laid_out(*pair, limits=limits) for pair in pairs] == expected


@pytest.fixture(scope="module")
def collections(shared_data: Path) -> list[Collection]:
    nfcorpus = read_nfcorpus(shared_data / "nfcorpus" / "nfcorpus.zip", "test")
    return [read_squad(shared_data / "squad_v1.1.tar.gz"), nfcorpus]


@pytest.mark.data
def test_passages_and_queries_have_the_layout_of_transformers(collections, family):
    for collection in collections:
        docs = [doc.text for doc in collection.passages[:: len(collection.passages) // 300]]
        queries = [topic.text for topic in collection.topics[:: len(collection.topics) // 100]]
        pairs = [(queries[place % len(queries)], doc) for place, doc in enumerate(docs)]
        assert [family.laid_out(*pair) for pair in pairs] == [
            family.reference(*pair) for pair in pairs
        ]


_characters = st.one_of(
    st.sampled_from("abcdeEXY0159 .,-'[]<>|#_▁Ġ\t\n\r\x00\x0b\x1c\x85\xa0\xad"),
    st.sampled_from(
        "éÉßİσς東京가ｱ\u0301\u0308\u0600\u200b\u200d\u2028\u3000\ufeff\ufffd😀–“”…\U00020000\uffff"
    ),
    st.characters(exclude_categories=["Cs"]),
)
_words = st.sampled_from(
    ["the", "The", "France", "'s", "x" * 120, "  ", " \n", "|||EMAIL_ADDRESS|||", "1,234"]
)
_texts = st.lists(st.one_of(_words, st.text(_characters, max_size=12)), max_size=12).map(" ".join)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(texts=st.lists(_texts, max_size=6), max_tokens=st.integers(1, 12))
def test_drawn_texts_have_the_ids_of_transformers(family, texts, max_tokens):
    special = {*_SPELLED, *family.theirs.all_special_tokens}
    texts = [text for text in texts if not any(token in text for token in special)]
    backend = family.theirs.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    expected = [encoding.ids for encoding in backend.encode_batch(texts, add_special_tokens=False)]
    column = family.ours.encode(texts, max_tokens)
    assert column.ids.to_pylist() == [ids[:max_tokens] for ids in expected]
    assert column.truncated.tolist() == [len(ids) > max_tokens for ids in expected]


def test_spelled_special_token_is_text(family):
    """`a</s>b` in a passage must not end its part of the input."""
    special = set(family.theirs.all_special_ids) - {family.theirs.unk_token_id}
    for token in {*_SPELLED, *family.theirs.all_special_tokens}:
        for text in (
            token,
            f"a{token}b",
            f"a {token} b",
            f"{token}{token}",
            f" \0{token}",
            "\0007 \0000",
        ):
            assert not special & set(all_ids(family.ours, [text])[0]), text


@pytest.mark.parametrize("family", ["roberta", "modernbert", "qwen2", "electra"], indirect=True)
def test_spelled_special_token_has_the_ids_of_split_special_tokens(family):
    """For these families transformers has a switch for it; a Unigram model still knows `</s>` as a
    piece.
    """
    texts = [f"a {token}b" for token in _SPELLED]
    expected = family.theirs(
        texts, add_special_tokens=False, split_special_tokens=True, padding=False
    )["input_ids"]
    assert all_ids(family.ours, texts) == expected


def test_plain_bert_alone_has_the_table_of_words(family):
    kind = BertTokenizer if family.name in ("bert", "electra", "distilbert") else LibraryTokenizer
    assert type(family.ours) is kind


def test_special_tokens_are_those_of_transformers(family):
    named = [family.theirs.cls_token_id, family.theirs.sep_token_id, family.theirs.pad_token_id]
    if family.name == "t5":
        named[1] = family.theirs.eos_token_id
    assert list(family.ours.special[:3]) == [NO_TOKEN if each is None else each for each in named]


def test_ids_do_not_depend_on_threads_and_batches(family):
    texts = [text for text in UNICODE_TEXTS if text] * 3
    together = all_ids(family.ours, texts)
    assert together == [all_ids(family.ours, [text])[0] for text in texts]
    assert (
        max(token_id for ids in together for token_id in ids)
        < family.ours.vocab_size
        <= len(family.theirs)
    )


def test_saved_padding_and_truncation_are_ignored(tmp_path: Path):
    ours = load_tokenizer(save_tokenizer("modernbert", tmp_path))
    lengths = [len(ids) for ids in all_ids(ours, ["the", "the dog " * 50])]
    assert lengths[0] < 8
    assert lengths[1] > 16


def test_beginning_of_a_long_text_has_the_ids_of_the_whole(family):
    texts = ["".join(ORDINARY[place:] + ORDINARY[:place]) for place in range(len(ORDINARY))]
    for max_tokens in (1, 5, 30):
        column = family.ours.encode(texts, max_tokens)
        assert column.ids.to_pylist() == [ids[:max_tokens] for ids in all_ids(family.ours, texts)]
        assert column.truncated.all()


def test_families_that_split_at_spaces_are_known(family):
    if isinstance(family.ours, LibraryTokenizer):
        assert family.ours.splits_at_spaces == (family.name not in {"qwen2", "deberta-v2"})
