"""Tests of BM25 and its expansion: CACM to the published figures, and every query that is out of
the ordinary.
"""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import ir_measures
import pytest
from ir_measures import AP, P

from beamrank.commit.schemas import CANDIDATES
from beamrank.errors import BeamrankError, DataError, PreflightError
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.records import Topic
from models.lucene import jvm
from models.lucene.bm25 import Bm25Searcher
from models.lucene.build import build_index, run_anserini
from models.lucene.index import IndexKind, holds_doc_vectors, read_index_info
from tests.support.corpora import read_cacm, save_corpus
from tests.support.processes import refused, succeed
from tests.support.small_collection import DOCS as SMALL_DOCS
from tests.support.small_collection import SmallCollection
from tests.support.tiers import slow_but

pytestmark = pytest.mark.jvm

_VECTORS = IndexKind(doc_vectors=True)
DOCS = {
    "d1": "a red fox",
    "d-ü": "Übergröße von Äpfeln, 日本語 テキスト",
    "d-😀": "the fox and the bear 😀",
    "d3": "a fox, a fox, a fox",
    "d4": "a red fox",
}


def _index(folder, docs, **keys):
    build_index(save_corpus(folder, docs), str(folder / "index"), threads=2, **keys)
    return str(folder / "index")


def _hits(table):
    found: dict[str, list[tuple[str, float]]] = {}
    for row in table.to_pylist():
        hits = found.setdefault(row["query_id"], [])
        hits.append((row["doc_id"], row["score"]))
        assert row["rank"] == len(hits)
    return found


def _foreign_index(folder, lines):
    """An index that beamrank's checks have not seen."""
    (folder / "docs").mkdir()
    rows = [json.dumps({"id": doc_id, "contents": text}) + "\n" for doc_id, text in lines]
    (folder / "docs" / "docs.jsonl").write_text("".join(rows))
    run_anserini(folder, 1, len(lines))
    return str(folder / "index")


@pytest.fixture(scope="module")
def animals(tmp_path_factory):
    with Bm25Searcher(_index(tmp_path_factory.mktemp("animals"), DOCS), 0.9, 0.4, 2) as searcher:
        yield searcher


@pytest.fixture(scope="module")
def cacm_docs(shared_data):
    return read_cacm(shared_data)


@pytest.fixture(scope="module")
def cacm_folder(cacm_docs, tmp_path_factory):
    return _index(tmp_path_factory.mktemp("cacm"), cacm_docs)


@pytest.fixture(scope="module")
def vectors(cacm_docs, tmp_path_factory):
    """CACM's index with doc vectors."""
    return _index(tmp_path_factory.mktemp("vectors"), cacm_docs, kind=_VECTORS)


@pytest.fixture(scope="module")
def cacm(cacm_folder):
    with Bm25Searcher(cacm_folder, 0.9, 0.4, 2) as searcher:
        yield searcher


@pytest.fixture(scope="module")
def cacm_topics(shared_data):
    topics = read_topics(
        TopicsConfig(path=str(shared_data / "cacm" / "topics.cacm.txt"), format="trec")
    )
    assert len(topics) == 64
    return topics


def _rows(searcher, query_id, text, k=10):
    return searcher.search([Topic(query_id, text)], k).to_pylist()


def _figures(hits, shared_data):
    """AP and P@30 on CACM."""
    run = [
        ir_measures.ScoredDoc(query_id, *hit) for query_id, found in hits.items() for hit in found
    ]
    qrels = list(ir_measures.read_trec_qrels(str(shared_data / "cacm" / "qrels.cacm.txt")))
    assert len({qrel.query_id for qrel in qrels}) == 52
    measures = ir_measures.calc_aggregate([AP, P @ 30], qrels, run)
    return round(measures[AP], 4), round(measures[P @ 30], 4)


@pytest.mark.data
def test_cacm_has_the_published_figures(cacm, cacm_topics, shared_data):
    assert _figures(_hits(cacm.search(cacm_topics, 1000)), shared_data) == (0.3123, 0.1942)


@pytest.mark.data
@pytest.mark.parametrize(
    ("expansion", "figures"),
    slow_but(1, [("rm3", (0.3648, 0.2224)), ("rocchio", (0.36, 0.216))]),
)
def test_expansion_on_cacm_has_pyserinis_figures(
    expansion, figures, vectors, cacm_topics, shared_data
):
    """RM3's are also those that Anserini publishes."""
    with Bm25Searcher(vectors, 0.9, 0.4, 2, expansion=expansion) as searcher:
        hits = _hits(searcher.search(cacm_topics, 1000))
        # Neither a smaller depth nor other topics change what is found.
        for topic in cacm_topics[:3]:
            assert _hits(searcher.search([topic], 4)) == {topic.query_id: hits[topic.query_id][:4]}
    assert _figures(hits, shared_data) == figures


@pytest.mark.data
def test_bm25_on_cacm_equals_anserinis_run(cacm, cacm_topics, shared_data):
    found = cacm.search(cacm_topics, 30)
    ours = {(row["query_id"], row["rank"]): row for row in found.to_pylist()}
    lines = (shared_data / "cacm" / "cacm-bm25.txt").read_text().split("\n")
    for query_id, _, doc_id, rank, score, _ in (line.split() for line in lines if line):
        row = ours[query_id, int(rank)]
        assert row["doc_id"] == doc_id
        assert row["score"] == pytest.approx(float(score), abs=1e-5)


@pytest.mark.data
@pytest.mark.parametrize("expansion", slow_but((None,), (None, "rm3", "rocchio")))
def test_hits_are_those_of_bare_pyserini(expansion, cacm_folder, vectors, cacm_topics, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none: pyserini makes a client when it is imported")
    folder = vectors if expansion else cacm_folder

    def bare():
        from pyserini.search.lucene import LuceneSearcher

        searcher = LuceneSearcher(folder)
        searcher.set_bm25(0.9, 0.4)
        if expansion:
            getattr(searcher, f"set_{expansion}")()
        query_ids, texts = (
            [topic.query_id for topic in cacm_topics],
            [topic.text for topic in cacm_topics],
        )
        hits = searcher.batch_search(texts, query_ids, k=1000, threads=2)
        return {
            query_id: [(hit.docid, hit.score) for hit in found] for query_id, found in hits.items()
        }

    expected = jvm.call(bare)
    with Bm25Searcher(folder, 0.9, 0.4, 2, expansion=expansion) as searcher:
        found = searcher.search(cacm_topics, 1000)
    assert found.schema == CANDIDATES
    assert list(_hits(found)) == [
        topic.query_id for topic in cacm_topics if topic.query_id in expected
    ]
    assert _hits(found) == expected


@pytest.mark.data
def test_k1_and_b_change_the_scores(cacm_folder, cacm, cacm_topics):
    with Bm25Searcher(cacm_folder, 2.0, 0.9, 2) as other:
        assert not other.search(cacm_topics, 10).equals(cacm.search(cacm_topics, 10))


@pytest.mark.data
def test_concurrent_searches_get_their_own_hits(cacm, cacm_topics):
    shares = [cacm_topics[number::8] for number in range(8)] * 3
    alone = [cacm.search(share, 100) for share in shares]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda share: cacm.search(share, 100), shares))
    assert all(one.equals(other) for one, other in zip(alone, together, strict=True))


@pytest.mark.data
def test_query_of_2000_words(cacm, cacm_docs):
    words = sorted(
        {word for text in cacm_docs.values() for word in text.lower().split() if word.isalpha()}
    )
    assert len(_rows(cacm, "long", " ".join(words[:2000]), k=1000)) == 1000


@pytest.mark.slow
@pytest.mark.data
def test_batches_of_topics_do_not_change_the_hits(cacm, cacm_topics):
    many = [
        Topic(f"{topic.query_id}-{copy}", topic.text) for topic in cacm_topics for copy in range(3)
    ]
    found = cacm.search(many, 1000)
    once = cacm.search(cacm_topics, 1000)
    assert found["query_id"].unique().to_pylist() == [topic.query_id for topic in many]
    assert found.num_rows == 3 * once.num_rows
    parts = [
        [row["doc_id"] for row in found.to_pylist() if row["query_id"] == f"64-{copy}"]
        for copy in range(3)
    ]
    assert parts == [[row["doc_id"] for row in once.to_pylist() if row["query_id"] == "64"]] * 3


def test_ties_are_ordered_by_doc_id(animals):
    rows = _rows(animals, "q", "red")
    assert [row["doc_id"] for row in rows] == ["d1", "d4"]
    assert 0 < rows[0]["score"] - rows[1]["score"] < 1e-5


def test_k_limits_the_hits(animals):
    assert [row["rank"] for row in _rows(animals, "q", "fox", k=2)] == [1, 2]


@pytest.mark.parametrize("text", ["", "the and of", "?!", "unicorn"])
def test_topic_that_matches_nothing_has_no_rows(animals, text):
    found = animals.search([Topic("q1", text), Topic("q2", "bear")], 10)
    assert found["query_id"].to_pylist() == ["q2"]
    alone = animals.search([Topic("q1", text)], 10)
    assert (alone.num_rows, alone.schema) == (0, CANDIDATES)


def test_search_without_topics_has_no_rows(animals):
    assert animals.search([], 10).num_rows == 0


def test_search_handles_text_and_ids_beyond_ascii(animals):
    assert [row["doc_id"] for row in _rows(animals, "ä", "übergröße")] == ["d-ü"]
    assert [row["doc_id"] for row in _rows(animals, "問", "日本語")] == ["d-ü"]
    assert _rows(animals, "q-😀", "bear 😀")[0]["doc_id"] == "d-😀"
    assert _rows(animals, "q-😀", "bear 😀")[0]["query_id"] == "q-😀"


def test_query_that_fails_is_named(animals):
    def limit(clauses):
        import jnius

        jnius.autoclass("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(clauses)

    jvm.call(limit, 1)
    try:
        with pytest.raises(BeamrankError, match=r"query_id 'q2' \('red bear'\).*maxClauseCount"):
            animals.search([Topic("q1", "fox"), Topic("q2", "red bear")], 10)
    finally:
        jvm.call(limit, 2**31 - 1)


@pytest.mark.slow
def test_index_that_lucene_cannot_open(tmp_path):
    _index(tmp_path, DOCS)
    segments = tmp_path / "index" / "segments_1"
    content = bytearray(segments.read_bytes())
    content[-1] ^= 1
    segments.write_bytes(content)
    with pytest.raises(PreflightError, match="CorruptIndexException"):
        Bm25Searcher(str(tmp_path / "index"), 0.9, 0.4, 1)


def test_index_without_docs(tmp_path):
    with pytest.raises(PreflightError, match="index"):
        Bm25Searcher(_foreign_index(tmp_path, [("d1", "")]), 0.9, 0.4, 1)


def test_index_with_a_doc_id_twice(tmp_path):
    folder = _foreign_index(tmp_path, [("d1", "a red fox"), ("d1", "a red bear"), ("d2", "a bear")])
    with Bm25Searcher(folder, 0.9, 0.4, 1) as searcher:
        assert [row["doc_id"] for row in _rows(searcher, "q1", "fox")] == ["d1"]
        with pytest.raises(DataError, match="query_id 'q2'"):
            searcher.search([Topic("q1", "fox"), Topic("q2", "red")], 10)


@pytest.mark.data
def test_expansion_of_topics_that_match_nothing(vectors):
    for expansion in ("rm3", "rocchio"):
        with Bm25Searcher(vectors, 0.9, 0.4, 1, expansion=expansion) as searcher:
            found = searcher.search(
                [Topic("q1", ""), Topic("q2", "xyzzyx"), Topic("q3", "sorting")], 5
            )
        assert found["query_id"].unique().to_pylist() == ["q3"]


@pytest.mark.slow
def test_feedback_beyond_ascii(tmp_path):
    """Anserini's filter of terms would leave a query in another language as it is."""
    docs = {
        "d1": "Bär Übergröße",
        "d2": "Übergröße",
        **{f"x{number}": f"Wort{number}" for number in range(30)},
    }
    folder = _index(tmp_path, docs, kind=IndexKind("de", True))
    with Bm25Searcher(folder, 0.9, 0.4, 1, "de", "rm3") as searcher:
        assert [doc_id for doc_id, _ in _hits(searcher.search([Topic("q", "Bären")], 5))["q"]] == [
            "d1",
            "d2",
        ]


@pytest.mark.slow
def test_updated_index_keeps_its_doc_vectors(tmp_path):
    docs = {f"d{number}": f"a fox and word{number}" for number in range(20)}
    folder = _index(tmp_path, docs, kind=_VECTORS)
    # One whose configuration no longer expands queries is not left with doc vectors of some docs.
    _index(tmp_path, docs | {"d3": "a fox and a bear"}, update=True)
    with Bm25Searcher(folder, 0.9, 0.4, 1, expansion="rm3") as searcher:
        assert _hits(searcher.search([Topic("q", "bear")], 5))["q"][0][0] == "d3"


def test_doc_vectors_in_compound_files_are_found(tmp_path):
    (tmp_path / "_0.cfe").write_bytes(b"\x04.tvd")
    assert holds_doc_vectors(str(tmp_path), ["_0.cfe", "_0.cfs"])
    (tmp_path / "_0.cfe").write_bytes(b"\x04.tim")
    assert not holds_doc_vectors(str(tmp_path), ["_0.cfe", "_0.cfs"])


@pytest.mark.slow
def test_run_expands_queries(tmp_path):
    collection = SmallCollection(tmp_path).with_index()
    collection.run(output=tmp_path / "plain")
    # An index without doc vectors, known before anything starts; with them the ranking differs.
    expanded = ["--set", "bm25.expansion=rm3"]
    message = refused("run", collection.path, *expanded, code=3)
    assert re.search("`bm25.expansion` .*`beamrank index CONFIG`", message)
    expanded += ["--set", "index.path=vectors"]
    succeed("run", collection.path, "--only", "0/1", *expanded)
    assert read_index_info(str(tmp_path / "vectors")).docs == len(SMALL_DOCS)
    runs = [(tmp_path / name / "runs" / "bm25.trec").read_text() for name in ("plain", "out")]
    assert runs[0] != runs[1]
    assert "expansion: rm3" in (tmp_path / "out" / "runs" / "bm25.trec.metadata.yaml").read_text()
