"""Builds and updates indexes with Anserini, in a process of its own. An index appears whole or not
at all.

An update analyzes new and changed docs only: removed and changed ones are deleted, an index of the
new and changed ones is added, and all segments are merged into one. The merge drops deleted docs
from Lucene's statistics, so an index that is built anew gives the same scores and ranking.
(Anserini's own `-append` loses the docs that an index holds.)
"""

import json
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beamrank.errors import BeamrankError, DataError
from beamrank.formats.corpora import (
    CorpusConfig,
    digest_corpus,
    list_units,
    read_unit,
    text_rules,
)
from beamrank.formats.rejects import Rejects
from beamrank.formats.texts.units import CorpusUnit, DocBatch, duplicate_doc
from beamrank.notes import SILENT, Progress
from beamrank.storage import files as storage
from beamrank.storage.disk_cache import cache_folder, exclusive
from beamrank.storage.documents import SHORT, hashes64, sha256
from models.lucene import jvm
from models.lucene.index import (
    CACHE_KIND,
    INFO_NAME,
    PLAIN,
    UPLOADING_NAME,
    IndexInfo,
    IndexKind,
    check_index,
    check_kind,
    describe_files,
    files_digest,
    holds_doc_vectors,
    is_outdated,
    local_index,
    needs_building,
    read_index_info,
)

DOCS_NAME = "beamrank.docs.parquet"
_DOCS = pa.schema([("doc_id", pa.string()), ("text_hash", pa.uint64())])
# Where more of the docs changed, an index is built anew: the merge would not pay.
_MOST_CHANGED = 0.5
_KEPT_EXAMPLES = 10
_COUNTER = re.compile(r" - (indexed|unindexable|empty|skipped|errors): +([\d,]+)$", re.MULTILINE)
_LOG_TAIL_CHARS = 2000
_CLASSES = (
    "store.FSDirectory",
    "index.IndexWriter",
    "index.IndexWriterConfig",
    "index.Term",
    "search.TermQuery",
)


def build_index(
    corpus: CorpusConfig,
    url: str,
    threads: int,
    progress: Progress = SILENT,
    max_bad_rows: int = 100,
    update: bool = False,
    kind: IndexKind = PLAIN,
) -> IndexInfo:
    """Builds the index of a corpus, or keeps an existing one of this corpus.

    It is built in a hidden folder beside its path, under a lock, and renamed; one on an object
    store is built in the cache (BEAMRANK_CACHE) and uploaded.

    Args:
        corpus: the docs. Their ids must be unique.
        url: the folder to build, local or remote.
        threads: how many threads Lucene uses.
        progress: receives how many docs have been read.
        max_bad_rows: how many rows of the corpus may be unusable.
        update: an index of an earlier state of the corpus is updated, not refused. It is built anew
            where most docs changed, a different Anserini built it, or the record of its docs is
            missing or damaged.
        kind: how texts are indexed.

    Raises:
        PreflightError: the folder holds something else, or an index of another corpus or kind, or
            its parent cannot be written.
        DataError: a doc_id occurs twice, too many rows are unusable, no doc has text, or the corpus
            changed meanwhile.
        BeamrankError: Anserini failed, or the disk is full.
    """
    # The target of a link, so that the link stays.
    url = storage.resolved(url)
    base = Path(storage.parent(url)) / f".{storage.name(url)}"
    if storage.is_remote(url):
        base = cache_folder(CACHE_KIND) / f".{sha256(url.encode())[:SHORT]}"
    with exclusive(base.with_name(f"{base.name}.lock")):
        digested = digest_corpus(corpus)
        outdated = update and is_outdated(url, digested.digest)
        if not needs_building(url) and not outdated:
            return check_index(url, digested.digest, kind, text_rules(corpus))
        prefix = f"{base.name}.building-"
        for stale in base.parent.iterdir():
            if stale.name.startswith(prefix):
                shutil.rmtree(stale, ignore_errors=True)
        build = _Build(
            corpus, base.with_name(prefix + uuid.uuid4().hex), threads, progress, max_bad_rows, kind
        )
        try:
            with digested.unchanged():
                info = build.update(url) if outdated else None
                of_corpus = {"corpus_digest": digested.digest, "text_rules": text_rules(corpus)}
                info = (info or build.anew()).model_copy(update=of_corpus)
            _install(build.folder, url, info)
        except OSError as error:
            raise BeamrankError(f"cannot write the index {url}: {error}") from error
        finally:
            shutil.rmtree(build.folder, ignore_errors=True)
    return info


def _install(folder: Path, url: str, info: IndexInfo) -> None:
    """Publishes `index` of the folder in which it was built; an outdated one is moved there."""
    index = folder / "index"
    if not storage.is_remote(url):
        storage.replace(str(index / INFO_NAME), info.to_json())
        if not storage.is_empty(url):
            Path(url).rename(folder / "outdated")
        index.rename(url)
    else:
        _upload(index, url, info)


def _upload(index: Path, url: str, info: IndexInfo) -> None:
    """A marker shows that the index is incomplete until its last file is uploaded."""
    storage.replace(storage.join(url, UPLOADING_NAME), b"")
    for name in set(storage.sizes_bytes(url)) - {UPLOADING_NAME}:
        storage.remove(storage.join(url, name))
    for name in [*info.files, DOCS_NAME]:
        storage.upload(str(index / name), storage.join(url, name))
    storage.replace(storage.join(url, INFO_NAME), info.to_json())
    storage.remove(storage.join(url, UPLOADING_NAME))


@dataclass
class _Docs:
    """The docs that were read, about 30 bytes each; `written` ones go to Anserini."""

    rejects: Rejects
    written: int = 0
    ids: list[pa.Array] = field(default_factory=list)
    text_hashes: list[pa.Array] = field(default_factory=list)
    id_hashes: list[npt.NDArray[np.uint64]] = field(default_factory=list)
    count: int = 0

    def add(self, batch: DocBatch) -> None:
        self.count += len(batch.doc_ids)
        self.ids.append(pa.array(batch.doc_ids, pa.string()))
        self.text_hashes.append(pa.array(hashes64(batch.texts)))
        self.id_hashes.append(hashes64(batch.doc_ids))

    def write(self, folder: Path) -> None:
        columns = [
            pa.chunked_array(self.ids, pa.string()),
            pa.chunked_array(self.text_hashes, pa.uint64()),
        ]
        table = pa.table(columns, schema=_DOCS)
        pq.write_table(table, folder / DOCS_NAME, compression="zstd", write_page_checksum=True)


class _IndexedDocs:
    """The docs of an index that is updated: their ids and the hashes of their texts."""

    def __init__(self, folder: Path) -> None:
        docs = pq.read_table(
            folder / DOCS_NAME, schema=_DOCS, page_checksum_verification=True
        ).combine_chunks()
        self._ids: Any = docs["doc_id"]
        hashes = hashes64(self._ids.to_pylist())
        self._order = np.argsort(hashes, kind="stable")
        self._sorted = hashes[self._order]
        self._text_hashes = docs["text_hash"].to_numpy()
        self._kept = np.zeros(len(hashes), bool)

    def changed(self, batch: DocBatch) -> npt.NDArray[np.bool_]:
        """Which docs are new or have a different text. bool[n]."""
        if not len(self._kept):
            return np.ones(len(batch.doc_ids), bool)
        places = np.searchsorted(self._sorted, hashes64(batch.doc_ids))
        rows = self._order[np.minimum(places, len(self._order) - 1)]
        same_id = pc.equal(self._ids.take(rows), pa.array(batch.doc_ids, pa.string())).to_numpy()
        same: npt.NDArray[np.bool_] = same_id & (self._text_hashes[rows] == hashes64(batch.texts))
        self._kept[rows[same]] = True
        return ~same

    def superseded(self) -> list[str]:
        """The ids of docs that the corpus lacks now, or has with a different text, once `changed`
        saw all batches.
        """
        return list(self._ids.filter(pa.array(~self._kept)).to_pylist())


@dataclass(frozen=True)
class _Build:
    """The work in a folder, which takes the size of the corpus and about twice the index."""

    corpus: CorpusConfig
    folder: Path
    threads: int
    progress: Progress
    max_bad_rows: int
    kind: IndexKind

    def anew(self) -> IndexInfo:
        """Builds `index` from all docs."""
        shutil.rmtree(self.folder, ignore_errors=True)
        docs = self._write_docs(self.folder / "docs")
        return self._describe(
            docs, run_anserini(self.folder, self.threads, docs.count, self.kind)["indexed"]
        )

    def update(self, url: str) -> IndexInfo | None:
        """Makes the updated `index`; the one at `url` stays as it is. None where it must be built
        anew.
        """
        info = read_index_info(url)
        check_kind(url, info, self.kind)
        index, added = self.folder / "index", self.folder / "added"
        index.mkdir(parents=True)
        try:
            storage.download(storage.join(url, DOCS_NAME), str(index / DOCS_NAME))
            indexed = _IndexedDocs(index)
        except (OSError, pa.ArrowInvalid):
            return None
        docs = self._write_docs(added / "docs", indexed.changed)
        superseded = indexed.superseded()
        if (
            info.anserini != _anserini_version()
            or docs.written + len(superseded) > _MOST_CHANGED * docs.count
        ):
            return None
        _link(Path(local_index(url, info.digest).folder), index, info.files)
        if docs.written:
            kind = self.kind._replace(doc_vectors=holds_doc_vectors(url, info.files))
            run_anserini(added, self.threads, docs.written, kind)
        count = jvm.call(
            _merge, str(index), superseded, str(added / "index") if docs.written else None
        )
        return self._describe(docs, count)

    def _write_docs(
        self, folder: Path, selected: Callable[[DocBatch], npt.NDArray[np.bool_]] | None = None
    ) -> _Docs:
        """Writes docs as Anserini's JsonCollection reads them: it indexes one file a thread."""
        folder.mkdir(parents=True)
        units, docs = list_units(self.corpus), _Docs(Rejects("docs", self.max_bad_rows))
        with ExitStack() as stack:
            names = [folder / f"{number:03}.jsonl" for number in range(self.threads)]
            outputs = [stack.enter_context(open(name, "w", encoding="utf-8")) for name in names]
            for number, batch in enumerate(_batches(units, docs.rejects)):
                docs.add(batch)
                rows = (
                    range(len(batch.doc_ids))
                    if selected is None
                    else np.flatnonzero(selected(batch)).tolist()
                )
                lines = [
                    json.dumps({"id": batch.doc_ids[row], "contents": batch.texts[row]})
                    for row in rows
                ]
                outputs[number % self.threads].write("".join(f"{line}\n" for line in lines))
                docs.written += len(lines)
                self.progress.update(docs.count, None, "docs")
        _check_unique(units, docs.id_hashes)
        return docs

    def _describe(self, docs: _Docs, indexed: int) -> IndexInfo:
        """Writes the record of its docs into `index`, and describes it."""
        if not indexed:
            raise DataError(
                f"no doc of the corpus {self.corpus.path} has text ({docs.count} docs), so "
                "nothing can be found"
            )
        docs.write(self.folder / "index")
        files = describe_files(str(self.folder / "index"))
        return IndexInfo(
            digest=files_digest(files),
            files=files,
            docs=indexed,
            empty_docs=docs.count - indexed,
            bad_rows=docs.rejects.count,
            bad_examples=tuple(row for _, row in docs.rejects.rows[:_KEPT_EXAMPLES]),
            anserini=_anserini_version(),
            language=self.kind.language,
        )


def _batches(units: Iterable[CorpusUnit], rejects: Rejects | None = None) -> Iterator[DocBatch]:
    for unit in units:
        yield from read_unit(unit, rejects)


def _check_unique(units: list[CorpusUnit], id_hashes: list[npt.NDArray[np.uint64]]) -> None:
    ordered = np.sort(np.concatenate([*id_hashes, np.empty(0, np.uint64)]))
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if len(repeated):
        _refuse_repeated(units, repeated)


def _refuse_repeated(units: list[CorpusUnit], repeated: npt.NDArray[np.uint64]) -> None:
    places: dict[str, str] = {}
    for batch in _batches(units):
        for row in np.flatnonzero(np.isin(hashes64(batch.doc_ids), repeated)):
            doc_id, here = batch.doc_ids[row], units[batch.unit].place(batch.positions[row])
            if doc_id in places:
                raise DataError(duplicate_doc(doc_id, places[doc_id], here))
            places[doc_id] = here


def _anserini_version() -> str:
    return jvm.anserini_jar().name.removeprefix("anserini-").removesuffix("-fatjar.jar")


def run_anserini(folder: Path, threads: int, docs: int, kind: IndexKind = PLAIN) -> dict[str, int]:
    """Indexes the JSONL files of the folder `docs`, which hold this many docs, into `index`; both
    are in `folder`.

    Returns:
        How many docs were `indexed`, and how many were `empty`.
    """
    heap_megabytes = jvm.heap_bytes() >> 20
    language = (
        ["-pretokenized"] if kind.language == "pretokenized" else ["-language", kind.language]
    )
    command = [
        str(jvm.java_home().java),
        f"-Xmx{heap_megabytes}m",
        *jvm.NO_OWN_FILES,
        "-Duser.language=en",
        "-Duser.country=US",
        "-cp",
        str(jvm.anserini_jar()),
        "io.anserini.index.IndexCollection",
        "-collection",
        "JsonCollection",
        "-generator",
        "DefaultLuceneDocumentGenerator",
        "-input",
        "docs",
        "-index",
        "index",
        "-threads",
        str(threads),
        "-memoryBuffer",
        str(heap_megabytes // 3),
        "-optimize",
        *language,
        *(["-storeDocvectors"] if kind.doc_vectors else []),
    ]
    log_path = folder / "log"
    environment = os.environ | jvm.UTF8_NAMES
    with open(log_path, "wb") as log:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
        )
    text = log_path.read_text(encoding="utf-8", errors="replace")
    counts = {name: int(number.replace(",", "")) for name, number in _COUNTER.findall(text)}
    if done.returncode or sum(counts.get(name, 0) for name in ("indexed", "empty")) != docs:
        raise BeamrankError(
            f"Anserini could not index all {docs} docs (exit code {done.returncode}; {counts}). "
            f"{' '.join(command)} ended with:\n{text[-_LOG_TAIL_CHARS:]}"
        )
    return counts


def _link(source: Path, target: Path, names: Iterable[str]) -> None:
    """Lucene never writes into a file that it has finished, so a link is as good as a copy."""
    for name in names:
        try:
            os.link(source / name, target / name)
        except OSError:
            shutil.copyfile(source / name, target / name)


def _merge(folder: str, superseded: list[str], added: str | None) -> int:
    """Deletes docs of an index and adds an index to it, on the thread that owns Java. Returns the
    number of docs.
    """
    import jnius

    lucene = {name: jnius.autoclass(f"org.apache.lucene.{name}") for name in _CLASSES}
    paths = jnius.autoclass("java.nio.file.Paths")
    directories = [
        lucene["store.FSDirectory"].open(paths.get(part))
        for part in (folder, added)
        if part is not None
    ]
    writer = lucene["index.IndexWriter"](directories[0], lucene["index.IndexWriterConfig"]())
    try:
        for doc_id in superseded:
            # Not the term itself: of the two methods of this name, pyjnius takes the one for
            # queries.
            writer.deleteDocuments(lucene["search.TermQuery"](lucene["index.Term"]("id", doc_id)))
        for directory in directories[1:]:
            writer.addIndexes(directory)
        writer.forceMerge(1)
        writer.commit()
        return int(writer.getDocStats().numDocs)
    finally:
        writer.close()
        for directory in directories:
            directory.close()
