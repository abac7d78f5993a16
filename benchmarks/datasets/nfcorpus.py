"""NFCorpus from BEIR's zip."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

from beamrank.records import Doc, Topic
from benchmarks.datasets.archives import reading
from benchmarks.datasets.collection import Collection


def read_nfcorpus(archive: str | Path, split: str) -> Collection:
    """NFCorpus with the judged queries of a split: `train`, `dev` or `test`. Passages are titles
    with abstracts.

    Raises:
        PreflightError: the archive is not BEIR's NFCorpus.
    """
    with reading(archive, "BEIR's NFCorpus"), zipfile.ZipFile(archive) as folder:
        queries = {
            row["_id"]: " ".join(row["text"].split()) for row in _read_rows(folder, "queries.jsonl")
        }
        passages = tuple(
            Doc(row["_id"], " ".join(f"{row['title']} {row['text']}".split()))
            for row in _read_rows(folder, "corpus.jsonl")
        )
        qrels: dict[str, dict[str, int]] = {}
        for line in _read_member(folder, f"qrels/{split}.tsv").splitlines()[1:]:
            query_id, doc_id, relevance = line.split("\t")
            qrels.setdefault(query_id, {})[doc_id] = int(relevance)
        return Collection(
            passages, tuple(Topic(query_id, queries[query_id]) for query_id in qrels), qrels
        )


def read_abstracts(archive: str | Path) -> list[tuple[str, str]]:
    """The title and the abstract of each passage that has both."""
    with zipfile.ZipFile(archive) as folder:
        rows = [(row["title"], row["text"]) for row in _read_rows(folder, "corpus.jsonl")]
    texts = ((" ".join(title.split()), " ".join(text.split())) for title, text in rows)
    return [(title, text) for title, text in texts if title and text]


def _read_rows(folder: zipfile.ZipFile, name: str) -> Iterator[dict[str, str]]:
    return map(json.loads, _read_member(folder, name).splitlines())


def _read_member(folder: zipfile.ZipFile, name: str) -> str:
    path = next((member for member in folder.namelist() if member.endswith(name)), None)
    if path is None:
        raise ValueError(f"it has no {name}")
    return folder.read(path).decode("utf-8")
