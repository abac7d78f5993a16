"""A conversion: reads released files, with errors that name the place, and writes a collection with
configurations.

It writes corpus.jsonl, topics, qrels and candidates of each part, and configurations of a run and
of the training of Mass et al. 2019.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.decode.base import BYTE_ORDER_MARK
from beamrank.formats.qrels import qrels_of
from beamrank.formats.run_writer import write_run
from beamrank.formats.values import RowError, check_id, check_query_id
from beamrank.records import Doc, Topic
from beamrank.storage import files as storage
from beamrank.storage.documents import usable
from beamrank.storage.streams import open_stream
from contrib.papers.statistics import CollectionStats, count_words, measure_collection

_Value = TypeVar("_Value")
_CORPUS = "corpus.jsonl"
_RUN_TAG = "all"
_BM25 = """\
# BM25's first {k}: beamrank run bm25.yaml
run_tag: {name}
corpus: {{path: corpus.jsonl, format: jsonl}}
topics: {{path: topics.tsv, format: tsv}}
index: {{path: index}}
bm25: {{k: {k}}}
output: bm25
"""
_RUN = """\
# {about}
run_tag: {name}
corpus: {{path: corpus.jsonl, format: jsonl}}
topics: {{path: topics{part}.tsv, format: tsv}}
qrels: qrels{part}.txt
candidates: {{run: candidates{part}.trec, k: {k}}}
mono: {{checkpoint: "embedded:mono", k: {k}}}   # or {trained}
measures: [{measures}]
output: out
"""
_TRAINING = """\
# {about}
recipe: nonfactoid                      # BERTlets; nonfactoid-pw is BERT[PW], nonfactoid-ce BERT[CE]
start: google-bert/bert-base-uncased
data:
  corpus: {{path: corpus.jsonl, format: jsonl}}
  topics: {{path: topics{train}.tsv, format: tsv}}
  qrels: qrels{train}.txt
  run: candidates{train}.trec
sampling: {{ranks: [1, {k}]{sampling}}}
{folds}dev:
  topics: {{path: topics{dev}.tsv, format: tsv}}
  qrels: qrels{dev}.txt
  run: candidates{dev}.trec
  k: {k}
  measure: {measure}
output: {output}
"""
_ABOUT_BM25 = """\
BM25's first {k}, with a relevant passage at rank {k} where it found none, re-ranked. After bm25.yaml:
# beamrank add-relevant bm25/runs/bm25.trec --qrels qrels.txt --k {k} --output candidates.trec
# beamrank run config.yaml"""
_ABOUT_FOLDS = """\
With candidates.trec (see config.yaml), five trainings, each measured on a fifth of the topics that it did not see:
# beamrank train mono train.yaml --folds 5"""


class Source:
    """A file and its text."""

    def __init__(self, url: str, places: dict[str, str] | None = None) -> None:
        """Reads it, decompressed by the ending of its name; `places` has the places of other files'
        query_ids.

        Raises:
            PreflightError: it does not exist, cannot be read or is not UTF-8.
        """
        self.url, self._places = url, {} if places is None else places
        try:
            with open_stream(url) as file:
                content = file.read().removeprefix(BYTE_ORDER_MARK)
        except DataError as error:
            raise PreflightError(str(error), **error.of_input) from error
        try:
            self.text = content.decode()
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            self.refuse(
                f"line {line}",
                f"not valid UTF-8 ({error.reason}): convert the file, or fetch it again",
            )

    def refuse(self, place: str, reason: str) -> NoReturn:
        """Raises PreflightError for a place in the file, such as `line 3`."""
        raise PreflightError(f"{self.url}, {place}: {reason}")

    def check_id(self, place: str, identifier: str, *, query: bool = False) -> None:
        """Refuses an id that cannot be used."""
        try:
            (check_query_id if query else check_id)(identifier)
        except RowError as error:
            self.refuse(place, f"the row {error}")

    def new_query(self, place: str, query_id: str) -> None:
        """Refuses a query_id that cannot be used, or that is there already."""
        self.check_id(place, query_id, query=True)
        if query_id in self._places:
            first = self._places[query_id]
            self.refuse(place, f"the id {query_id!r} appears twice, first in {first}")
        self._places[query_id] = f"{self.url}, {place}"

    def read(self, kind: type[_Value]) -> _Value:
        """The JSON value of the file, which is of a kind.

        Raises:
            PreflightError: as `json`, or it is of another kind.
        """
        return usable(kind, self.json(), self.url)

    def json(self) -> Any:
        """The JSON value that the file holds.

        Raises:
            PreflightError: it is not JSON, is nested too deeply, or an object has a key twice.
        """
        try:
            return json.loads(self.text, object_pairs_hook=_unique)
        except json.JSONDecodeError as error:
            place = f"line {error.lineno}"
            self.refuse(
                place, f"not valid JSON ({error.msg}): the file may be truncated, fetch it again"
            )
        except (ValueError, RecursionError) as error:
            raise PreflightError(f"{self.url} is not JSON that can be read: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the key {key!r} appears twice in one object ({dict(pairs)!r:.100})")
        members[key] = value
    return members


def plain(text: str) -> str:
    """A text on one line, its white space as single spaces."""
    return " ".join(text.split())


@dataclass(frozen=True)
class Part:
    """Topics with their judgments; the name of the part if there are several; candidates in order,
    if it has them.
    """

    topics: Sequence[Topic]
    relevance: Mapping[str, Mapping[str, int]]
    name: str = ""
    candidates: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def file(self, kind: str, ending: str) -> str:
        """The name of a file of this part: topics.train.tsv, or topics.tsv."""
        return ".".join([kind, *([self.name] if self.name else []), ending])


@dataclass(frozen=True)
class Collection:
    """A collection: `docs` are read once, and `left_out` is complete then; `configs` are texts by
    file name.
    """

    docs: Iterable[Doc]
    parts: Sequence[Part]
    configs: Mapping[str, str]
    left_out: Counter[str] = field(default_factory=Counter)


def check_empty(output: str) -> None:
    """Raises PreflightError if a folder holds files: they would be mixed with another
    conversion's.
    """
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
        for name, rows in (
            (part.file("topics", "tsv"), lines),
            (part.file("qrels", "txt"), judgments),
        ):
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
    relevance = {
        query_id: docs for part in collection.parts for query_id, docs in part.relevance.items()
    }
    units = list_units(CorpusConfig(path=corpus, format="jsonl"))
    batches = (batch for unit in units for batch in read_unit(unit))
    return measure_collection(topics, batches, qrels_of(relevance), {"words": count_words})


def _json_line(doc: Doc) -> bytes:
    return json.dumps({"id": doc.doc_id, "contents": doc.text}, ensure_ascii=False).encode() + b"\n"


def bm25_configs(name: str, k: int, sampling: str = "") -> dict[str, str]:
    """For a collection without candidates, whose topics are not divided.

    Args:
        name: the collection's.
        k: the candidates of a topic.
        sampling: more keys of `sampling`.
    """
    run = {"part": "", "trained": "one that was trained with train.yaml", "measures": "P@1, AP, RR"}
    training = {"train": "", "dev": "", "measure": "P@1", "output": "folds"}
    folds = "folds: {count: 5, held_out: 0}\n"
    return {
        "bm25.yaml": _BM25.format(name=name, k=k),
        "config.yaml": _RUN.format(about=_ABOUT_BM25.format(k=k), name=name, k=k, **run),
        "train.yaml": _TRAINING.format(
            about=_ABOUT_FOLDS, k=k, sampling=sampling and f", {sampling}", folds=folds, **training
        ),
    }


def wikipassageqa_configs(k: int) -> dict[str, str]:
    """For WikiPassageQA, whose longest article has k passages."""
    trained = "./mono, after `beamrank train mono train.yaml`"
    run = {"name": "wikipassageqa", "part": ".test", "trained": trained, "measures": "AP, RR, P@1"}
    training = {"train": ".train", "dev": ".dev", "measure": "AP", "output": "mono", "folds": ""}
    return {
        "config.yaml": _RUN.format(
            about="All passages of each question's article, re-ranked: beamrank run config.yaml",
            k=k,
            **run,
        ),
        "train.yaml": _TRAINING.format(
            about="beamrank train mono train.yaml", k=k, sampling=", negatives: 5", **training
        ),
    }
