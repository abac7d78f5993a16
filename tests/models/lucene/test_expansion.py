"""`bm25.expansion`: RM3 and Rocchio equal pyserini's on CACM, and an index without doc vectors is refused."""

import json

import ir_measures
import pytest
from ir_measures import AP, P

from beamrank.formats.corpora import CorpusConfig
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.records import Topic
from models.lucene import jvm
from models.lucene.bm25 import Bm25Searcher
from models.lucene.build import build_index
from models.lucene.index import IndexKind, check_index, holds_doc_vectors
from tests.support.corpora import read_cacm
from tests.support.processes import refused, succeed
from tests.support.small_collection import DOCS, SmallCollection

pytestmark = pytest.mark.jvm

_VECTORS = IndexKind(doc_vectors=True)


def _corpus(folder, docs):
    path = folder / "corpus.jsonl"
    path.write_text("".join(json.dumps({"id": key, "contents": text}) + "\n" for key, text in docs.items()))
    return CorpusConfig(path=str(path), format="jsonl")


def _hits(table):
    found: dict[str, list[tuple[str, float]]] = {}
    for row in table.to_pylist():
        found.setdefault(row["query_id"], []).append((row["doc_id"], row["score"]))
    return found


@pytest.fixture(scope="module")
def cacm(shared_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cacm")
    build_index(_corpus(folder, read_cacm(shared_data)), str(folder / "index"), 2, kind=_VECTORS)
    return str(folder / "index")


@pytest.fixture(scope="module")
def topics(shared_data):
    return read_topics(TopicsConfig(path=str(shared_data / "cacm" / "topics.cacm.txt"), format="trec"))


@pytest.mark.data
@pytest.mark.parametrize(("expansion", "figures"), [("rm3", (0.3648, 0.2224)), ("rocchio", (0.36, 0.216))])
def test_expansion_on_cacm_has_pyserinis_figures(expansion, figures, cacm, topics, shared_data):
    """RM3's are also those that Anserini publishes."""
    with Bm25Searcher(cacm, 0.9, 0.4, 2, expansion=expansion) as searcher:
        hits = _hits(searcher.search(topics, 1000))
        # Neither a smaller depth nor other topics change what is found.
        for topic in topics[:3]:
            assert _hits(searcher.search([topic], 4)) == {topic.query_id: hits[topic.query_id][:4]}
    run = [ir_measures.ScoredDoc(query_id, *hit) for query_id, found in hits.items() for hit in found]
    qrels = list(ir_measures.read_trec_qrels(str(shared_data / "cacm" / "qrels.cacm.txt")))
    measures = ir_measures.calc_aggregate([AP, P @ 30], qrels, run)
    assert (round(measures[AP], 4), round(measures[P @ 30], 4)) == figures


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("expansion", ["rm3", "rocchio"])
def test_expanded_hits_are_those_of_bare_pyserini(expansion, cacm, topics, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none: pyserini makes a client when it is imported")

    def bare():
        from pyserini.search.lucene import LuceneSearcher

        searcher = LuceneSearcher(cacm)
        searcher.set_bm25(0.9, 0.4)
        getattr(searcher, f"set_{expansion}")()
        query_ids, texts = [topic.query_id for topic in topics], [topic.text for topic in topics]
        hits = searcher.batch_search(texts, query_ids, k=1000, threads=2)
        return {query_id: [(hit.docid, hit.score) for hit in found] for query_id, found in hits.items()}

    with Bm25Searcher(cacm, 0.9, 0.4, 2, expansion=expansion) as searcher:
        assert _hits(searcher.search(topics, 1000)) == jvm.call(bare)


@pytest.mark.data
def test_expansion_of_topics_that_match_nothing(cacm):
    for expansion in ("rm3", "rocchio"):
        with Bm25Searcher(cacm, 0.9, 0.4, 1, expansion=expansion) as searcher:
            found = searcher.search([Topic("q1", ""), Topic("q2", "xyzzyx"), Topic("q3", "sorting")], 5)
        assert found["query_id"].unique().to_pylist() == ["q3"]


def test_feedback_beyond_ascii(tmp_path):
    """Anserini's filter of terms would leave a query in another language as it is."""
    docs = {"d1": "Bär Übergröße", "d2": "Übergröße", **{f"x{number}": f"Wort{number}" for number in range(30)}}
    build_index(_corpus(tmp_path, docs), str(tmp_path / "index"), 1, kind=IndexKind("de", True))
    with Bm25Searcher(str(tmp_path / "index"), 0.9, 0.4, 1, "de", "rm3") as searcher:
        assert [doc_id for doc_id, _ in _hits(searcher.search([Topic("q", "Bären")], 5))["q"]] == ["d1", "d2"]


def test_updated_index_keeps_its_doc_vectors(tmp_path):
    docs = {f"d{number}": f"a fox and word{number}" for number in range(20)}
    folder = str(tmp_path / "index")
    build_index(_corpus(tmp_path, docs), folder, 1, kind=_VECTORS)
    # One whose configuration no longer expands queries is not left with doc vectors of some docs.
    build_index(_corpus(tmp_path, docs | {"d3": "a fox and a bear"}), folder, 1, update=True)
    with Bm25Searcher(folder, 0.9, 0.4, 1, expansion="rm3") as searcher:
        assert _hits(searcher.search([Topic("q", "bear")], 5))["q"][0][0] == "d3"


def test_doc_vectors_in_compound_files_are_found(tmp_path):
    (tmp_path / "_0.cfe").write_bytes(b"\x04.tvd")
    assert holds_doc_vectors(str(tmp_path), ["_0.cfe", "_0.cfs"])
    (tmp_path / "_0.cfe").write_bytes(b"\x04.tim")
    assert not holds_doc_vectors(str(tmp_path), ["_0.cfe", "_0.cfs"])


def test_run_expands_queries(tmp_path):
    collection = SmallCollection(tmp_path).with_index()
    succeed("run", collection.path, "--output", tmp_path / "plain")
    # An index without doc vectors, known before anything starts; with them the ranking differs.
    expanded = ["--set", "bm25.expansion=rm3"]
    message = refused("run", collection.path, *expanded, code=3)
    assert "no doc vectors, which `bm25.expansion` reads" in message
    assert "`beamrank index CONFIG`" in message
    expanded += ["--set", "index.path=vectors"]
    succeed("run", collection.path, *expanded)
    assert check_index(str(tmp_path / "vectors"), None, _VECTORS).docs == len(DOCS)
    runs = [(tmp_path / name / "runs" / "bm25.trec").read_text() for name in ("plain", "out")]
    assert runs[0] != runs[1]
    assert "expansion: rm3" in (tmp_path / "out" / "runs" / "bm25.trec.metadata.yaml").read_text()
