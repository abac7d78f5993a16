"""MedQuAD as a retrieval collection: its answers are the passages, whole, its questions the topics."""

import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from beamrank.digests import hash64
from beamrank.records import Doc, Topic


@dataclass(frozen=True)
class MedQuad:
    """Passages of different text, topics of different text, and which passages answer each topic."""

    passages: tuple[Doc, ...]
    topics: tuple[Topic, ...]
    answers: dict[str, tuple[str, ...]]

    def chosen(self, count: int | None) -> list[Topic]:
        """The same `count` topics on every machine, all by default; a smaller choice is part of every larger one."""
        return sorted(self.topics, key=lambda topic: hash64(topic.query_id))[:count]


def read_medquad(archive: str | Path) -> MedQuad:
    """Reads MedQuAD's XML files out of a tar.gz. What stands twice, question or answer, counts once.

    Raises:
        ValueError: the archive holds no questions with answers.
    """
    doc_ids: dict[str, str] = {}
    answers: dict[str, dict[str, None]] = {}
    for question, answer in _pairs(archive):
        doc_id = doc_ids.setdefault(answer, f"a{len(doc_ids):05d}")
        answers.setdefault(question, {})[doc_id] = None
    if not answers:
        raise ValueError(f"{archive} holds no QAPair with a question and an answer: is it MedQuAD?")
    topics = tuple(Topic(f"q{number:05d}", text) for number, text in enumerate(answers))
    return MedQuad(
        tuple(Doc(doc_id, text) for text, doc_id in doc_ids.items()),
        topics,
        {topic.query_id: tuple(answers[topic.text]) for topic in topics},
    )


def write_collection(collection: MedQuad, topics: Iterable[Topic], folder: Path) -> None:
    """Writes corpus.jsonl, and topics.tsv and qrels.txt of some of the topics."""
    folder.mkdir(parents=True, exist_ok=True)
    some = list(topics)
    rows = (json.dumps({"id": doc_id, "contents": text}) for doc_id, text in collection.passages)
    judged = (f"{query_id} 0 {doc_id} 1" for query_id, _ in some for doc_id in collection.answers[query_id])
    files = {
        "corpus.jsonl": rows,
        "topics.tsv": (f"{query_id}\t{text}" for query_id, text in some),
        "qrels.txt": judged,
    }
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _pairs(archive: str | Path) -> Iterator[tuple[str, str]]:
    """(question, answer) in the order of the files' names."""
    for _, content in sorted(_members(archive)):
        for pair in ElementTree.fromstring(content).iter("QAPair"):
            question, answer = (" ".join((pair.findtext(tag) or "").split()) for tag in ("Question", "Answer"))
            if question and answer:
                yield question, answer


def _members(archive: str | Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.name.endswith(".xml") else None
            if file is not None:
                yield member.name, file.read()
