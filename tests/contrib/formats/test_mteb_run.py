"""A run of one of MTEB's first re-ranking files, which is its topics, its corpus, its candidates and its qrels."""

import json

from contrib.formats.mteb import samples
from tests.support.processes import beamrank_here
from tests.support.runs import read_trec
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, small_cascade


def test_run_of_an_mteb_file_ranks_as_separate_files_do(tmp_path):
    collection = small_cascade(tmp_path).with_models(mono_k=9)
    collection.run(output=tmp_path / "separate")
    rows = []
    for query_id, text in TOPICS.items():
        texts = [DOCS[doc_id] for doc_id in CANDIDATES[query_id]]
        rows.append({"query": text, "positive": [texts.pop(4)], "negative": texts})
    collection.write("test.jsonl", map(json.dumps, rows))
    collection.keys |= {"corpus": {"path": "test.jsonl"}, "topics": {"path": "test.jsonl"}, "qrels": "test.jsonl"}
    collection.keys["candidates"] = {"run": "test.jsonl", "k": 9}
    done = beamrank_here("run", collection.path)
    assert done.returncode == 0, done.stderr
    assert "is read as `corpus.format: mteb`" in done.stderr
    assert "unranked; the candidates of a query are in the order of their ids" in done.stderr
    texts_of = {sample.query_id: sample.docs for sample in samples(str(tmp_path / "test.jsonl"))}
    for name in ("mono.trec", "duo-sum.trec"):
        found, separate = (read_trec(folder / "runs" / name) for folder in (collection.output, tmp_path / "separate"))
        assert [[texts_of[query_id][doc_id][0] for doc_id in found[query_id]] for query_id in texts_of] == [
            [DOCS[doc_id] for doc_id in separate[query_id]] for query_id in TOPICS
        ]
    measures = [json.loads((tmp_path / each / "runs/measures.json").read_text()) for each in ("out", "separate")]
    assert measures[0]["mono"] == measures[1]["mono"]
