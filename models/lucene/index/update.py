"""Updates an index to a changed corpus: only new and changed docs are analyzed.

Docs that were removed or changed are deleted, an index of the new and changed ones is added, and all segments are
merged into one. The merge drops deleted docs from Lucene's statistics, so scores and ranking are those of an index that
is built anew.
(Anserini's own `-append` loses the docs that an index holds.)
"""

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa

from beamrank.formats.corpora import CorpusConfig
from beamrank.progress import Progress
from beamrank.storage import files as storage
from models.lucene import jvm
from models.lucene.index.cache import local_index
from models.lucene.index.documents import anserini_version, describe_index, run_anserini, write_docs
from models.lucene.index.info import IndexInfo, needs_building, read_index_info, read_written_info
from models.lucene.index.stored_docs import DOCS_NAME, EarlierDocs

# Where more of the docs changed, an index is built anew: the merge would not pay.
_MOST_CHANGED = 0.5
_CLASSES = ("store.FSDirectory", "index.IndexWriter", "index.IndexWriterConfig", "index.Term", "search.TermQuery")


def is_outdated(url: str, corpus_digest: str) -> bool:
    """Whether beamrank built an index from another state of the corpus, or from another corpus."""
    info = None if needs_building(url) else read_written_info(url)
    return info is not None and info.corpus_digest not in (None, corpus_digest)


def update_docs(
    corpus: CorpusConfig, url: str, folder: Path, threads: int, progress: Progress, max_bad_rows: int
) -> IndexInfo | None:
    """Makes the updated `index` in a new folder; the index at `url` stays as it is.

    Args:
        corpus: as it is now.
        url: the index of its earlier state, local or remote.
        folder: where to work.
        threads: how many threads Lucene uses.
        progress: receives how many docs have been read.
        max_bad_rows: how many rows of the corpus may be unusable.

    Returns:
        None where an index must be built anew: most docs changed, another Anserini built the index, or the record of
        its docs is missing or damaged.

    Raises:
        DataError, BeamrankError: as `index_docs`.
    """
    info = read_index_info(url)
    index = folder / "index"
    index.mkdir(parents=True)
    try:
        storage.download(storage.join(url, DOCS_NAME), str(index / DOCS_NAME))
        earlier = EarlierDocs(index)
    except (OSError, pa.ArrowInvalid):
        return None
    reading = write_docs(corpus, folder / "added" / "docs", threads, progress, max_bad_rows, earlier.changed)
    superseded = earlier.superseded()
    if info.anserini != anserini_version() or reading.written + len(superseded) > _MOST_CHANGED * reading.docs:
        return None
    _link(Path(local_index(url, info.digest).folder), index, info.files)
    added = folder / "added"
    if reading.written:
        run_anserini(added, threads, reading.written)
    docs = jvm.call(_merge, str(index), superseded, str(added / "index") if reading.written else None)
    return describe_index(corpus, index, reading, docs)


def _link(source: Path, target: Path, names: Any) -> None:
    """Lucene never writes into a file that it has finished, so a link is as good as a copy."""
    for name in names:
        try:
            os.link(source / name, target / name)
        except OSError:
            shutil.copyfile(source / name, target / name)


def _merge(folder: str, superseded: list[str], added: str | None) -> int:
    """Deletes docs of an index and adds another index to it, on the thread that owns Java.

    Returns:
        How many docs it holds then.
    """
    import jnius

    lucene = {name: jnius.autoclass(f"org.apache.lucene.{name}") for name in _CLASSES}
    paths = jnius.autoclass("java.nio.file.Paths")
    directories = [lucene["store.FSDirectory"].open(paths.get(each)) for each in (folder, added) if each is not None]
    writer = lucene["index.IndexWriter"](directories[0], lucene["index.IndexWriterConfig"]())
    try:
        for doc_id in superseded:
            # Not the term itself: of the two methods of this name, pyjnius takes the one for queries.
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
