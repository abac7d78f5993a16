"""Topics and candidates of MTEB's first re-ranking files; corpora/readers/mteb.py describes them."""

from collections.abc import Iterator

import numpy as np

from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora.readers.mteb import Sample, samples
from beamrank.formats.runs import Run, RunNotes
from beamrank.records import Topic

_REMARK = "unranked; the candidates of a query are in the order of their ids, which are hashes of the texts"


def read_topics(url: str) -> list[Topic]:
    """The queries, in the order of the file; one of several texts is these, joined by spaces.

    Raises:
        PreflightError: the file cannot be read, has no queries, or a query has no text.
    """
    topics = []
    for sample in _samples(url):
        if not sample.query.strip() or "\0" in sample.query:
            raise PreflightError(f"{url}:{sample.line}: the query has no text, or a NUL character in it")
        topics.append(Topic(sample.query_id, sample.query))
    return topics


def read_candidates(url: str) -> Run:
    """The docs of each query, in an order that does not depend on their relevance.

    Raises:
        PreflightError: the file cannot be read, or has no docs.
    """
    order = {sample.query_id: list(sample.docs) for sample in _samples(url) if sample.docs}
    if not order:
        raise PreflightError(f"{url} holds no docs (read as MTEB's re-ranking file): there is nothing to rank")
    scores = {query_id: -np.arange(1, len(docs) + 1, dtype=np.float32) for query_id, docs in order.items()}
    return Run(order, scores, RunNotes("mteb", len(order), sum(map(len, order.values())), remarks=(_REMARK,)))


def _samples(url: str) -> Iterator[Sample]:
    sample = None
    try:
        for sample in samples(url):
            yield sample
    except DataError as error:
        raise PreflightError(str(error)) from error
    if sample is None:
        raise PreflightError(f"{url} holds no queries (read as MTEB's re-ranking file): there is nothing to rank")
