"""The demo's collection: the standard library's documentation, and questions that programmers ask about it.

The questions were written before any model of this project was trained, in the words of somebody who does not know
the name of what they look for. Neither they nor the docs that answer them may be trained on: `held_out_objects`.
"""

import functools
import json
from importlib import resources
from typing import NamedTuple

from beamrank import storage
from beamrank.demo.docstrings import find_docstrings
from beamrank.demo.passages import split_docstring
from beamrank.errors import PreflightError
from beamrank.records import Doc, Topic


class Question(NamedTuple):
    """A question, with the qualified names of the documented objects that answer it."""

    query_id: str
    text: str
    answers: tuple[str, ...]


class Judgment(NamedTuple):
    """A line of the demo's qrels."""

    query_id: str
    doc_id: str
    relevance: int


@functools.cache
def stdlib_docs() -> list[Doc]:
    """The docstrings of the running Python's standard library as passages, sorted by name.

    A doc_id is the object's qualified name and the passage's number, `textwrap.dedent:0`. The name begins the text
    too, since a body passage often does not say what it is about; Lucene takes a dotted name as one word, so a question
    does not find `random.shuffle` by having "random" in it.

    Raises:
        PreflightError: this Python came without its library's source or docstrings.
    """
    docs = []
    for name, docstring in find_docstrings().items():
        for number, passage in enumerate(split_docstring(docstring)):
            docs.append(Doc(f"{name}:{number}", f"{name}: {passage}"))
    missing = sorted(held_out_objects() - {object_name(doc.doc_id) for doc in docs})
    if missing:
        raise PreflightError(
            f"the demo's questions are answered by {', '.join(missing[:5])} (and {max(0, len(missing) - 5)} more), for "
            "which this Python has no docstring: it was installed without its library's source, or without "
            "docstrings. Use a full Python 3.11 to 3.13"
        )
    return docs


@functools.cache
def demo_questions() -> list[Question]:
    """The questions, in the order of their query_id."""
    lines = resources.files("beamrank.demo").joinpath("questions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [Question(row["query_id"], row["text"], tuple(row["answers"])) for row in rows]


def demo_topics() -> list[Topic]:
    """The questions as topics."""
    return [Topic(question.query_id, question.text) for question in demo_questions()]


def demo_qrels() -> list[Judgment]:
    """Relevance 1 for every passage of every object that answers a question.

    Raises:
        PreflightError: as `stdlib_docs`.
    """
    doc_ids: dict[str, list[str]] = {}
    for doc in stdlib_docs():
        doc_ids.setdefault(object_name(doc.doc_id), []).append(doc.doc_id)
    return [
        Judgment(question.query_id, doc_id, 1)
        for question in demo_questions()
        for answer in question.answers
        for doc_id in doc_ids[answer]
    ]


def object_name(doc_id: str) -> str:
    """The qualified name of the object that a doc is a passage of."""
    return doc_id.rsplit(":", 1)[0]


def held_out_objects() -> frozenset[str]:
    """The objects that answer a question: nothing of them may be trained on."""
    return frozenset(answer for question in demo_questions() for answer in question.answers)


def write_collection(folder: str) -> None:
    """Writes `corpus.jsonl` (id, contents), `topics.tsv` and `qrels.txt` (TREC) into a folder, local or remote.

    Raises:
        PreflightError: as `stdlib_docs`.
    """
    corpus = [json.dumps({"id": doc.doc_id, "contents": doc.text}, ensure_ascii=False) for doc in stdlib_docs()]
    topics = [f"{topic.query_id}\t{topic.text}" for topic in demo_topics()]
    qrels = [f"{judgment.query_id} 0 {judgment.doc_id} {judgment.relevance}" for judgment in demo_qrels()]
    for name, lines in {"corpus.jsonl": corpus, "topics.tsv": topics, "qrels.txt": qrels}.items():
        # What is there already is left alone: another demo may be reading it.
        storage.publish_content(storage.join(folder, name), "".join(f"{line}\n" for line in lines).encode())
