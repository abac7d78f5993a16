"""An index that is updated to a changed corpus finds what one that is built anew finds, with the
same scores.
"""

import random

import fsspec
import pytest

from beamrank.errors import DataError, PreflightError
from beamrank.records import Topic
from models.lucene import build
from models.lucene.bm25 import Bm25Searcher
from models.lucene.build import DOCS_NAME, build_index, run_anserini
from models.lucene.index import read_index_info
from tests.support.changed_files import flip_bit
from tests.support.corpora import save_corpus

pytestmark = pytest.mark.jvm

WORDS = [
    "fox",
    "bear",
    "hound",
    "wolf",
    "lynx",
    "otter",
    "badger",
    "stoat",
    "hare",
    "mole",
    "crow",
    "raven",
]


def _texts(count, seed):
    chosen = random.Random(seed)
    return {
        f"d{number}": " ".join(chosen.choices(WORDS, k=chosen.randint(1, 12)))
        for number in range(count)
    }


def _hits(folder):
    topics = [
        Topic(f"q{number}", " ".join(WORDS[number : number + 3])) for number in range(len(WORDS))
    ]
    with Bm25Searcher(str(folder), 0.9, 0.4, 1) as searcher:
        return searcher.search(topics, 1000).to_pydict()


def _changed(docs):
    """A tenth is removed, a tenth has another text, one has lost its text, some are new."""
    found = dict(docs)
    for number in range(0, 200, 10):
        found.pop(f"d{number}")
        found[f"d{number + 1}"] = "a hare and a mole"
    found["d5"] = ""
    return found | {f"n{number}": text for number, text in enumerate(_texts(30, 2).values())}


@pytest.fixture
def analyzed(monkeypatch):
    """How many docs Anserini was given by each update."""
    found: list[int] = []

    def run(folder, threads, docs, kind):
        if folder.name == "added":
            found.append(docs)
        return run_anserini(folder, threads, docs, kind)

    monkeypatch.setattr(build, "run_anserini", run)
    return found


def test_updated_index_equals_one_built_anew(tmp_path, analyzed):
    docs = _texts(200, 1)
    build_index(save_corpus(tmp_path, docs), str(tmp_path / "index"), 2)
    corpus = save_corpus(tmp_path, _changed(docs))
    info = build_index(corpus, str(tmp_path / "index"), 2, update=True)
    assert analyzed == [20 + 1 + 30]
    anew = build_index(corpus, str(tmp_path / "anew"), 2)
    assert (info.docs, info.empty_docs, info.corpus_digest) == (
        anew.docs,
        anew.empty_docs,
        anew.corpus_digest,
    )
    assert _hits(tmp_path / "index") == _hits(tmp_path / "anew")
    assert read_index_info(str(tmp_path / "index")) == info
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["anew", "index"]


@pytest.mark.slow
def test_updated_index_can_be_updated_again(tmp_path, analyzed):
    """Its path is a link, which stays."""
    (tmp_path / "index").symlink_to("elsewhere")
    docs = _texts(100, 1)
    build_index(save_corpus(tmp_path, docs), str(tmp_path / "index"), 1)
    for removed in ("d3", "d4"):
        docs.pop(removed)
        corpus = save_corpus(tmp_path, docs)
        build_index(corpus, str(tmp_path / "index"), 1, update=True)
    build_index(corpus, str(tmp_path / "anew"), 1)
    assert _hits(tmp_path / "index") == _hits(tmp_path / "anew")
    assert analyzed == [], "docs were removed only"
    assert (tmp_path / "index").is_symlink()


@pytest.mark.slow
def test_index_of_most_docs_changed_is_built_anew(tmp_path, analyzed):
    build_index(save_corpus(tmp_path, _texts(50, 1)), str(tmp_path / "index"), 1)
    corpus = save_corpus(tmp_path, _texts(50, 2))
    assert build_index(corpus, str(tmp_path / "index"), 1, update=True).docs == 50
    assert analyzed == []


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["damaged", "missing"])
def test_index_without_a_record_of_its_docs_is_built_anew(tmp_path, analyzed, damage):
    docs = _texts(50, 1)
    build_index(save_corpus(tmp_path, docs), str(tmp_path / "index"), 1)
    record = tmp_path / "index" / DOCS_NAME
    record.unlink() if damage == "missing" else flip_bit(record, 40)
    docs["d1"] = "a swan"
    assert (
        build_index(save_corpus(tmp_path, docs), str(tmp_path / "index"), 1, update=True).docs == 50
    )
    assert analyzed == []


def test_index_is_updated_only_if_asked(tmp_path):
    docs = _texts(20, 1)
    build_index(save_corpus(tmp_path, docs), str(tmp_path / "index"), 1)
    docs.pop("d1")
    with pytest.raises(PreflightError, match=r"`index\.update: true`"):
        build_index(save_corpus(tmp_path, docs), str(tmp_path / "index"), 1)


def test_failed_update_leaves_the_index_as_it_was(tmp_path):
    docs = _texts(50, 1)
    build_index(save_corpus(tmp_path, docs), str(tmp_path / "index"), 1)
    before = _hits(tmp_path / "index")
    corpus = save_corpus(tmp_path, docs)
    with open(corpus.path, "a") as file:
        file.write('{"id": "d1", "contents": "the same id again"}\n')
    with pytest.raises(DataError, match="'d1'"):
        build_index(corpus, str(tmp_path / "index"), 1, update=True)
    assert _hits(tmp_path / "index") == before


@pytest.mark.slow
def test_remote_index_is_updated(tmp_path, monkeypatch, analyzed):
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "cache"))
    docs = _texts(50, 1)
    url = "memory://update-test/index"
    build_index(save_corpus(tmp_path, docs), url, 1)
    docs["d1"] = "a swan and an owl"
    corpus = save_corpus(tmp_path, docs)
    assert build_index(corpus, url, 1, update=True).docs == 50
    assert analyzed == [1]
    fsspec.filesystem("memory").get(f"{url}/", str(tmp_path / "copy"), recursive=True)
    build_index(corpus, str(tmp_path / "anew"), 1)
    assert _hits(tmp_path / "copy") == _hits(tmp_path / "anew")
