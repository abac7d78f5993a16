"""SQuAD 1.1 from its authors' HTML pages: a tar.gz with the folders train/ and dev/."""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from beamrank.records import Doc, Topic
from benchmarks.datasets.archives import reading, tar_texts
from benchmarks.datasets.collection import Collection

ARCHIVE = Path(__file__).resolve().parents[3] / "shared" / "data" / "squad_v1.1.tar.gz"
_PARAGRAPH = re.compile(r"<pre[^>]*>(.*?)</pre>", re.DOTALL)
_QUESTION = re.compile(r'class="question">(.*?)<.*?class="answer">(.*?)<', re.DOTALL)


class Paragraph(NamedTuple):
    """A paragraph with its questions, each with its first answer."""

    text: str
    questions: tuple[tuple[str, str], ...]


def read_squad(archive: str | Path) -> Collection:
    """SQuAD as a retrieval collection: the paragraphs of both splits are passages, the questions of
    dev are topics.

    Raises:
        PreflightError: the archive has no such pages.
    """
    passages: list[Doc] = []
    topics: list[Topic] = []
    qrels: dict[str, dict[str, int]] = {}
    with reading(archive, "SQuAD 1.1"):
        pages = tar_texts(archive, ".html")
        for split in ("train", "dev"):
            for number, page in enumerate(split_pages(pages, split)):
                for place, paragraph in enumerate(read_paragraphs(page)):
                    doc_id = f"{split}-{number:03d}-{place:03d}"
                    passages.append(Doc(doc_id, paragraph.text))
                    for order, (question, _) in enumerate(
                        paragraph.questions if split == "dev" else ()
                    ):
                        topics.append(Topic(f"{doc_id}-{order:02d}", " ".join(question.split())))
                        qrels[topics[-1].query_id] = {doc_id: 1}
        if not topics:
            raise ValueError("it holds no questions under dev/")
    return Collection(tuple(passages), tuple(topics), qrels)


def split_pages(pages: dict[str, str], split: str) -> list[str]:
    """The HTML of a split's pages, by name."""
    return [pages[name] for name in sorted(pages) if Path(name).match(f"{split}/*.html")]


def read_paragraphs(page: str) -> Iterator[Paragraph]:
    """Yields the paragraphs of a page.

    Raises:
        ValueError: a paragraph has no text.
    """
    for wrap in page.split('class="para-wrap"')[1:]:
        match = _PARAGRAPH.search(wrap)
        if match is None:
            raise ValueError("a paragraph has no <pre>")
        pairs = (
            (html.unescape(question), html.unescape(answer))
            for question, answer in _QUESTION.findall(wrap)
        )
        yield Paragraph(
            html.unescape(match[1]),
            tuple((question.strip(), answer.strip()) for question, answer in pairs),
        )
