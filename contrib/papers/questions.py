"""Questions with answers in passages: nfL6 and WikiPassageQA (https://ciir.cs.umass.edu/downloads).

nfL6.json, Yahoo's non-factoid questions with their best answers, is an array of objects with
`question`, `answer` (the best one), `nbestanswers`, `main_category` and `id`.

WikiPassageQA asks about Wikipedia articles. document_passages.json maps DocumentID and passage
number to a text. train.tsv, dev.tsv and test.tsv have the columns QID, Question, DocumentID,
DocumentName and RelevantPassages, which are numbers with commas.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

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

_KEYS = ("id", "question", "answer")
_PARTS = ("train", "dev", "test")
_COLUMNS = ("QID", "Question", "DocumentID", "DocumentName", "RelevantPassages")

# The passages of each article: texts by doc_id, which is DocumentID-PASSAGE.
Articles = Mapping[str, Mapping[str, str]]


def read_nfl6(url: str) -> Collection:
    """Every question as a topic, whose only relevant doc is its best answer; the doc has the
    question's id.

    Raises:
        PreflightError: the file is missing, truncated or not of this format, or has an id twice; it
            names the place.
    """
    topics, docs, left_out = [], [], Counter[str]()
    for query_id, question, answer in _questions(Source(url)):
        if not question or not answer.split():
            left_out["questions without a text or an answer"] += 1
            continue
        topics.append(Topic(query_id, question))
        docs.append(Doc(query_id, answer))
    relevance = {topic.query_id: {topic.query_id: 1} for topic in topics}
    return Collection(
        docs, [Part(topics, relevance)], bm25_configs("nfl6", 10, "negatives: 2"), left_out
    )


def _questions(source: Source) -> Iterator[tuple[str, str, str]]:
    rows = source.json()
    if not isinstance(rows, list):
        source.refuse("line 1", "a JSON array is expected")
    numbers: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        place = f"question {number}"
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in _KEYS):
            source.refuse(
                place, f"a question of nfL6 is an object with {', '.join(_KEYS)}, which are texts"
            )
        query_id, question, answer = (row[key] for key in _KEYS)
        source.check_id(place, query_id, query=True)
        if query_id in numbers:
            source.refuse(
                place, f"the id {query_id!r} appears twice, first in question {numbers[query_id]}"
            )
        numbers[query_id] = number
        yield query_id, plain(question), answer


def read_wikipassageqa(folder: str) -> Collection:
    """Every question as a topic of its part; its candidates are all passages of its article, in
    their order.

    Raises:
        PreflightError: a file is missing, truncated or not of this format, or an id appears twice;
            it names the place.
    """
    articles = _read_articles(Source(storage.join(folder, "document_passages.json")))
    lines: dict[str, str] = {}
    parts = [
        _read_part(Source(storage.join(folder, f"{name}.tsv")), name, articles, lines)
        for name in _PARTS
    ]
    docs = [
        Doc(doc_id, text) for passages in articles.values() for doc_id, text in passages.items()
    ]
    return Collection(docs, parts, wikipassageqa_configs(max(map(len, articles.values()))))


def _read_articles(source: Source) -> Articles:
    stored = source.json()
    if not isinstance(stored, dict) or not stored:
        source.refuse("line 1", "a JSON object of articles is expected")
    articles = {}
    for article, passages in stored.items():
        place = f"article {article!r}"
        texts = passages.values() if isinstance(passages, dict) else ()
        if not texts or not all(isinstance(text, str) for text in texts):
            source.refuse(place, "it is not an object of texts by passage number")
        if not all(number.isdecimal() for number in passages):
            source.refuse(place, "its passages are not numbered")
        source.check_id(place, article)
        articles[article] = {
            f"{article}-{number}": passages[number] for number in sorted(passages, key=int)
        }
    return articles


def _read_part(source: Source, name: str, articles: Articles, places: dict[str, str]) -> Part:
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
        source.check_id(place, query_id, query=True)
        if query_id in places:
            source.refuse(place, f"the QID {query_id!r} appears twice, first in {places[query_id]}")
        if article not in articles:
            source.refuse(place, f"the article {article!r} is not in document_passages.json")
        relevant = [f"{article}-{number.strip()}" for number in numbers.split(",")]
        missing = [doc_id for doc_id in relevant if doc_id not in articles[article]]
        if missing:
            source.refuse(
                place, f"the relevant passage {missing[0]!r} is not in document_passages.json"
            )
        places[query_id] = f"{source.url}, {place}"
        topics.append(Topic(query_id, plain(question)))
        relevance[query_id] = dict.fromkeys(relevant, 1)
        candidates[query_id] = list(articles[article])
    return Part(topics, relevance, name, candidates)
