"""Indexes the docs of a corpus, with Anserini in another process."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from beamrank.errors import BeamrankError, DataError
from beamrank.formats.corpora import CorpusConfig, CorpusUnit, DocBatch, duplicate_doc, list_units, place, read_unit
from beamrank.progress import Progress
from beamrank.records import BadRow
from beamrank.storage.documents import hashes64
from models.lucene import jvm
from models.lucene.index.content import describe_files, files_digest
from models.lucene.index.info import IndexInfo
from models.lucene.index.stored_docs import StoredDocs

_KEPT_EXAMPLES = 10
_COUNTER = re.compile(r" - (indexed|unindexable|empty|skipped|errors): +([\d,]+)$", re.MULTILINE)
_LOG_TAIL_CHARS = 2000


def index_docs(corpus: CorpusConfig, folder: Path, threads: int, progress: Progress, max_bad_rows: int) -> IndexInfo:
    """Builds `index` in a new folder; other files in the folder can be deleted afterwards.

    Args:
        corpus: the docs.
        folder: where to work; takes the size of the corpus and about twice that of the index.
        threads: how many threads Lucene uses.
        progress: receives how many docs have been read.
        max_bad_rows: how many rows of the corpus may be unusable.

    Raises:
        DataError: a doc_id occurs twice, too many rows are unusable, or no doc has text.
        BeamrankError: Anserini failed.
    """
    reading = write_docs(corpus, folder / "docs", threads, progress, max_bad_rows)
    counts = run_anserini(folder, threads, reading.docs)
    return describe_index(corpus, folder / "index", reading, counts["indexed"])


def describe_index(corpus: CorpusConfig, index: Path, reading: "Reading", indexed: int) -> IndexInfo:
    """Writes the docs that an index holds into its folder, and describes it.

    Raises:
        DataError: none of them has text.
    """
    if not indexed:
        raise DataError(f"no doc of the corpus {corpus.path} has text ({reading.docs} docs), so nothing can be found")
    reading.stored.write(index)
    files = describe_files(str(index))
    return IndexInfo(
        digest=files_digest(files),
        files=files,
        docs=indexed,
        empty_docs=reading.docs - indexed,
        bad_rows=reading.bad_rows,
        bad_examples=tuple(reading.bad_examples),
        anserini=anserini_version(),
    )


def anserini_version() -> str:
    """The version of Anserini that is installed."""
    return jvm.anserini_jar().name.removeprefix("anserini-").removesuffix("-fatjar.jar")


@dataclass
class Reading:
    """What was read of a corpus; `written` docs go to Anserini."""

    docs: int = 0
    written: int = 0
    bad_rows: int = 0
    bad_examples: list[BadRow] = field(default_factory=list)
    stored: StoredDocs = field(default_factory=StoredDocs)

    def add(self, batch: DocBatch) -> None:
        """Takes docs."""
        self.docs += len(batch.doc_ids)
        self.stored.add(batch)
        self.bad_rows += len(batch.bad)
        self.bad_examples += batch.bad[: _KEPT_EXAMPLES - len(self.bad_examples)]


def write_docs(
    corpus: CorpusConfig,
    folder: Path,
    files: int,
    progress: Progress,
    max_bad_rows: int,
    wanted: Callable[[DocBatch], npt.NDArray[np.bool_]] | None = None,
) -> Reading:
    """Writes the docs as Anserini's JsonCollection reads them; it indexes one file a thread.

    Args:
        corpus: is read once.
        folder: is made.
        files: how many files are written.
        progress: receives how many docs have been read.
        max_bad_rows: how many rows of the corpus may be unusable.
        wanted: which docs of a batch are written, if not all.

    Raises:
        DataError: a doc_id occurs twice, or too many rows are unusable.
    """
    folder.mkdir(parents=True)
    units = list_units(corpus)
    reading = Reading()
    with ExitStack() as stack:
        names = [folder / f"{number:03}.jsonl" for number in range(files)]
        outputs = [stack.enter_context(open(name, "w", encoding="utf-8")) for name in names]
        for number, batch in enumerate(_batches(units)):
            reading.add(batch)
            if reading.bad_rows > max_bad_rows:
                raise DataError(_too_many_bad_rows(corpus, reading, max_bad_rows))
            rows = range(len(batch.doc_ids)) if wanted is None else np.flatnonzero(wanted(batch)).tolist()
            lines = [json.dumps({"id": batch.doc_ids[row], "contents": batch.texts[row]}) for row in rows]
            outputs[number % files].write("".join(f"{line}\n" for line in lines))
            reading.written += len(lines)
            progress.update(reading.docs, None, "docs")
    _check_unique(units, reading.stored.id_hashes)
    return reading


def _batches(units: list[CorpusUnit]) -> Iterator[DocBatch]:
    for unit in units:
        yield from read_unit(unit)


def _too_many_bad_rows(corpus: CorpusConfig, reading: Reading, limit: int) -> str:
    examples = "".join(f"\n  {bad.place}: {bad.reason}" for bad in reading.bad_examples)
    return (
        f"more than max_bad_rows ({limit}) rows of the corpus {corpus.path} cannot be used, after {reading.docs} docs "
        f"that can. Correct them, or raise the limit. The first:{examples}"
    )


def _check_unique(units: list[CorpusUnit], hashes: npt.NDArray[np.uint64]) -> None:
    ordered = np.sort(hashes)
    repeated = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    if not repeated:
        return
    places: dict[str, str] = {}
    for batch in _batches(units):
        for row in np.flatnonzero(np.isin(hashes64(batch.doc_ids), np.array(sorted(repeated), np.uint64))):
            doc_id, here = batch.doc_ids[row], place(units[batch.unit], batch.positions[row])
            if doc_id in places:
                raise DataError(duplicate_doc(doc_id, places[doc_id], here))
            places[doc_id] = here


def run_anserini(folder: Path, threads: int, docs: int) -> dict[str, int]:
    """Indexes the JSONL files of the folder `docs`, which hold this many docs, into `index`; both are in `folder`.

    Returns:
        How many docs were `indexed`, and how many were `empty`.

    Raises:
        BeamrankError: Anserini failed, or lost a doc.
    """
    heap_megabytes = jvm.heap_bytes() >> 20
    command = [
        *[str(jvm.java_home().java), f"-Xmx{heap_megabytes}m", "-Duser.language=en", "-Duser.country=US"],
        *["-cp", str(jvm.anserini_jar()), "io.anserini.index.IndexCollection", "-collection", "JsonCollection"],
        *["-generator", "DefaultLuceneDocumentGenerator", "-input", "docs", "-index", "index"],
        *["-threads", str(threads), "-memoryBuffer", str(heap_megabytes // 3), "-optimize"],
    ]
    log_path = folder / "log"
    environment = os.environ | jvm.UTF8_NAMES
    with open(log_path, "wb") as log:
        done = subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False)
    text = log_path.read_text(encoding="utf-8", errors="replace")
    counts = {name: int(number.replace(",", "")) for name, number in _COUNTER.findall(text)}
    if done.returncode or sum(counts.get(name, 0) for name in ("indexed", "empty")) != docs:
        raise BeamrankError(
            f"Anserini could not index all {docs} docs (exit code {done.returncode}; {counts}). {' '.join(command)} "
            f"ended with:\n{text[-_LOG_TAIL_CHARS:]}"
        )
    return counts
