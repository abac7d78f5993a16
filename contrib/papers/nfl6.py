"""nfL6: Yahoo's non-factoid questions with their best answers (https://ciir.cs.umass.edu/downloads/nfL6).

nfL6.json is an array of objects with `question`, `answer` (the best one), `nbestanswers`, `main_category` and `id`.
"""

from collections import Counter
from collections.abc import Iterator

from beamrank.records import Doc, Topic
from contrib.papers.collection import Collection, Part
from contrib.papers.configs import bm25_configs
from contrib.papers.source import Source, plain

_KEYS = ("id", "question", "answer")


def read_nfl6(url: str) -> Collection:
    """Every question as a topic, whose only relevant doc is its best answer; the doc has the question's id.

    Raises:
        PreflightError: the file is missing, truncated or not of this format, or an id appears twice; it names the line.
    """
    topics, docs, left_out = [], [], Counter[str]()
    for query_id, question, answer in _rows(Source(url)):
        if not question or not answer.split():
            left_out["questions without a text or an answer"] += 1
            continue
        topics.append(Topic(query_id, question))
        docs.append(Doc(query_id, answer))
    relevance = {topic.query_id: {topic.query_id: 1} for topic in topics}
    return Collection(docs, [Part(topics, relevance)], bm25_configs("nfl6", 10, "negatives: 2"), left_out)


def _rows(source: Source) -> Iterator[tuple[str, str, str]]:
    lines: dict[str, int] = {}
    position, line = 0, 1
    for start, row in source.elements():
        line += source.text.count("\n", position, start)
        position = start
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in _KEYS):
            source.refuse(line, f"a question of nfL6 is an object with {', '.join(_KEYS)}, which are texts")
        query_id, question, answer = (row[key] for key in _KEYS)
        source.check_id(line, query_id, query=True)
        if query_id in lines:
            source.refuse(line, f"the id {query_id!r} appears twice, first on line {lines[query_id]}")
        lines[query_id] = line
        yield query_id, plain(question), answer
