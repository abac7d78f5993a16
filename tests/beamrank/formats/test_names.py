"""The names of columns that collections and tools use, and what each means."""

from typing import NamedTuple

import pytest

from beamrank.errors import BeamrankError
from tests.beamrank.formats.adapters import meanings

MISSING, SEVERAL, TWICE = "column-missing", "column-several", "column-twice"
# Columns that hold no strings.
_NUMBERS = frozenset(
    {
        *("start_char", "end_char", "year", "emb", "embeddings", "rank", "score", "label"),
        *("relevance", "iteration", "features", "positive_passages", "negative_passages"),
        *("Unnamed: 0", "__index_level_0__", "index", "answers", "passages"),
    }
)


class Names(NamedTuple):
    """The columns of a source, between spaces, and the name of each meaning; or why they are
    refused.
    """

    input: str
    source: str
    columns: str
    found: dict[str, str] | str

    @property
    def id(self) -> str:
        return f"{self.input}-{self.source}".replace(" ", "_")


def _docs(source: str, columns: str, doc_id: str, text: str, title: str = "") -> Names:
    found = {"doc_id": doc_id, "text": text, **({"title": title} if title else {})}
    return Names("docs", source, columns, found)


def _topics(source: str, columns: str, query_id: str, text: str) -> Names:
    return Names("topics", source, columns, {"query_id": query_id, "text": text})


def _run(source: str, columns: str, query_id: str, doc_id: str, **numbers: str) -> Names:
    return Names("run", source, columns, {"query_id": query_id, "doc_id": doc_id, **numbers})


def _qrels(source: str, columns: str, query_id: str, doc_id: str, relevance: str) -> Names:
    found = {"query_id": query_id, "doc_id": doc_id, "relevance": relevance}
    return Names("qrels", source, columns, found)


DOCS = (
    _docs("BEIR", "_id title text metadata", "_id", "text", "title"),
    _docs("BEIR without titles", "_id text", "_id", "text"),
    _docs("mteb", "_id text title", "_id", "text", "title"),
    _docs("mteb's reranking", "id text title", "id", "text", "title"),
    _docs("ir_datasets", "doc_id text title", "doc_id", "text", "title"),
    _docs("MS MARCO v1 passage at the hub", "pid passage", "pid", "passage"),
    _docs("MS MARCO of sentence-transformers", "pid text", "pid", "text"),
    _docs("MS MARCO of Tevatron", "docid title text", "docid", "text", "title"),
    _docs("MS MARCO v1 doc", "docid url title body", "docid", "body", "title"),
    # The passage and its document both have an id: `columns` chooses.
    _docs("MS MARCO v2 passage", "pid passage spans docid", "pid", "passage"),
    _docs("MS MARCO v2 doc", "url title headings body docid", "docid", "body", "title"),
    _docs("MS MARCO v2.1 doc", "docid url title headings body", "docid", "body", "title"),
    _docs(
        "MS MARCO v2.1 segments",
        "docid url title headings segment start_char end_char",
        *("docid", "segment", "title"),
    ),
    _docs("pyserini", "id contents", "id", "contents"),
    _docs("pyserini with a title", "id title contents", "id", "contents"),
    _docs("PyTerrier", "docno text", "docno", "text"),
    _docs("PyTerrier with urls", "docno url text", "docno", "text"),
    _docs("MIRACL", "docid title text", "docid", "text", "title"),
    _docs("MIRACL of Cohere", "docid title text emb", "docid", "text", "title"),
    _docs("NeuCLIR", "id cc_file time title text url", "id", "text", "title"),
    _docs("DPR", "id text title", "id", "text", "title"),
    _docs("wiki_dpr", "id text title embeddings", "id", "text", "title"),
    _docs("BRIGHT", "id content", "id", "content"),
    _docs("Spark", "DOCNO TITLE BODY", "DOCNO", "BODY", "TITLE"),
    _docs("pandas with its index", "__index_level_0__ id text", "id", "text"),
    _docs("CSV of pandas", "Unnamed: 0|id|text", "id", "text"),
    _docs("headlines", "doc_id title year", "doc_id", "title"),
    Names("docs", "papers", "doc_id title abstract", MISSING),
    Names("docs", "text and body", "doc_id text body", SEVERAL),
    _docs("two ids of PyTerrier", "docid docno text", "docno", "text"),
    _docs("SQL's key", "id docno text", "docno", "text"),
    Names("docs", "a join", "id text id", TWICE),
    Names("docs", "no id", "title text", MISSING),
)
TOPICS = (
    _topics("BEIR", "_id text metadata", "_id", "text"),
    _topics("mteb", "_id text", "_id", "text"),
    _topics("mteb with instructions", "id text instruction", "id", "text"),
    _topics("ir_datasets", "query_id text", "query_id", "text"),
    _topics("TREC in ir_datasets", "query_id title description narrative", "query_id", "title"),
    _topics("MS MARCO of sentence-transformers", "qid text", "qid", "text"),
    _topics("MS MARCO's QA", "answers passages query query_id query_type", "query_id", "query"),
    _topics("PyTerrier", "qid query", "qid", "query"),
    _topics("PyTerrier after a rewrite", "qid query query_0", "qid", "query"),
    _topics("MIRACL", "query_id query positive_passages negative_passages", "query_id", "query"),
    _topics("TREC as a table", "topic_id title description narrative", "topic_id", "title"),
    _topics("pyserini", "qid title", "qid", "title"),
    _topics("LoTTE", "qid query answer_pids", "qid", "query"),
    _topics("Natural Questions", "id question answer", "id", "question"),
    _topics("BRIGHT", "id query reasoning gold_ids", "id", "query"),
    _topics("Spark", "QUERY_ID QUERY", "QUERY_ID", "QUERY"),
    _topics("with hyphens", "query-id query-text", "query-id", "query-text"),
    Names("topics", "labelled pairs", "query_id query doc_id text label", SEVERAL),
    Names("topics", "PyTerrier's text frames", "qid query docno text", SEVERAL),
    _topics("SQL's key", "id qid text", "qid", "text"),
    Names("topics", "descriptions", "query_id description", MISSING),
)
RUNS = (
    _run("beamrank", "query_id doc_id rank score stage raw_score", "query_id", "doc_id",
         rank="rank", score="score"),
    _run("ir_datasets", "query_id doc_id score", "query_id", "doc_id", score="score"),
    _run("PyTerrier", "qid docno score rank", "qid", "docno", rank="rank", score="score"),
    _run("PyTerrier with queries", "qid query docno score rank", "qid", "docno", rank="rank",
         score="score"),
    _run("TREC's names", "query Q0 doc rank score tag", "query", "doc", rank="rank",
         score="score"),
    _run("topics", "topic docid rank", "topic", "docid", rank="rank"),
    _run("mteb", "query-id corpus-id score", "query-id", "corpus-id", score="score"),
    _run("MS MARCO", "qid pid rank", "qid", "pid", rank="rank"),
    _run("Spark", "QID DOCNO SCORE", "QID", "DOCNO", score="SCORE"),
    _run("with spaces", "Query ID|Doc ID|Rank", "Query ID", "Doc ID", rank="Rank"),
    _run("a CSV of Spark's", "\ufeffquery_id doc_id score", "\ufeffquery_id", "doc_id",
         score="score"),
    # Terrier's number of a doc stands beside its name.
    _run("PyTerrier's retrieval", "qid docid docno rank score query", "qid", "docno",
         rank="rank", score="score"),
    Names("run", "no number", "query_id doc_id", MISSING),
    Names("run", "similarity", "query_id doc_id similarity", MISSING),
)  # fmt: skip
QRELS = (
    _qrels("BEIR", "query-id corpus-id score", "query-id", "corpus-id", "score"),
    _qrels("ir_datasets", "query_id doc_id relevance iteration", "query_id", "doc_id", "relevance"),
    _qrels("ir_datasets of DL", "query_id iteration doc_id relevance", "query_id", "doc_id",
           "relevance"),
    _qrels("PyTerrier", "qid docno label", "qid", "docno", "label"),
    _qrels("PyTerrier with iterations", "qid docno label iteration", "qid", "docno", "label"),
    _qrels("trec_eval's words", "topic iter docno rel", "topic", "docno", "rel"),
    _qrels("MS MARCO", "qid pid rel", "qid", "pid", "rel"),
    _qrels("grades", "query doc grade", "query", "doc", "grade"),
    _qrels("Spark", "QID DOCNO RELEVANCE", "QID", "DOCNO", "RELEVANCE"),
    _qrels("labelled pairs", "query_id query doc_id text label", "query_id", "doc_id", "label"),
    Names("qrels", "two numbers", "query_id doc_id relevance score", SEVERAL),
    Names("qrels", "ratings", "query_id doc_id rating", MISSING),
    Names("qrels", "top_ranked", "query-id corpus-ids", MISSING),
    Names("qrels", "LoTTE", "qid query answer_pids", MISSING),
)  # fmt: skip
PAIRS = (
    Names("pairs", "pairs", "id query doc", {"id": "id", "query": "query", "doc": "doc"}),
    Names(
        "pairs",
        "triples",
        "id query doc_i doc_j lang",
        {"id": "id", "query": "query", "doc_i": "doc_i", "doc_j": "doc_j"},
    ),
    Names("pairs", "Spark", "ID QUERY DOC", MISSING),
    Names("pairs", "training's", "query positive negative", MISSING),
)
ALL = (*DOCS, *TOPICS, *RUNS, *QRELS, *PAIRS)


def _found(names: Names) -> dict[str, str] | str:
    columns = names.columns.split("|" if "|" in names.columns else " ")
    texts = [name for name in columns if name not in _NUMBERS]
    try:
        return meanings(names.input, columns, texts)
    except BeamrankError as error:
        return error.kind


@pytest.mark.parametrize("names", ALL, ids=lambda names: names.id)
def test_usual_names_have_one_meaning(names: Names) -> None:
    assert _found(names) == names.found
