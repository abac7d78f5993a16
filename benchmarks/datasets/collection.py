"""A retrieval collection in memory, and the files that beamrank reads."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from beamrank.records import Doc, Topic
from beamrank.storage.documents import hash64


@dataclass(frozen=True)
class Collection:
    """Passages, topics, and the judgments of each topic: {query_id: {doc_id: relevance}}."""

    passages: tuple[Doc, ...]
    topics: tuple[Topic, ...]
    qrels: Mapping[str, Mapping[str, int]]

    def chosen(self, count: int | None) -> list[Topic]:
        """The same `count` topics on every machine, by default all; a smaller choice is part of
        every larger one.

        Raises:
            ValueError: there are fewer topics.
        """
        if count is not None and count > len(self.topics):
            raise ValueError(
                f"{count} topics were requested, and the collection has {len(self.topics)}"
            )
        return sorted(self.topics, key=lambda topic: hash64(topic.query_id))[:count]

    def write_corpus(self, folder: Path) -> None:
        """Writes corpus.jsonl."""
        rows = (json.dumps({"id": doc_id, "contents": text}) for doc_id, text in self.passages)
        _write_lines(folder / "corpus.jsonl", rows)

    def write_topics(self, folder: Path, topics: Iterable[Topic]) -> None:
        """Writes topics.tsv and qrels.txt for some topics."""
        some = list(topics)
        judged = (
            f"{topic.query_id} 0 {doc_id} {relevance}"
            for topic in some
            for doc_id, relevance in self.qrels[topic.query_id].items()
        )
        _write_lines(folder / "topics.tsv", (f"{query_id}\t{text}" for query_id, text in some))
        _write_lines(folder / "qrels.txt", judged)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
