"""SQuAD's JSON, of versions 1.1 and 2.0 and of sets in other languages with its layout.

`data` holds articles with `paragraphs`; each has a `context` and `qas`: questions with an `id`, a
`question` and `answers`, spans of the context. Version 2.0 also has questions without an answer
(`is_impossible`).
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import ConfigDict

from beamrank.records import Doc, Topic
from contrib.papers.collection import Collection, Part, Source, bm25_configs, plain


@dataclass(frozen=True)
class _Question:
    # The ids of some sets are numbers.
    __pydantic_config__: ClassVar = ConfigDict(coerce_numbers_to_str=True)

    id: str
    question: str
    answers: tuple[Any, ...] = ()
    is_impossible: bool = False


@dataclass(frozen=True)
class _Paragraph:
    context: str
    qas: tuple[_Question, ...]


@dataclass(frozen=True)
class _Article:
    paragraphs: tuple[_Paragraph, ...]


@dataclass(frozen=True)
class _Squad:
    data: tuple[_Article, ...]


def read_squad(url: str) -> Collection:
    """Every paragraph as a doc, ARTICLE-PARAGRAPH by their numbers from 1, and every question with
    an answer as a topic, whose relevant doc is its paragraph.

    Paragraphs with one text are one doc: the first. Questions without an answer are left out and
    counted.

    Raises:
        PreflightError: the file is missing, truncated or not of this format, or has an id twice; it
            names the place.
    """
    source = Source(url)
    squad = source.read(_Squad)
    doc_ids: dict[str, str] = {}
    topics, relevance, left_out = [], {}, Counter[str]()
    for article_number, article in enumerate(squad.data, 1):
        for number, paragraph in enumerate(article.paragraphs, 1):
            own_id = f"{article_number}-{number}"
            if not paragraph.context.split():
                left_out["paragraphs without a text"] += 1
                continue
            doc_id = doc_ids.setdefault(paragraph.context, own_id)
            left_out["paragraphs with the text of another"] += doc_id != own_id
            for question in paragraph.qas:
                source.new_query(f"paragraph {own_id}", question.id)
                if question.is_impossible or not question.answers or not question.question.split():
                    left_out["questions without an answer or a text"] += 1
                    continue
                topics.append(Topic(question.id, plain(question.question)))
                relevance[question.id] = {doc_id: 1}
    docs = [Doc(doc_id, text) for text, doc_id in doc_ids.items()]
    return Collection(
        docs, [Part(topics, relevance)], bm25_configs("squad", 100, "negatives: 2"), left_out
    )
