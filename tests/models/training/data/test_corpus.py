"""Passages of a corpus as examples, each once an epoch; and when two texts are the same."""

from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from beamrank.errors import PreflightError
from models.training.data.pretraining import PassageSource
from models.training.data.texts import normal_text
from models.training.session import Session
from tests.support.training import make_session, save_start


def _source(lengths: list[int], room_tokens: int) -> PassageSource:
    return PassageSource(np.array(lengths, np.int32), room_tokens, seed=0)


@pytest.mark.parametrize("room_tokens", [0, 16])
def test_each_passage_is_used_once_an_epoch_and_the_stream_resumes_anywhere(room_tokens):
    source = _source([1, 2, 3, 4, 5, 6] * 100, room_tokens)
    whole = list(islice(source.stream(0), 1300))
    passages = [doc for group, _ in whole for doc in group.docs]
    first, second = passages[:600], passages[600:1200]
    assert sorted(first) == sorted(second) == list(range(600))
    assert first != second
    for at in (0, 100, 230, 231, 400, 599, 600):
        assert list(islice(source.stream(whole[at][1]), 50)) == whole[at + 1 : at + 51]
    assert source.groups_per_epoch == (None if room_tokens else 600)


def test_inputs_are_filled_with_whole_passages():
    lengths = [1, 2, 3, 4, 5, 6] * 100
    packs = [
        [lengths[doc] + 1 for doc in group.docs]
        for group, _ in islice(_source(lengths, room_tokens=16).stream(0), 400)
    ]
    assert all(sum(sizes) <= 16 for sizes in packs)
    for sizes, (following, *_) in pairwise(packs):
        assert sum(sizes) + following > 16


def _session(folder: Path, corpus: str, max_bad_rows: int = 100, pack: bool = True) -> Session:
    """A pre-training on a corpus of these lines, of inputs of 16 tokens."""
    save_start(folder / "start")
    (folder / "corpus.tsv").write_text(corpus)
    (folder / "tcp.yaml").write_text(
        "start: start\noutput: out\ninput: {max_length: 16}\noptimizer: {steps: 2, batch_size: 2}\n"
        f"pack: {pack}\ndata: {{corpus: {{path: corpus.tsv, format: tsv}}, max_bad_rows: "
        f"{max_bad_rows}}}\n"
    )
    return make_session(folder / "tcp.yaml", "tcp")


def test_long_passage_fills_an_input_of_its_own(tmp_path):
    session = _session(tmp_path, "".join(f"d{n}\t{'sky ' * n}\n" for n in (3, 40, 14, 13)))
    groups = [group for group, _ in islice(session.source.stream(0), 4)]
    assert {len(group.docs) for group in groups} == {1}
    (batch,) = session.task.collate(groups, 0)["batches"]
    assert sorted(batch["attention_mask"].sum(dim=1).tolist()) == [5, 15, 16, 16]


def test_unusable_passages_are_counted_and_limited(tmp_path):
    corpus = "d0\tone\nbroken\nd1\ttwo\nd2\t \u200b\nd3\t\u3164\nd4\t\u0301\u0302\n"
    session = _session(tmp_path, corpus, pack=False)
    assert session.source.groups_per_epoch == 2
    invalid, empty = session.data.lines
    assert invalid.startswith(
        f"rows of docs that cannot be used: 1 ({tmp_path}/corpus.tsv at byte 7: the row has 1"
    )
    assert empty == "empty passages of the corpus: 3; ignored"
    with pytest.raises(PreflightError, match=r"1 .*data\.max_bad_rows .*corpus\.tsv at byte 7"):
        _session(tmp_path, corpus, max_bad_rows=0)
    with pytest.raises(PreflightError, match="passage"):
        _session(tmp_path, "d1\t \u200b\n")


@pytest.mark.parametrize(
    "text",
    [
        "PARIS is\tthe  capital",
        "\ufeffParis\u00a0is the\u2003capital\n",
        "Pa\u00adris is\u200b the cap\u2060ital\u0000",
        "\uff30aris is the capital",
        "Paris i\ufe0fs the\u3164 capital",
    ],
)
def test_copies_of_a_text_are_the_same(text):
    assert normal_text(text) == "paris is the capital"


def test_unicode_forms_of_a_text_are_the_same():
    assert normal_text("Caf\u00e9 Stra\u00dfe \ufb01ne") == normal_text("CAFE\u0301 STRASSE fine")
    assert normal_text("\u0130") == normal_text("i\u0307")


@pytest.mark.parametrize(
    "text", ["", " \t\n", "\u00a0 \u200b", "\ufeff\u2063\u034f", "\u3164\u2800", "\ufffd\u0001"]
)
def test_text_of_invisible_characters_is_empty(text):
    assert normal_text(text) == ""


@pytest.mark.parametrize(
    ("one", "other"), [("a", "b"), ("e", "\u00e9"), ("a b", "ab"), ("\u4e2d", "\u56fd")]
)
def test_other_texts_are_not_the_same(one, other):
    assert normal_text(one) != normal_text(other)
