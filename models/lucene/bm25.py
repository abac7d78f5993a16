"""BM25 by Lucene: Anserini's searcher, without pyserini's layer in Python.

pyserini makes a Python object of every hit and reads it field by field through JNI, which costs
more than the search itself, and importing it imports torch. Here Java writes all the hits of a
batch as one JSON document instead.
"""

import itertools
import json
from collections.abc import Sequence
from functools import cache
from typing import Any, Self

import numpy as np
import pyarrow as pa

from beamrank.commit.schemas import candidates_table
from beamrank.errors import BeamrankError, DataError, PreflightError
from beamrank.formats.topic_table import TopicTable
from beamrank.machine import usable_threads
from beamrank.records import Topic
from models.lucene import jvm
from models.lucene.index import require_index

_BATCH_HITS = 1 << 15
_NO_CLAUSE_LIMIT = 2**31 - 1
# Anserini's parameters of feedback, which pyserini repeats.
_FEEDBACK_TERMS, _FEEDBACK_DOCS, _QUERY_WEIGHT = 10, 10, 0.5


class Bm25Searcher:
    """Searches a Lucene index with BM25. Any thread may use it."""

    def __init__(
        self,
        folder: str,
        k1: float,
        b: float,
        threads: int,
        language: str = "en",
        expansion: str | None = None,
    ) -> None:
        """Opens an index.

        Args:
            folder: a local Lucene index folder.
            k1: how slowly a term's weight saturates.
            b: how much a doc's length counts.
            threads: how many threads Java searches with; the first searcher of a process decides
                (`jvm.start`).
            language: of the texts (`index.language`).
            expansion: `rm3` or `rocchio`, which need doc vectors. RM3 takes every term for
                feedback, and for `en`, as Anserini does, only terms of a to z and digits.
        """
        self._folder = folder
        threads = usable_threads(threads)
        self._batch_topics = threads * 4
        # Anserini's Rocchio learns from the docs that it is asked for: a depth must not change the
        # ranking above it.
        self._least_k = _FEEDBACK_DOCS if expansion == "rocchio" else 1
        require_index(folder)
        jvm.check_language(language)
        jvm.start(threads)
        try:
            self._key = jvm.call(_open, folder, (k1, b), language, expansion)
        except jvm.JavaError as error:
            raise PreflightError(
                f"Lucene cannot open the index {folder}: {error}. Build it again"
            ) from error

    def search(self, topics: Sequence[Topic], k: int) -> pa.Table:
        """The `k` best docs of each topic, whose ids are unique: `schemas.CANDIDATES`, topics in
        order, by rank.
        """
        queries = list(TopicTable.of(topics).for_bm25)
        depth = max(k, self._least_k)
        hits = jvm.call(
            _search, self._key, queries, depth, max(self._batch_topics, _BATCH_HITS // depth)
        )
        return self._tabulate(
            [query.query_id for query in queries], [hits_of_query[:k] for hits_of_query in hits]
        )

    def close(self) -> None:
        """Closes the index."""
        jvm.call(_close, self._key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tabulate(
        self, query_ids: Sequence[str], hits: Sequence[Sequence[Sequence[Any]]]
    ) -> pa.Table:
        doc_ids = [[doc_id for doc_id, _ in hits_of_query] for hits_of_query in hits]
        for query_id, ids in zip(query_ids, doc_ids, strict=True):
            if len(set(ids)) != len(ids):
                raise DataError(
                    f"the index {self._folder} holds a doc_id twice: query_id {query_id!r} finds "
                    "it twice. A run names docs by id, so each must be unique: build the index "
                    "again"
                )
        table = candidates_table(
            query_ids, doc_ids, [[score for _, score in hits_of_query] for hits_of_query in hits]
        )
        if not np.isfinite(table["score"].to_numpy()).all():
            raise DataError(
                f"the index {self._folder} gives a score that is not finite: build it again"
            )
        return table


# The functions below run on the thread that owns Java. Searchers stay there; other threads refer to
# them by number.
_searchers: dict[int, Any] = {}
_keys = itertools.count()


def _open(folder: str, k1_b: tuple[float, float], language: str, expansion: str | None) -> int:
    searcher = _java()["searcher"](folder)
    if searcher.get_total_num_docs() == 0:
        raise PreflightError(
            f"the index {folder} holds no docs: build it from a corpus that has some"
        )
    searcher.set_bm25(*k1_b)
    if language != "en":
        searcher.set_analyzer(_analyzer(language))
    if expansion == "rm3":
        searcher.set_rm3(
            None, _FEEDBACK_TERMS, _FEEDBACK_DOCS, _QUERY_WEIGHT, False, language == "en"
        )
    elif expansion == "rocchio":
        searcher.set_rocchio()
    key = next(_keys)
    _searchers[key] = searcher
    return key


def _analyzer(language: str) -> Any:
    """The one with which Anserini indexes."""
    import jnius

    analyzers = jnius.autoclass("io.anserini.analysis.AnalyzerMap")
    if analyzers.analyzerMap.containsKey(language):
        return analyzers.getLanguageSpecificAnalyzer(language)
    return jnius.autoclass("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()


@cache
def _java() -> dict[str, Any]:
    """Classes, a JSON writer that gives a hit as [doc_id, score], and Lucene's global settings,
    made once.
    """
    import jnius

    # Java forgets a logger's level when nothing refers to the logger.
    logger = jnius.autoclass("java.util.logging.Logger").getLogger("org.apache.lucene")
    logger.setLevel(jnius.autoclass("java.util.logging.Level").WARNING)
    jnius.autoclass("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(_NO_CLAUSE_LIMIT)
    ignored = jnius.autoclass("com.fasterxml.jackson.annotation.JsonIgnoreProperties$Value")
    layout = jnius.autoclass("com.fasterxml.jackson.annotation.JsonFormat$Value")
    shape = jnius.autoclass("com.fasterxml.jackson.annotation.JsonFormat$Shape")
    writer = jnius.autoclass("com.fasterxml.jackson.databind.ObjectMapper")()
    hit = writer.configOverride(jnius.find_javaclass("io.anserini.search.ScoredDoc"))
    hit.setIgnorals(ignored.forIgnoredProperties("lucene_docid", "lucene_document"))
    hit.setFormat(layout.forShape(shape.ARRAY))
    classes = {"array_list": "java.util.ArrayList", "searcher": "io.anserini.search.SimpleSearcher"}
    return {
        "logger": logger,
        "writer": writer,
        **{key: jnius.autoclass(name) for key, name in classes.items()},
    }


def _search(key: int, topics: list[Topic], k: int, batch_topics: int) -> list[list[list[Any]]]:
    """The hits of each topic, best first: [doc_id, score]."""
    hits: list[list[list[Any]]] = []
    for start in range(0, len(topics), batch_topics):
        batch = topics[start : start + batch_topics]
        hits_of = _search_batch(_searchers[key], batch, k)
        hits += [hits_of[topic.query_id] for topic in batch]
    return hits


def _search_batch(searcher: Any, topics: list[Topic], k: int) -> dict[str, list[list[Any]]]:
    import jnius

    query_ids, texts = _java()["array_list"](), _java()["array_list"]()
    for topic in topics:
        query_ids.add(topic.query_id)
        texts.add(topic.text)
    # The last argument is the number of threads, which Anserini ignores: it takes as many as Java
    # has processors.
    try:
        results = searcher.batch_search(texts, query_ids, k, 1)
    except jnius.JavaException:
        _explain(searcher, topics, k)
        raise
    parsed: dict[str, list[list[Any]]] = json.loads(
        _java()["writer"].writeValueAsBytes(results).tostring()
    )
    return parsed


def _explain(searcher: Any, topics: list[Topic], k: int) -> None:
    """Raises an error that names the query that fails; for a batch, Anserini only reports how many
    failed.
    """
    import jnius

    for topic in topics:
        try:
            searcher.search(topic.text, k)
        except jnius.JavaException as error:
            cause = jvm.JavaError(error.classname or "a Java exception", error.innermessage)
            raise BeamrankError(
                f"Lucene cannot answer query_id {topic.query_id!r} ({topic.text[:200]!r}): {cause}"
            ) from None


def _close(key: int) -> None:
    searcher = _searchers.pop(key, None)
    if searcher is not None:
        searcher.close()
