"""MedQuAD from its XML files, in a tar.gz."""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from beamrank.records import Doc, Topic
from beamrank.storage.documents import hash64
from benchmarks.datasets.archives import reading, tar_texts
from benchmarks.datasets.collection import Collection


def read_medquad(archive: str | Path) -> Collection:
    """MedQuAD as a retrieval collection: whole answers are passages, questions are topics.
    Duplicates count once.

    Raises:
        PreflightError: the archive has no questions with answers.
    """
    doc_ids: dict[str, str] = {}
    answers: dict[str, dict[str, int]] = {}
    with reading(archive, "MedQuAD"):
        for _, text in sorted(tar_texts(archive, ".xml").items()):
            for question, answer in read_pairs(text):
                doc_id = doc_ids.setdefault(answer, f"a{len(doc_ids):05d}")
                answers.setdefault(question, {})[doc_id] = 1
        if not answers:
            raise ValueError("it holds no QAPair with a question and an answer")
    topics = tuple(Topic(f"q{number:05d}", text) for number, text in enumerate(answers))
    passages = tuple(Doc(doc_id, text) for text, doc_id in doc_ids.items())
    return Collection(passages, topics, {topic.query_id: answers[topic.text] for topic in topics})


def is_measured(name: str) -> bool:
    """Whether a file, by its name in the archive, is of the fifth that no training reads."""
    return hash64(Path(name).parent.name + "/" + Path(name).name) % 5 == 0


def read_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yields the questions of a file, each with its answer, where neither is empty."""
    for pair in ElementTree.fromstring(text).iter("QAPair"):
        question, answer = (
            " ".join((pair.findtext(tag) or "").split()) for tag in ("Question", "Answer")
        )
        if question and answer:
            yield question, answer
