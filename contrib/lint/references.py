"""The files that a run is checked against (topics, qrels, a corpus, a first stage), and forms of
ids.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beamrank.errors import PreflightError
from beamrank.formats.corpora import FORMATS as CORPUS_FORMATS
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.excluded import Excluded, read_excluded
from beamrank.formats.files import Beginning, FormatGuesser
from beamrank.formats.qrels import read_qrels
from beamrank.formats.rejects import Rejects
from beamrank.formats.runs import read_run
from beamrank.formats.schemas import NO_FILE_HINTS, FileHints
from beamrank.formats.topics import FORMATS as TOPICS_FORMATS
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.storage import files as storage
from beamrank.storage.globs import find
from beamrank.storage.streams import errors_as, open_stream

_ZEROS = re.compile(rb"(?<!\d)0+(?=\d)")
_PREFIX = re.compile(rb"([a-z_-]*)(\d+)")


class IdForm(NamedTuple):
    """An id in lower case without leading zeros; its number apart if it is one with a prefix."""

    prefix: bytes
    rest: bytes


def id_form(identifier: bytes) -> IdForm:
    """The form of an id."""
    text = _ZEROS.sub(b"", identifier.lower())
    match = _PREFIX.fullmatch(text)
    return IdForm(match[1], match[2]) if match else IdForm(b"", text)


def could_be(one: IdForm, other: IdForm) -> bool:
    """Whether two forms may mean the same doc: one of them may lack the prefix."""
    return one.rest == other.rest and (
        one.prefix == other.prefix or not one.prefix or not other.prefix
    )


Hashes = NDArray[np.int64]


@dataclass(frozen=True)
class References:
    """The references that a run is checked against; None where nothing was given.

    Attributes:
        topics: the query_ids.
        qrels: the relevance of each judged doc, by query_id and doc_id.
        docs: the sorted hashes of the corpus's doc_ids.
        first_stage: the sorted hashes of the doc_ids of each topic of a run.
        excluded: the docs that no ranking should hold.
    """

    topics: frozenset[bytes] | None = None
    qrels: Mapping[bytes, Mapping[bytes, int]] | None = None
    docs: Hashes | None = None
    first_stage: Mapping[bytes, Hashes] | None = None
    excluded: Excluded | None = None

    @cached_property
    def topic_forms(self) -> dict[IdForm, bytes]:
        """The topics by the form of their ids."""
        return {id_form(query_id): query_id for query_id in self.topics or ()}


def read_references(
    rejects: Mapping[str, Rejects] = MappingProxyType({}),
    hints: FileHints = NO_FILE_HINTS,
    /,
    topics: str | None = None,
    qrels: str | None = None,
    corpus: str | None = None,
    first_stage: str | None = None,
    exclude: str | None = None,
) -> References:
    """Reads the files that a run is checked against; formats of topics and corpora are found by
    their content.

    `rejects` takes rows of `topics`, `qrels` and `run` (the first stage) that cannot be used;
    without it, each is an error. Rows of a corpus are left out. `hints` say how runs and qrels are
    laid out.

    Hashes stand for doc_ids, 8 bytes for each: they are Python's, so they hold in this process
    only.
    """
    return References(
        None if topics is None else frozenset(_read_query_ids(topics, rejects.get("topics"))),
        None if qrels is None else _read_judgments(qrels, hints, rejects.get("qrels")),
        None if corpus is None else _hashes(_read_doc_ids(corpus)),
        None if first_stage is None else _read_first_stage(first_stage, hints, rejects.get("run")),
        None if exclude is None else read_excluded(exclude),
    )


def among(hashes: Hashes, others: Hashes) -> NDArray[np.bool_]:
    """Whether each of some hashes is among others, which are sorted."""
    if not len(others):
        return np.zeros(len(hashes), dtype=bool)
    return np.asarray(others[np.searchsorted(others, hashes).clip(max=len(others) - 1)] == hashes)


def _read_query_ids(url: str, rejects: Rejects | None) -> Iterator[bytes]:
    name = FormatGuesser("topics", TOPICS_FORMATS).guess(_beginning(url))
    if name is None:
        return _read_list(url)
    return (
        topic.query_id.encode()
        for topic in read_topics(TopicsConfig(path=url, format=name), rejects)
    )


def _read_judgments(
    url: str, hints: FileHints, rejects: Rejects | None
) -> dict[bytes, dict[bytes, int]]:
    relevance = read_qrels(url, hints.qrels, rejects).relevance
    return {
        query_id.encode(): {doc_id.encode(): level for doc_id, level in docs.items()}
        for query_id, docs in relevance.items()
    }


def _read_doc_ids(path: str) -> Iterator[bytes]:
    files = find(path)
    if not files:
        raise PreflightError(f"there is no corpus at {path}")
    beginning = _beginning(files[0])
    name = FormatGuesser("corpus", CORPUS_FORMATS).guess(beginning)
    if name is None and len(files) == 1:
        yield from _read_list(files[0])
        return
    if name is None:
        raise PreflightError(
            f"the format of the corpus {path} is unknown; accepted: {', '.join(CORPUS_FORMATS)}, "
            "or a file with one doc_id per line"
        )
    for unit in list_units(
        CorpusConfig(path=path, format=name, fields=_any_field(beginning, name))
    ):
        for batch in read_unit(unit):
            yield from map(str.encode, batch.doc_ids)


def _any_field(beginning: Beginning, name: str) -> tuple[str, ...] | None:
    """A field that JSON docs have, where they lack the usual ones: their texts are not read."""
    keys = list(beginning.record) if name == "jsonl" else ["contents"]
    return None if "contents" in keys else tuple(key for key in keys if key != "id")[:1] or None


def _read_list(url: str) -> Iterator[bytes]:
    with errors_as(PreflightError, url), open_stream(url) as file:
        for line in file:
            if doc_id := line.strip():
                yield doc_id


def _beginning(url: str) -> Beginning:
    if storage.is_folder(url) or not storage.exists(url):
        raise PreflightError(f"there is no file {url}")
    return Beginning(url)


def _read_first_stage(url: str, hints: FileHints, rejects: Rejects | None) -> dict[bytes, Hashes]:
    order = read_run(url, hints=hints.run, rejects=rejects).order
    return {
        query_id.encode(): _hashes(map(str.encode, doc_ids)) for query_id, doc_ids in order.items()
    }


def _hashes(ids: Iterable[bytes]) -> Hashes:
    """The sorted hashes of ids."""
    return np.unique(np.fromiter(map(hash, ids), np.int64))
