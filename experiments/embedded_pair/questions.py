"""Questions with passages to fit on: the training halves of SQuAD, MedQuAD and NFCorpus, TREC CAR,
and Python's docstrings.

Everything that answers a question of the demo is left out
(`beamrank.demo.collection.held_out_objects`).
"""

import random
import re
from dataclasses import dataclass, field
from typing import TypeVar

from beamrank.demo.collection import held_out_objects, object_name, stdlib_docs
from benchmarks.datasets.archives import reading, tar_texts
from benchmarks.datasets.car import read_car
from benchmarks.datasets.medquad import is_measured, read_pairs
from benchmarks.datasets.nfcorpus import read_abstracts, read_nfcorpus
from benchmarks.datasets.squad import read_paragraphs, split_pages

# Passages of several lengths, many of them short, because cost grows with length. The last is whole
# paragraphs.
_WINDOW_WORDS = (30, 50, 80, 400)
_MEDQUAD_WINDOWS = 3
_KEPT_SHARE = 0.7

_T = TypeVar("_T")


@dataclass(frozen=True)
class Question:
    """A query with the passage that answers it or that it was made from.

    Attributes:
        text: the query.
        passage: the index of the passage in its collection.
        others: the indexes of other relevant passages, which are not negatives.
    """

    text: str
    passage: int
    others: frozenset[int] = frozenset()


@dataclass
class Questions:
    """Passages and the questions about them; negatives come from the same passages."""

    name: str
    passages: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)


def squad_questions(archive: str, articles: int, count: int, seed: int) -> Questions:
    """Questions of a sample of SQuAD's training articles; the passages are windows of their
    paragraphs.

    Args:
        archive: see `benchmarks.datasets.squad`; dev/ is not read.
        articles: the size of the sample of articles.
        count: the size of the sample of their questions.
        seed: decides the samples.

    Raises:
        PreflightError: the archive has no such pages.
    """
    rng, found = random.Random(seed), Questions("squad")
    with reading(archive, "SQuAD 1.1"):
        pages = {
            name: page for name, page in tar_texts(archive, ".html").items() if "/index" not in name
        }
        for page in _sample(rng, sorted(split_pages(pages, "train")), articles):
            for text, pairs in read_paragraphs(page):
                first = len(found.passages)
                found.passages.extend(cut_windows(" ".join(text.split()), rng))
                for question, answer in pairs:
                    places = [
                        n for n in range(first, len(found.passages)) if answer in found.passages[n]
                    ]
                    if places:
                        found.questions.append(Question(question, places[0], frozenset(places)))
        return _sampled(found, rng, count)


def medquad_questions(archive: str, files: int, count: int, seed: int) -> Questions:
    """Questions of a sample of MedQuAD's files (`is_measured` leaves out a fifth); the passages are
    windows of the answers, the first one relevant.

    Raises:
        PreflightError: the archive has no questions with answers.
    """
    rng, found = random.Random(seed), Questions("medquad")
    seen: set[str] = set()
    with reading(archive, "MedQuAD"):
        texts = tar_texts(archive, ".xml").items()
        kept = sorted(text for name, text in texts if not is_measured(name))
        for text in _sample(rng, kept, files):
            for question, answer in read_pairs(text):
                if answer not in seen:
                    seen.add(answer)
                    found.questions.append(Question(question, len(found.passages)))
                    found.passages.extend(cut_windows(answer, rng)[:_MEDQUAD_WINDOWS])
        return _sampled(found, rng, count)


def nfcorpus_questions(archive: str, count: int, seed: int) -> Questions:
    """Queries of NFCorpus' train split over all of its passages; a query's passage is one of the
    most relevant.

    Some queries occur in two splits under two ids: queries of dev and test are left out.

    Raises:
        PreflightError: the archive is not BEIR's NFCorpus.
    """
    rng = random.Random(seed)
    train, *others = (read_nfcorpus(archive, split) for split in ("train", "dev", "test"))
    held_out = {topic.text for each in others for topic in each.topics}
    places = {doc_id: place for place, (doc_id, _) in enumerate(train.passages)}
    found = Questions("nfcorpus", [text for _, text in train.passages])
    for query_id, text in train.topics:
        if text not in held_out:
            levels = train.qrels[query_id]
            best = [doc_id for doc_id, level in levels.items() if level == max(levels.values())]
            found.questions.append(
                Question(text, places[rng.choice(best)], frozenset(places[one] for one in levels))
            )
    with reading(archive, "BEIR's NFCorpus"):
        return _sampled(found, rng, count)


def title_questions(archive: str, count: int, seed: int) -> Questions:
    """Titles of NFCorpus' passages as queries; the passages are their abstracts.

    Raises:
        PreflightError: the archive is not BEIR's NFCorpus.
    """
    found = Questions("titles")
    with reading(archive, "BEIR's NFCorpus"):
        for title, text in read_abstracts(archive):
            found.questions.append(Question(title, len(found.passages)))
            found.passages.append(text)
        return _sampled(found, random.Random(seed), count)


def car_questions(archive: str, count: int, seed: int) -> Questions:
    """Headings of TREC CAR's train.test200 as queries, page first; the passages are the paragraphs.

    Raises:
        PreflightError: the archive has no such files.
    """
    rng, found = random.Random(seed), Questions("car")
    with reading(archive, "TREC CAR"):
        collection = read_car(archive)
        places = {doc.doc_id: place for place, doc in enumerate(collection.passages)}
        found.passages = [doc.text for doc in collection.passages]
        for query_id, text in collection.topics:
            relevant = sorted(places[doc_id] for doc_id in collection.qrels[query_id])
            found.questions.append(Question(text, rng.choice(relevant), frozenset(relevant)))
        return _sampled(found, rng, count)


def docstring_questions(count: int, seed: int) -> Questions:
    """Summaries of Python's docstrings with words left out, and names, as queries; none is about
    the demo's objects.
    """
    rng, found = random.Random(seed), Questions("stdlib")
    for doc in stdlib_docs():
        name = object_name(doc.doc_id)
        if name in held_out_objects():
            continue
        if doc.doc_id == f"{name}:0":
            query = _make_query(name, doc.text.removeprefix(f"{name}: "), rng)
            found.questions.append(Question(query, len(found.passages)))
        found.passages.append(doc.text)
    return _sampled(found, rng, count)


def cut_windows(text: str, rng: random.Random) -> list[str]:
    """Joins sentences to windows of about 30, 50, 80 or 400 words, one of these sizes for a
    text.
    """
    wanted = rng.choice(_WINDOW_WORDS)
    windows: list[list[str]] = []
    for sentence in re.split(r"(?<=[.!?]) ", text):
        words = sentence.split()
        if windows and len(windows[-1]) + len(words) / 2 <= wanted:
            windows[-1].extend(words)
        else:
            windows.append(words)
    return [" ".join(words) for words in windows if words]


def _make_query(name: str, summary: str, rng: random.Random) -> str:
    if rng.random() < 0.2:
        return " ".join(re.findall(r"[a-z0-9]+|[A-Z][a-z0-9]*", name)).lower()
    words = [
        word for word in re.findall(r"[\w'-]+", summary.lower())[:20] if rng.random() < _KEPT_SHARE
    ]
    return " ".join(words) or summary.lower()


def _sampled(found: Questions, rng: random.Random, count: int) -> Questions:
    if not found.questions:
        raise ValueError("it holds no questions")
    found.questions = _sample(rng, found.questions, count)
    return found


def _sample(rng: random.Random, values: list[_T], count: int) -> list[_T]:
    return rng.sample(values, min(count, len(values)))
