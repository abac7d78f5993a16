"""What a conversion writes: corpus.jsonl, and topics, qrels and candidates of each part, with two configurations."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.qrels import qrels_of
from beamrank.formats.run_writer import write_run
from beamrank.records import Doc, Topic
from beamrank.storage import files as storage
from contrib.papers.statistics import CollectionStats, count_words, measure_collection

_CORPUS = "corpus.jsonl"
_RUN_TAG = "all"


@dataclass(frozen=True)
class Part:
    """Topics with their judgments; the name of the part if there are several; candidates in order, if it has them."""

    topics: Sequence[Topic]
    relevance: Mapping[str, Mapping[str, int]]
    name: str = ""
    candidates: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def file(self, kind: str, ending: str) -> str:
        """The name of a file of this part: topics.train.tsv, or topics.tsv."""
        return ".".join([kind, *([self.name] if self.name else []), ending])


@dataclass(frozen=True)
class Collection:
    """A collection: `docs` are read once, and `left_out` is complete then; `configs` are texts by file name."""

    docs: Iterable[Doc]
    parts: Sequence[Part]
    configs: Mapping[str, str]
    left_out: Counter[str] = field(default_factory=Counter)


def check_empty(output: str) -> None:
    """Raises PreflightError if a folder holds files: they would be mixed with those of another conversion."""
    storage.check_folder(output)
    if storage.exists(output) and storage.sizes_bytes(output):
        raise PreflightError(f"{output} is not empty: give another --output, or remove it")


def write_collection(collection: Collection, output: str) -> CollectionStats:
    """Writes a collection to a folder.

    Returns:
        Its sizes in words, as in table 1 of Mass et al. 2019.
    """
    corpus = storage.join(output, _CORPUS)
    storage.replace_stream(corpus, (_json_line(doc) for doc in collection.docs))
    for part in collection.parts:
        lines = [f"{topic.query_id}\t{topic.text}\n" for topic in part.topics]
        judgments = [
            f"{query_id} 0 {doc_id} {level}\n"
            for query_id, docs in part.relevance.items()
            for doc_id, level in docs.items()
        ]
        for name, rows in ((part.file("topics", "tsv"), lines), (part.file("qrels", "txt"), judgments)):
            storage.replace(storage.join(output, name), "".join(rows).encode())
        if part.candidates:
            rankings = {
                query_id: [(doc_id, float(-rank)) for rank, doc_id in enumerate(doc_ids)]
                for query_id, doc_ids in part.candidates.items()
            }
            write_run(storage.join(output, part.file("candidates", "trec")), rankings, _RUN_TAG)
    for name, text in collection.configs.items():
        storage.replace(storage.join(output, name), text.encode())
    topics = [topic for part in collection.parts for topic in part.topics]
    relevance = {query_id: docs for part in collection.parts for query_id, docs in part.relevance.items()}
    units = list_units(CorpusConfig(path=corpus, format="jsonl"))
    batches = (batch for unit in units for batch in read_unit(unit))
    return measure_collection(topics, batches, qrels_of(relevance), {"words": count_words})


def _json_line(doc: Doc) -> bytes:
    return json.dumps({"id": doc.doc_id, "contents": doc.text}, ensure_ascii=False).encode() + b"\n"
