"""Questions with answers in passages: nfL6 and WikiPassageQA (https://ciir.cs.umass.edu/downloads).

nfL6.json, Yahoo's non-factoid questions with their best answers, is an array of objects with `question`, `answer` (the
best one), `nbestanswers`, `main_category` and `id`.

WikiPassageQA asks about Wikipedia articles. document_passages.json maps DocumentID and passage number to a text.
train.tsv, dev.tsv and test.tsv have the columns QID, Question, DocumentID, DocumentName and RelevantPassages, which are
numbers with commas.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from beamrank.records import Doc, Topic
from beamrank.storage import files as storage
from contrib.papers.collection import Collection, Part
from contrib.papers.configs import bm25_configs, wikipassageqa_configs
from contrib.papers.source import Source, plain

_KEYS = ("id", "question", "answer")
_PARTS = ("train", "dev", "test")
_COLUMNS = ("QID", "Question", "DocumentID", "DocumentName", "RelevantPassages")

# The passages of each article: texts by doc_id, which is DocumentID-PASSAGE.
Articles = Mapping[str, Mapping[str, str]]


def read_nfl6(url: str) -> Collection:
    """Every question as a topic, whose only relevant doc is its best answer; the doc has the question's id.

    Raises:
        PreflightError: the file is missing, truncated or not of this format, or an id appears twice; it names the line.
    """
    topics, docs, left_out = [], [], Counter[str]()
    for query_id, question, answer in _questions(Source(url)):
        if not question or not answer.split():
            left_out["questions without a text or an answer"] += 1
            continue
        topics.append(Topic(query_id, question))
        docs.append(Doc(query_id, answer))
    relevance = {topic.query_id: {topic.query_id: 1} for topic in topics}
    return Collection(docs, [Part(topics, relevance)], bm25_configs("nfl6", 10, "negatives: 2"), left_out)


def _questions(source: Source) -> Iterator[tuple[str, str, str]]:
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


def read_wikipassageqa(folder: str) -> Collection:
    """Every question as a topic of its part; its candidates are all passages of its article, in their order.

    Raises:
        PreflightError: a file is missing, truncated or not of this format, or an id appears twice; it names the line.
    """
    articles = _read_articles(Source(storage.join(folder, "document_passages.json")))
    lines: dict[str, str] = {}
    parts = [_read_part(Source(storage.join(folder, f"{name}.tsv")), name, articles, lines) for name in _PARTS]
    docs = [Doc(doc_id, text) for passages in articles.values() for doc_id, text in passages.items()]
    return Collection(docs, parts, wikipassageqa_configs(max(map(len, articles.values()))))


def _read_articles(source: Source) -> Articles:
    found = source.json()
    if not isinstance(found, dict) or not found:
        source.refuse(1, "a JSON object of articles is expected")
    articles = {}
    for article, passages in found.items():
        line = source.line(max(0, source.text.find(f'"{article}"')))
        if (
            not isinstance(passages, dict)
            or not passages
            or not all(isinstance(each, str) for each in passages.values())
        ):
            source.refuse(line, f"the article {article!r} is not an object of texts by passage number")
        if not all(number.isdecimal() for number in passages):
            source.refuse(line, f"the passages of article {article!r} are not numbered")
        source.check_id(line, article)
        articles[article] = {f"{article}-{number}": passages[number] for number in sorted(passages, key=int)}
    return articles


def _read_part(source: Source, name: str, articles: Articles, places: dict[str, str]) -> Part:
    topics, relevance, candidates = [], {}, {}
    header, *rows = source.text.splitlines() or [""]
    if tuple(header.split("\t")) != _COLUMNS:
        source.refuse(1, f"the columns {' '.join(_COLUMNS)} are expected, separated by tabs, not {header[:100]!r}")
    for line, row in enumerate(rows, 2):
        columns = row.split("\t")
        if len(columns) != len(_COLUMNS):
            source.refuse(line, f"{len(columns)} columns, and there are {len(_COLUMNS)}: the file may be truncated")
        query_id, question, article, _, numbers = columns
        source.check_id(line, query_id, query=True)
        if query_id in places:
            source.refuse(line, f"the QID {query_id!r} appears twice, first in {places[query_id]}")
        if article not in articles:
            source.refuse(line, f"the article {article!r} is not in document_passages.json")
        relevant = [f"{article}-{number.strip()}" for number in numbers.split(",")]
        missing = [doc_id for doc_id in relevant if doc_id not in articles[article]]
        if missing:
            source.refuse(line, f"the relevant passage {missing[0]!r} is not in document_passages.json")
        places[query_id] = f"{source.url}, line {line}"
        topics.append(Topic(query_id, plain(question)))
        relevance[query_id] = dict.fromkeys(relevant, 1)
        candidates[query_id] = list(articles[article])
    return Part(topics, relevance, name, candidates)
