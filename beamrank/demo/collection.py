"""The demo's collection: the docstrings of Python 3.11's standard library, and questions about it.

`corpus.jsonl.gz` holds the docstrings, so every Python searches the same collection. They stay
under Python's licence, `LICENSE-PYTHON.txt`.

The questions were written before any model of this project was trained, in the words of somebody
who does not know the name that they search for. Training must use neither them nor the docs that
answer them: `held_out_objects`.
"""

import functools
import gzip
import json
from importlib import resources
from typing import NamedTuple

from beamrank.records import Doc
from beamrank.storage import files as storage


class Question(NamedTuple):
    """A question, with the qualified names of the documented objects that answer it."""

    query_id: str
    text: str
    answers: tuple[str, ...]


@functools.cache
def stdlib_docs() -> list[Doc]:
    """The docstrings of Python 3.11's standard library as passages, sorted by name.

    A doc_id is the object's qualified name and the passage's number, `textwrap.dedent:0`: the
    summary is number 0, and what follows it is cut into passages of about 40 to 150 words. The text
    begins with the name too, since a later passage often does not mention its subject. Lucene takes
    a dotted name as one word, so a question does not find `random.shuffle` by the word "random".
    """
    rows = [json.loads(line) for line in _corpus().splitlines()]
    return [Doc(row["id"], row["contents"]) for row in rows]


@functools.cache
def demo_questions() -> list[Question]:
    """The questions, in the order of their query_id."""
    rows = [json.loads(line) for line in _shipped("questions.jsonl").splitlines()]
    return [Question(row["query_id"], row["text"], tuple(row["answers"])) for row in rows]


def object_name(doc_id: str) -> str:
    """The qualified name of the object that a doc is a passage of."""
    return doc_id.rsplit(":", 1)[0]


def held_out_objects() -> frozenset[str]:
    """The objects that answer a question: nothing of them may be trained on."""
    return frozenset(answer for question in demo_questions() for answer in question.answers)


def demo_qrels() -> list[tuple[str, str]]:
    """The query_id and doc_id of every passage of every object that answers a question; their
    relevance is 1.
    """
    doc_ids: dict[str, list[str]] = {}
    for doc in stdlib_docs():
        doc_ids.setdefault(object_name(doc.doc_id), []).append(doc.doc_id)
    return [
        (question.query_id, doc_id)
        for question in demo_questions()
        for name in question.answers
        for doc_id in doc_ids[name]
    ]


def write_collection(folder: str) -> None:
    """Writes `corpus.jsonl` (id, contents), `topics.tsv` and `qrels.txt` (TREC) into a folder,
    local or remote.
    """
    topics = "".join(f"{question.query_id}\t{question.text}\n" for question in demo_questions())
    qrels = "".join(f"{query_id} 0 {doc_id} 1\n" for query_id, doc_id in demo_qrels())
    files = {"corpus.jsonl": _corpus(), "topics.tsv": topics.encode(), "qrels.txt": qrels.encode()}
    for name, content in files.items():
        # A file that exists with this content is left alone: another demo may be reading it.
        storage.publish_content(storage.join(folder, name), content)


def _corpus() -> bytes:
    return gzip.decompress(_shipped("corpus.jsonl.gz"))


def _shipped(name: str) -> bytes:
    return resources.files("beamrank.demo").joinpath(name).read_bytes()
