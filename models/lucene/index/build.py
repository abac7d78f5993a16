"""Builds an index under a lock; it appears whole or not at all."""

import shutil
import uuid
from pathlib import Path

from beamrank.errors import BeamrankError
from beamrank.formats.corpora import CorpusConfig, digest_corpus
from beamrank.progress import SILENT, Progress
from beamrank.storage import files as storage
from beamrank.storage.documents import SHORT, sha256
from models.checkpoints.disk_cache import cache_folder, exclusive
from models.lucene.index.documents import index_docs
from models.lucene.index.info import INFO_NAME, UPLOADING_NAME, IndexInfo, check_index, needs_building
from models.lucene.index.stored_docs import DOCS_NAME
from models.lucene.index.update import is_outdated, update_docs


def build_index(
    corpus: CorpusConfig,
    url: str,
    threads: int,
    progress: Progress = SILENT,
    max_bad_rows: int = 100,
    update: bool = False,
) -> IndexInfo:
    """Builds the index of a corpus, or keeps an existing one of this corpus.

    The index appears whole or not at all: it is built in a hidden folder beside its path, under a lock, and renamed;
    one on an object store is built in the cache (BEAMRANK_CACHE) and uploaded.

    Args:
        corpus: the docs. Their ids must be unique.
        url: the folder to build, local or remote.
        threads: how many threads Lucene uses.
        progress: receives how many docs have been read.
        max_bad_rows: how many rows of the corpus may be unusable.
        update: an index of an earlier state of the corpus is updated, or built again (`update_docs`), not refused.

    Raises:
        PreflightError: the folder holds something else, or an index of another corpus, or its parent cannot be written.
        DataError: a doc_id occurs twice, too many rows are unusable, no doc has text, or the corpus changed meanwhile.
        BeamrankError: Anserini failed, or the disk is full.
    """
    # Where a link leads, so that it stays.
    url = storage.resolved(url)
    base = _work_path(url)
    with exclusive(base.with_name(f"{base.name}.lock")):
        digested = digest_corpus(corpus)
        outdated = update and is_outdated(url, digested.digest)
        if not needs_building(url) and not outdated:
            return check_index(url, digested.digest)
        prefix = f"{base.name}.building-"
        for stale in base.parent.iterdir():
            if stale.name.startswith(prefix):
                shutil.rmtree(stale, ignore_errors=True)
        folder = base.with_name(prefix + uuid.uuid4().hex)
        try:
            with digested.unchanged():
                info = update_docs(corpus, url, folder, threads, progress, max_bad_rows) if outdated else None
                if info is None:
                    shutil.rmtree(folder, ignore_errors=True)
                    info = index_docs(corpus, folder, threads, progress, max_bad_rows)
            info = info.model_copy(update={"corpus_digest": digested.digest})
            _install(folder, url, info)
        except OSError as error:
            raise BeamrankError(f"cannot write the index {url}: {error}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return info


def _work_path(url: str) -> Path:
    """The path whose suffixed neighbours are the lock and the folder in which an index is built."""
    if storage.is_remote(url):
        return cache_folder("indexes") / f".{sha256(url.encode())[:SHORT]}"
    return Path(storage.parent(url)) / f".{storage.name(url)}"


def _install(folder: Path, url: str, info: IndexInfo) -> None:
    """Moves `index` out of the folder in which it was built; an outdated one is moved there."""
    index, content = folder / "index", info.to_json()
    if storage.is_remote(url):
        _upload(index, url, info, content)
        return
    storage.replace(str(index / INFO_NAME), content)
    if not storage.is_empty(url):
        Path(url).rename(folder / "outdated")
    index.rename(url)


def _upload(index: Path, url: str, info: IndexInfo, content: bytes) -> None:
    """Uploads an index. A marker shows that it is incomplete until its last file is uploaded."""
    storage.replace(storage.join(url, UPLOADING_NAME), b"")
    for name in set(storage.sizes_bytes(url)) - {UPLOADING_NAME}:
        storage.remove(storage.join(url, name))
    for name in [*info.files, DOCS_NAME]:
        storage.upload(str(index / name), storage.join(url, name))
    storage.replace(storage.join(url, INFO_NAME), content)
    storage.remove(storage.join(url, UPLOADING_NAME))
