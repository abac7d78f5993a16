"""Passages of a corpus as examples: each once an epoch, resumable anywhere, packed or not."""

from itertools import islice, pairwise
from pathlib import Path

import pytest

from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora import CorpusConfig
from models.tokenizers.bert import load_bert
from models.training.data.pretraining import CorpusSource, PackedSource
from tests.support.training import save_start


def test_corpus_source_shuffles_and_resumes_anywhere(tmp_path):
    lines = [f"d{number}\tpassage {number}" for number in range(2500)]
    lines[10] = "broken"
    for part in range(2):
        (tmp_path / f"part{part}.tsv").write_text("\n".join(lines[part * 1250 : (part + 1) * 1250]) + "\n")
    source = CorpusSource(CorpusConfig(path=str(tmp_path), format="tsv"), 100, seed=0)
    whole = list(islice(source.stream({}), 5200))
    first, second = ([group.docs[0] for group, _ in whole[start : start + 2499]] for start in (0, 2499))
    assert len(set(first)) == 2499
    assert sorted(first) == sorted(second)
    assert first != second
    for at in (0, 998, 999, 1248, 1249, 1250, 2247, 2498, 2499, 4000):
        assert list(islice(source.stream(whole[at][1]), 300)) == whole[at + 1 : at + 301]
    assert ": 1;" in source.notes(whole[2498][1])[0]


def test_corpus_source_counts_unusable_rows_once(tmp_path):
    """The last two lines are a block of their own, after the last passage."""
    path = tmp_path / "corpus.tsv"
    path.write_text("d0\tone\nd1\ttwo\nd2\t" + "long " * 220_000 + "\nd3\t\nbroken\n")
    corpus = CorpusConfig(path=str(path), format="tsv")
    source = CorpusSource(corpus, 1, seed=0)
    whole = list(islice(source.stream({}), 9))
    assert source.notes(whole[2][1]) == []
    for place in (3, 8):
        assert source.notes(whole[place][1]) == [
            "invalid rows of the corpus: 1; ignored",
            "empty passages of the corpus: 1; ignored",
        ]
    for place in range(8):
        assert list(islice(source.stream(whole[place][1]), 8 - place)) == whole[place + 1 :]
    with pytest.raises(DataError, match=r"data\.max_bad_rows \(0\) .* is .*corpus\.tsv at byte \d+: the row has 1 col"):
        list(islice(CorpusSource(corpus, 0, seed=0).stream({}), 9))


def test_corpus_source_checks_its_first_rows_before_it_is_read(tmp_path):
    path = tmp_path / "corpus.tsv"
    path.write_text("d0\tone\n" + "broken\n" * 250)
    corpus = CorpusConfig(path=str(path), format="tsv")
    with pytest.raises(PreflightError, match=r"more than data\.max_bad_rows \(100\) rows"):
        CorpusSource(corpus, 100, seed=0)
    path.write_text("d0\tone\nd1\t \u200b\nd2\t\u3164\n")
    source = CorpusSource(corpus, 100, seed=0)
    found = list(islice(source.stream({}), 3))
    assert {group.docs for group, _ in found} == {("one",)}
    assert source.notes(found[-1][1]) == ["empty passages of the corpus: 2; ignored"]
    path.write_text("d1\t \u200b\n")
    with pytest.raises(PreflightError, match="has no usable passage"):
        CorpusSource(corpus, 100, seed=0)


def test_corpus_source_refuses_a_corpus_that_was_emptied(tmp_path):
    path = tmp_path / "corpus.tsv"
    path.write_text("d0\tone\nd1\ttwo\n")
    source = CorpusSource(CorpusConfig(path=str(path), format="tsv"), 0, seed=0)
    stream = source.stream(next(source.stream({}))[1])
    path.write_text("d0\t\nd1\t\ndddd\t\n")
    with pytest.raises(DataError, match="has no usable passage"):
        next(stream)


def _packed(folder: Path, lengths: list[int], room_tokens: int) -> PackedSource:
    (folder / "corpus.tsv").write_text("".join(f"d{n}\t{' '.join(['sky'] * m)}\n" for n, m in enumerate(lengths)))
    passages = CorpusSource(CorpusConfig(path=str(folder / "corpus.tsv"), format="tsv"), 0, seed=0)
    return PackedSource(passages, load_bert(save_start(folder / "start")), room_tokens)


def test_packed_source_fills_inputs_with_whole_passages(tmp_path):
    source = _packed(tmp_path, [1, 2, 3, 4, 5, 6] * 100, room_tokens=16)
    packs = [[len(text.split()) + 1 for text in group.docs] for group, _ in islice(source.stream({}), 400)]
    assert all(sum(sizes) <= 16 for sizes in packs)
    for sizes, (following, *_) in pairwise(packs):
        assert sum(sizes) + following > 16
    passages = [size for sizes in packs for size in sizes]
    assert sorted(passages[:600]) == sorted([2, 3, 4, 5, 6, 7] * 100)


def test_packed_source_gives_a_long_passage_an_input(tmp_path):
    source = _packed(tmp_path, [3, 40, 15, 15], room_tokens=16)
    groups = [group for group, _ in islice(source.stream({}), 8)]
    assert sorted(len(group.docs[0].split()) for group in groups[:4]) == [3, 15, 15, 40]
    assert {len(group.docs) for group in groups} == {1}


def test_packed_source_resumes_anywhere(tmp_path):
    source = _packed(tmp_path, [1, 2, 3, 4, 5, 6] * 100, room_tokens=16)
    whole = list(islice(source.stream({}), 500))
    assert any(position["epoch"] for _, position in whole)
    for at in (0, 100, 230, 231, 400):
        assert list(islice(source.stream(whole[at][1]), 50)) == whole[at + 1 : at + 51]
    assert source.notes({"bad_rows": 2}) == ["invalid rows of the corpus: 2; ignored"]
