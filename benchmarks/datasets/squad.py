"""SQuAD 1.1 as a retrieval collection: its paragraphs are the passages, its dev questions the topics."""

import html
import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from beamrank.digests import hash64
from beamrank.records import Doc, Topic

_WRAP = 'class="para-wrap"'
_PARAGRAPH = re.compile(r"<pre[^>]*>(.*?)</pre>", re.DOTALL)
_QUESTION = re.compile(r'<strong class="question">(.*?)</strong>', re.DOTALL)
_SPLITS = ("train", "dev")


class Question(NamedTuple):
    """A question with the passage that it was asked about."""

    topic: Topic
    doc_id: str


@dataclass(frozen=True)
class Squad:
    """The passages of both splits and the questions of dev."""

    passages: tuple[Doc, ...]
    questions: tuple[Question, ...]

    def chosen(self, count: int) -> list[Question]:
        """The same `count` questions on every machine; a smaller choice is part of every larger one."""
        if count > len(self.questions):
            raise ValueError(f"{count} questions were asked for, and SQuAD's dev split has {len(self.questions)}")
        return sorted(self.questions, key=lambda question: hash64(question.topic.query_id))[:count]


def read_squad(archive: str | Path) -> Squad:
    """Reads SQuAD 1.1 as its authors' HTML pages: a tar.gz with the folders train/ and dev/.

    Raises:
        ValueError: the archive holds no such pages.
    """
    passages: list[Doc] = []
    questions: list[Question] = []
    for split, number, page in _pages(archive):
        for place, wrap in enumerate(page.split(_WRAP)[1:]):
            doc_id = f"{split}-{number:03d}-{place:03d}"
            found = _PARAGRAPH.search(wrap)
            if found is None:
                raise ValueError(f"{archive}: paragraph {doc_id} has no <pre>: these are not SQuAD 1.1's pages")
            passages.append(Doc(doc_id, html.unescape(found.group(1))))
            if split == "dev":
                questions += [
                    Question(Topic(f"{doc_id}-{order:02d}", text), doc_id)
                    for order, text in enumerate(_questions(wrap))
                ]
    if not passages or not questions:
        raise ValueError(f"{archive} holds no HTML pages of SQuAD 1.1 under train/ and dev/")
    return Squad(tuple(passages), tuple(questions))


def _pages(archive: str | Path) -> Iterator[tuple[str, int, str]]:
    """(split, number within the split, HTML) of each page, by name."""
    pages = _read_pages(archive)
    for split in _SPLITS:
        names = sorted(name for name in pages if Path(name).match(f"{split}/*.html"))
        for number, name in enumerate(names):
            yield split, number, pages[name]


def _read_pages(archive: str | Path) -> dict[str, str]:
    """HTML by name, read in the archive's order: to go back in a tar.gz is to read it again."""
    pages = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.name.endswith(".html") else None
            if file is not None:
                pages[member.name] = file.read().decode()
    return pages


def _questions(wrap: str) -> list[str]:
    return [" ".join(html.unescape(text).split()) for text in _QUESTION.findall(wrap)]


def write_collection(squad: Squad, folder: Path) -> None:
    """Writes corpus.jsonl, which is the same whatever the questions."""
    rows = (json.dumps({"id": doc_id, "contents": text}) for doc_id, text in squad.passages)
    _write_lines(folder / "corpus.jsonl", rows)


def write_questions(questions: Iterable[Question], folder: Path) -> None:
    """Writes topics.tsv and qrels.txt."""
    chosen = list(questions)
    _write_lines(folder / "topics.tsv", (f"{topic.query_id}\t{topic.text}" for topic, _ in chosen))
    _write_lines(folder / "qrels.txt", (f"{topic.query_id} 0 {doc_id} 1" for topic, doc_id in chosen))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
