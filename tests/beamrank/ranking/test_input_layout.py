import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertTokenizer

from beamrank.errors import ConfigError
from beamrank.ranking.input_layout import (
    InputLimits,
    InputTemplate,
    PackedInputs,
    duo_kept,
    lay_out,
    max_doc_tokens,
    mono_kept,
)

MONO = InputTemplate((101,), ((102,), (102,)), (0, 1), 0)
DUO = InputTemplate((101,), ((102,), (102,), (102,)), (0, 1, 2), 0)
XLM_ROBERTA = InputTemplate((0,), ((2, 2), (2,)), (0, 0), 1)


def convert_to_bert_input(tokens: int, max_seq_length: int, add_cls: bool) -> int:
    """The function of dl4marco-bert, on lengths: how many ids it returns."""
    if tokens > max_seq_length - 2:
        tokens = max_seq_length - 2
    return tokens + (2 if add_cls else 1)


@pytest.mark.parametrize("lengths", [(64, 512), (32, 256)])
@pytest.mark.parametrize("query", [0, 1, 10, 30, 31, 61, 62, 63, 500])
def test_truncation_original_equals_the_code_of_2019(query: int, lengths: tuple[int, int]) -> None:
    max_query_length, max_length = lengths
    docs = np.arange(0, 600)
    limits, queries = (
        InputLimits("original", max_query_length, max_length),
        np.full_like(docs, query),
    )
    kept_query, kept_doc = mono_kept(MONO, limits, queries, docs)
    query_ids = convert_to_bert_input(query, max_query_length, True)
    doc_ids = [convert_to_bert_input(doc, max_length - query_ids, False) for doc in docs.tolist()]
    assert (kept_query == query_ids - 2).all()
    np.testing.assert_array_equal(kept_doc + 1, doc_ids)
    duo_query, first, second = duo_kept(DUO, limits, queries, docs, docs[::-1])
    doc_ids = [
        convert_to_bert_input(doc, (max_length - query_ids) // 2, False) for doc in docs.tolist()
    ]
    assert (duo_query == query_ids - 2).all()
    np.testing.assert_array_equal(first + 1, doc_ids)
    np.testing.assert_array_equal(second + 1, doc_ids[::-1])


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


def _transformers_kept(
    tokenizer: BertTokenizer, query: int, doc: int, max_length: int
) -> tuple[int, int]:
    texts, pairs = [" ".join("q" * query)], [" ".join("d" * doc)]
    (ids,) = tokenizer(texts, pairs, truncation=True, max_length=max_length)["input_ids"]
    assert len(ids) <= max_length
    return ids.count(tokenizer.convert_tokens_to_ids("q")), ids.count(
        tokenizer.convert_tokens_to_ids("d")
    )


def test_truncation_hf_equals_transformers(tmp_path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nq\nd\n")
    tokenizer = BertTokenizer(str(tmp_path / "vocab.txt"))
    for max_length in (8, 21, 64):
        lengths = np.arange(0, max_length + 3)
        queries, docs = (grid.ravel() for grid in np.meshgrid(lengths, lengths))
        queries, docs = queries[:: max_length // 4], docs[:: max_length // 4]
        kept = np.stack(mono_kept(MONO, InputLimits("hf", 8, max_length), queries, docs), axis=1)
        wanted = [
            _transformers_kept(tokenizer, query, doc, max_length)
            for query, doc in zip(queries.tolist(), docs.tolist(), strict=True)
        ]
        np.testing.assert_array_equal(kept, wanted)
    for query, doc in [
        (10, 512),
        (62, 447),
        (62, 448),
        (254, 255),
        (255, 254),
        (255, 255),
        (256, 254),
        (512, 300),
    ]:
        kept_query, kept_doc = mono_kept(
            MONO, InputLimits("hf", 64, 512), np.array([query]), np.array([doc])
        )
        assert (kept_query, kept_doc) == _transformers_kept(tokenizer, query, doc, 512)


def test_truncation_hf_is_refused_for_duo() -> None:
    lengths = np.array([5])
    with pytest.raises(ConfigError, match="`hf`"):
        duo_kept(DUO, InputLimits("hf", 64, 512), lengths, lengths, lengths)


@pytest.mark.parametrize("rule", ["original", "paper"])
def test_truncation_that_leaves_no_doc_is_refused(rule) -> None:
    lengths = np.array([5])
    with pytest.raises(ConfigError, match="leaves duoBERT's docs no wordpiece"):
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


@given(
    texts=st.lists(st.lists(st.integers(200, 60000), max_size=9), min_size=1, max_size=6),
    data=st.data(),
    template=st.sampled_from([MONO, DUO, XLM_ROBERTA]),
    padding=st.integers(0, 5),
)
def test_lay_out_places_the_segments(texts, data, template, padding) -> None:
    segments = len(template.ends)
    tokens = np.array([*(token for text in texts for token in text), 0], np.uint16)
    starts = np.cumsum([0, *(len(text) for text in texts)])
    chosen = data.draw(
        st.lists(
            st.lists(st.integers(0, len(texts) - 1), min_size=segments, max_size=segments),
            min_size=1,
            max_size=4,
        )
    )
    kept = [[data.draw(st.integers(0, len(texts[text]))) for text in row] for row in chosen]
    inputs = PackedInputs(tokens, starts[np.array(chosen)], np.array(kept), template)
    rows = np.arange(len(chosen))[::-1]
    width = int(inputs.lengths.max()) + padding
    batch = lay_out(inputs, rows, width)
    for row, ids, types, length in zip(rows, *batch, strict=True):
        wanted_ids, wanted_types = list(template.start), [template.token_types[0]]
        for segment, (text, count) in enumerate(zip(chosen[row], kept[row], strict=True)):
            wanted_ids += [*texts[text][:count], *template.ends[segment]]
            wanted_types += [template.token_types[segment]] * (count + len(template.ends[segment]))
        assert length == inputs.lengths[row] == len(wanted_ids)
        blank = width - len(wanted_ids)
        assert ids.tolist() == wanted_ids + [template.pad_id] * blank
        assert types.tolist() == wanted_types + [0] * blank


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
