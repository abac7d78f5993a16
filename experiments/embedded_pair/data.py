"""Questions and passages to train on: SQuAD's and NFCorpus' training halves, MedQuAD, the library's docstrings.

What answers a question of the demo is left out: `beamrank.demo.collection.held_out_objects`.
"""

import functools
import html
import json
import random
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, TypeVar
from xml.etree import ElementTree

from beamrank.demo.collection import held_out_objects, object_name, stdlib_docs
from beamrank.errors import PreflightError

# Passages of several lengths, many of them short: length is what training costs. The last is whole paragraphs.
_WINDOW_WORDS = (30, 50, 80, 400)
_MEDQUAD_WINDOWS = 3
_KEPT_SHARE = 0.7

# What broken archives raise, then what whole ones of something else do.
_UNREADABLE = (
    *(OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile),
    *(ValueError, KeyError, ElementTree.ParseError),
)

_T = TypeVar("_T")
_P = ParamSpec("_P")


@dataclass(frozen=True)
class Question:
    """A query, and the passage that answers it (`labelled`) or that it was made from (not labelled).

    Attributes:
        text: the query.
        passage: the passage's place in the collection.
        labelled: whether it is known to be relevant.
        others: places of more relevant passages, which are no negatives.
    """

    text: str
    passage: int
    labelled: bool
    others: frozenset[int] = frozenset()


@dataclass
class Collection:
    """Passages and the questions about them; negatives come from the same collection."""

    name: str
    passages: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)


def _named(read: Callable[Concatenate[str, _P], Collection]) -> Callable[Concatenate[str, _P], Collection]:
    """Names the archive in what is wrong with it."""

    @functools.wraps(read)
    def named(archive: str, /, *args: _P.args, **kwargs: _P.kwargs) -> Collection:
        try:
            return read(archive, *args, **kwargs)
        except _UNREADABLE as error:
            what = f"{type(error).__name__}: {error}"
            raise PreflightError(f"{archive} cannot be read ({what}): get it again, or give its path") from error

    return named


@_named
def read_squad(archive: str, articles: int, questions: int, seed: int) -> Collection:
    """Reads windows of paragraphs, and questions whose answer stands in one, from a sample of the training articles.

    Args:
        archive: SQuAD 1.1 as its authors' HTML pages, in a tar.gz with the folders train and dev; dev is not read.
        articles: how many articles to sample.
        questions: how many of their questions to sample.
        seed: decides the sample.

    Raises:
        PreflightError: the archive has no such pages.
    """
    rng = random.Random(seed)
    collection = Collection("squad")
    for page in _sample(rng, sorted(_read_members(archive, r"/train/(?!index)[^/]+\.html$")), articles):
        for paragraph in page.split('<div class="para-wrap">')[1:]:
            text = " ".join(html.unescape(paragraph.partition("<pre>")[2].partition("</pre>")[0]).split())
            first = len(collection.passages)
            collection.passages.extend(cut_windows(text, rng))
            for block in paragraph.split('<div class="qa-wrap">')[1:]:
                question, answer = (_read_text(block, kind) for kind in ("question", "answer"))
                places = [n for n in range(first, len(collection.passages)) if answer in collection.passages[n]]
                if places:
                    collection.questions.append(Question(question, places[0], True, frozenset(places)))
    collection.questions = _sample(rng, collection.questions, questions)
    return _checked(collection, archive)


@_named
def read_medquad(archive: str, files: int, questions: int, seed: int) -> Collection:
    """Reads windows of answers from a sample of MedQuAD's files; a question is answered by its answer's first one."""
    rng = random.Random(seed)
    collection = Collection("medquad")
    seen: set[str] = set()
    for text in _sample(rng, sorted(_read_members(archive, r"\.xml$")), files):
        for pair in ElementTree.fromstring(text).iter("QAPair"):
            question, answer = (" ".join((pair.findtext(tag) or "").split()) for tag in ("Question", "Answer"))
            if question and answer and answer not in seen:
                seen.add(answer)
                collection.questions.append(Question(question, len(collection.passages), True))
                collection.passages.extend(cut_windows(answer, rng)[:_MEDQUAD_WINDOWS])
    collection.questions = _sample(rng, collection.questions, questions)
    return _checked(collection, archive)


@_named
def read_nfcorpus(archive: str, questions: int, seed: int) -> Collection:
    """Reads BEIR's NFCorpus: titles with their abstracts, and the queries of train; dev and test are not read.

    A query's passage is one of those that the qrels call most relevant. Some queries stand in two splits under two
    ids: they are left out.
    """
    rng = random.Random(seed)
    collection = Collection("nfcorpus")
    with zipfile.ZipFile(archive) as folder:
        texts = {row["_id"]: row["text"] for row in _read_rows(folder, "queries.jsonl")}
        places: dict[str, int] = {}
        for number, row in enumerate(_read_rows(folder, "corpus.jsonl")):
            places[row["_id"]] = number
            collection.passages.append(" ".join(f"{row['title']} {row['text']}".split()))
        judged = _read_qrels(folder, "train")
        held_out = {texts[query_id] for split in ("dev", "test") for query_id in _read_qrels(folder, split)}
    for query_id, relevance_of in judged.items():
        if texts[query_id] in held_out:
            continue
        best = [doc_id for doc_id, relevance in relevance_of.items() if relevance == max(relevance_of.values())]
        own, others = places[rng.choice(best)], frozenset(places[doc_id] for doc_id in relevance_of)
        collection.questions.append(Question(texts[query_id], own, True, others))
    collection.questions = _sample(rng, collection.questions, questions)
    return _checked(collection, archive)


def read_stdlib(questions: int, seed: int) -> Collection:
    """Makes queries of summaries with words left out, and of names; none is about an object that the demo asks for."""
    rng = random.Random(seed)
    collection = Collection("stdlib")
    for doc in stdlib_docs():
        name = object_name(doc.doc_id)
        if name in held_out_objects():
            continue
        if doc.doc_id == f"{name}:0":
            query = _make_query(name, doc.text.removeprefix(f"{name}: "), rng)
            collection.questions.append(Question(query, len(collection.passages), False))
        collection.passages.append(doc.text)
    collection.questions = _sample(rng, collection.questions, questions)
    return collection


def cut_windows(text: str, rng: random.Random) -> list[str]:
    """Joins sentences to windows of about 30, 50, 80 or 400 words, one of these for a text."""
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
    words = [word for word in re.findall(r"[\w'-]+", summary.lower())[:20] if rng.random() < _KEPT_SHARE]
    return " ".join(words) or summary.lower()


def _sample(rng: random.Random, values: list[_T], count: int) -> list[_T]:
    return rng.sample(values, min(count, len(values)))


def _read_text(block: str, kind: str) -> str:
    found = re.search(rf'class="{kind}">(.*?)<', block, re.DOTALL)
    if found is None:
        raise ValueError(f"a question block without class {kind!r}")
    return html.unescape(found[1]).strip()


def _read_members(archive: str, pattern: str) -> Iterator[str]:
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            content = tar.extractfile(member) if re.search(pattern, member.name) else None
            if content:
                yield content.read().decode("utf-8")


def _read_rows(folder: zipfile.ZipFile, name: str) -> Iterator[dict[str, str]]:
    return map(json.loads, folder.read(_member(folder, name)).decode("utf-8").splitlines())


def _read_qrels(folder: zipfile.ZipFile, split: str) -> dict[str, dict[str, int]]:
    judged: dict[str, dict[str, int]] = {}
    for line in folder.read(_member(folder, f"qrels/{split}.tsv")).decode("utf-8").splitlines()[1:]:
        query_id, doc_id, relevance = line.split("\t")
        judged.setdefault(query_id, {})[doc_id] = int(relevance)
    return judged


def _member(folder: zipfile.ZipFile, name: str) -> str:
    found = next((member for member in folder.namelist() if member.endswith(name)), None)
    if found is None:
        raise PreflightError(f"{folder.filename} has no {name}: is it BEIR's NFCorpus?")
    return found


def _checked(collection: Collection, archive: str) -> Collection:
    if not collection.questions:
        raise PreflightError(f"no question was found in {archive}: is it {collection.name}'s archive?")
    return collection
