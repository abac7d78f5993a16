import numpy as np
import pytest

from beamrank.errors import ConfigError
from beamrank.ranking.input_layout import (
    InputLimits,
    InputTemplate,
    PackedInputs,
    duo_kept,
    max_doc_tokens,
    mono_kept,
)

MONO = InputTemplate((101,), ((102,), (102,)), (0, 1), 0)
DUO = InputTemplate((101,), ((102,), (102,), (102,)), (0, 1, 2), 0)
XLM_ROBERTA = InputTemplate((0,), ((2, 2), (2,)), (0, 0), 1)


@pytest.mark.parametrize(
    ("query", "mono_total", "duo_doc", "duo_total"),
    [(6, 511, 250, 510), (11, 511, 247, 509), (62, 511, 222, 510)],
)
def test_truncation_original_gives_the_published_lengths(query, mono_total, duo_doc, duo_total):
    lengths, long = np.array([query]), np.array([512])
    kept_query, kept_doc = mono_kept(MONO, InputLimits("original", 64, 512), lengths, long)
    assert kept_query + kept_doc + 3 == mono_total
    kept_query, first, second = duo_kept(DUO, InputLimits("original", 64, 512), lengths, long, long)
    assert first == second == duo_doc
    assert kept_query + first + second + 4 == duo_total


@pytest.mark.parametrize(("query", "doc"), [(6, 503), (62, 447), (100, 447)])
def test_truncation_paper_gives_its_lengths(query: int, doc: int) -> None:
    lengths, long = np.array([query]), np.array([512])
    kept_query, kept_doc = mono_kept(MONO, InputLimits("paper", 64, 512), lengths, long)
    assert (kept_query, kept_doc) == (min(query, 62), doc)
    kept_query, first, second = duo_kept(
        DUO, InputLimits("paper", 64, 512), lengths, long, np.array([9])
    )
    assert (kept_query, first, second) == (min(query, 62), 223, 9)
    kept_query, first, _ = duo_kept(DUO, InputLimits("paper", 32, 256), lengths, long, long)
    assert (kept_query, first) == (min(query, 30), 111)


def test_truncation_hf_is_refused_for_duo() -> None:
    lengths = np.array([5])
    with pytest.raises(ConfigError, match="`hf`"):
        duo_kept(DUO, InputLimits("hf", 64, 512), lengths, lengths, lengths)


@pytest.mark.parametrize("rule", ["original", "paper"])
def test_truncation_that_leaves_no_doc_is_refused(rule) -> None:
    lengths = np.array([5])
    with pytest.raises(ConfigError, match="14"):
        duo_kept(DUO, InputLimits(rule, 11, 14), lengths, lengths, lengths)
    enough = InputLimits(rule, 11, {"original": 17, "paper": 15}[rule])
    assert [
        each.tolist() for each in duo_kept(DUO, enough, np.array([9]), lengths, lengths)[1:]
    ] == [[1], [1]]


@pytest.mark.parametrize(("rule", "total"), [("original", 511), ("paper", 512), ("hf", 512)])
def test_truncation_leaves_room_for_other_templates(rule, total) -> None:
    query, doc = np.array([6, 100]), np.array([600, 600])
    kept = mono_kept(XLM_ROBERTA, InputLimits(rule, 64, 512), query, doc)
    inputs = PackedInputs(
        np.zeros(1, np.uint16), np.zeros((2, 2), np.int64), np.stack(kept, axis=1), XLM_ROBERTA
    )
    assert inputs.lengths.tolist() == [total, total]
    assert inputs.take(np.array([1])).lengths.tolist() == [total]


_PROMPTED = InputTemplate(tuple(range(70)), ((1, 2), (3, 4, 5)), (0, 0), 0)


def test_text_of_a_prompt_leaves_the_query_its_length():
    query, doc = mono_kept(
        _PROMPTED, InputLimits("paper", 64, 512), np.array([10, 100]), np.array([500, 500])
    )
    assert query.tolist() == [10, 61]
    assert (query + doc + _PROMPTED.special_tokens).tolist() == [512, 512]


@pytest.mark.parametrize("rule", ["original", "paper"])
def test_prompted_triple_fits_with_the_longest_query(rule):
    template = InputTemplate(tuple(range(70)), ((1, 2), (6,), (3, 4, 5)), (0, 0, 0), 0)
    kept = duo_kept(template, InputLimits(rule, 64, 512), *(np.array([500]) for _ in range(3)))
    assert kept[0].tolist() == [61]
    assert 505 <= sum(each[0] for each in kept) + template.special_tokens <= 512


def test_prompt_without_room_for_a_doc_is_refused():
    with pytest.raises(
        ConfigError,
        match="75 tokens",
    ):
        mono_kept(_PROMPTED, InputLimits("paper", 64, 138), np.array([1]), np.array([1]))
    assert mono_kept(_PROMPTED, InputLimits("paper", 64, 139), np.array([1]), np.array([1])) == (
        1,
        1,
    )


def test_stored_tokens_are_those_that_a_model_reads_and_at_least_512():
    assert (max_doc_tokens(10), max_doc_tokens(513)) == (512, 513)


def test_truncation_hf_does_not_depend_on_how_much_of_a_text_is_stored() -> None:
    limits, queries, docs = InputLimits("hf", 64, 512), np.array([3000]), np.array([600])
    stored = [
        mono_kept(MONO, limits, np.minimum(queries, most), np.minimum(docs, most))
        for most in (512, 600, 4096)
    ]
    assert stored == [stored[0]] * 3
