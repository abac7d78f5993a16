"""Questions with answers in passages: nfL6 and WikiPassageQA (https://ciir.cs.umass.edu/downloads).

nfL6.json, Yahoo's non-factoid questions with their best answers, is an array of objects with
`question`, `answer` (the best one), `nbestanswers`, `main_category` and `id`.

WikiPassageQA asks about Wikipedia articles. document_passages.json maps DocumentID and passage
number to a text. train.tsv, dev.tsv and test.tsv have the columns QID, Question, DocumentID,
DocumentName and RelevantPassages, which are numbers with commas.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from beamrank.records import Doc, Topic
from beamrank.storage import files as storage
from contrib.papers.collection import (
    Collection,
    Part,
    Source,
    bm25_configs,
    plain,
    wikipassageqa_configs,
)

_PARTS = ("train", "dev", "test")
_COLUMNS = ("QID", "Question", "DocumentID", "DocumentName", "RelevantPassages")

# The passages of each article: texts by doc_id, which is DocumentID-PASSAGE.
Articles = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class _Answered:
    id: str
    question: str
    answer: str


def read_nfl6(url: str) -> Collection:
    """Every question as a topic, whose only relevant doc is its best answer; the doc has the
    question's id.

    Raises:
        PreflightError: the file is missing, truncated or not of this format, or has an id twice; it
            names the place.
    """
    topics, docs, left_out, source = [], [], Counter[str](), Source(url)
    for number, row in enumerate(source.read(list[_Answered]), 1):
        source.new_query(f"question {number}", row.id)
        question = plain(row.question)
        if not question or not row.answer.split():
            left_out["questions without a text or an answer"] += 1
            continue
        topics.append(Topic(row.id, question))
        docs.append(Doc(row.id, row.answer))
    relevance = {topic.query_id: {topic.query_id: 1} for topic in topics}
    return Collection(
        docs, [Part(topics, relevance)], bm25_configs("nfl6", 10, "negatives: 2"), left_out
    )


def read_wikipassageqa(folder: str) -> Collection:
    """Every question as a topic of its part; its candidates are all passages of its article, in
    their order.

    Raises:
        PreflightError: a file is missing, truncated or not of this format, or an id appears twice;
            it names the place.
    """
    articles = _read_articles(Source(storage.join(folder, "document_passages.json")))
    places: dict[str, str] = {}
    parts = [
        _read_part(Source(storage.join(folder, f"{name}.tsv"), places), name, articles)
        for name in _PARTS
    ]
    docs = [
        Doc(doc_id, text) for passages in articles.values() for doc_id, text in passages.items()
    ]
    return Collection(
        docs, parts, wikipassageqa_configs(max(map(len, articles.values()), default=0))
    )


def _read_articles(source: Source) -> Articles:
    articles = {}
    for article, passages in source.read(dict[str, dict[str, str]]).items():
        place = f"article {article!r}"
        if not passages or not all(number.isdecimal() for number in passages):
            source.refuse(place, "its passages are not numbered")
        source.check_id(place, article)
        articles[article] = {
            f"{article}-{number}": passages[number] for number in sorted(passages, key=int)
        }
    return articles


def _read_part(source: Source, name: str, articles: Articles) -> Part:
    topics, relevance, candidates = [], {}, {}
    header, *rows = source.text.splitlines() or [""]
    if tuple(header.split("\t")) != _COLUMNS:
        source.refuse(
            "line 1",
            f"the columns {' '.join(_COLUMNS)} are expected, separated by tabs, not "
            f"{header[:100]!r}",
        )
    for line, row in enumerate(rows, 2):
        place = f"line {line}"
        columns = row.split("\t")
        if len(columns) != len(_COLUMNS):
            source.refuse(
                place,
                f"{len(columns)} columns, and there are {len(_COLUMNS)}: the file may be truncated",
            )
        query_id, question, article, _, numbers = columns
        source.new_query(place, query_id)
        if article not in articles:
            source.refuse(place, f"the article {article!r} is not in document_passages.json")
        relevant = [f"{article}-{number.strip()}" for number in numbers.split(",")]
        missing = [doc_id for doc_id in relevant if doc_id not in articles[article]]
        if missing:
            source.refuse(
                place, f"the relevant passage {missing[0]!r} is not in document_passages.json"
            )
        topics.append(Topic(query_id, plain(question)))
        relevance[query_id] = dict.fromkeys(relevant, 1)
        candidates[query_id] = list(articles[article])
    return Part(topics, relevance, name, candidates)
