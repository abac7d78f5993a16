"""An index on this machine: its own folder, or a copy of a remote one."""

from pathlib import Path

from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import SHORT
from models.checkpoints.disk_cache import add_entry, cache_folder, discard_entry, exclusive, find_entry
from models.lucene.index.content import LocalIndex, describe_files, files_digest, read_content
from models.lucene.index.info import INFO_NAME, read_index_info

_KIND = "indexes"


def local_index(url: str, index_digest: str) -> LocalIndex:
    """A local folder with an index: the folder itself, or a copy of a remote one, made once a machine.

    Copies are in `indexes/DIGEST` below BEAMRANK_CACHE (`models.checkpoints.disk_cache`). A damaged copy is made again.

    Args:
        url: the index folder.
        index_digest: `IndexInfo.digest` of it.

    Raises:
        PreflightError: the index does not have this digest any more, or the copy cannot be written.
    """
    if not storage.is_remote(url):
        found = read_content(storage.absolute(url))
        _check_digest(url, found.digest, index_digest)
        return found

    def fetch(folder: Path) -> str:
        _download(url, index_digest, folder)
        return index_digest

    try:
        with exclusive(cache_folder(_KIND) / f".{index_digest}.lock"):
            copy = find_entry(_KIND, index_digest)
            if copy is not None and read_content(str(copy)).digest != index_digest:
                discard_entry(copy)
                copy = None
            return read_content(str(copy or add_entry(_KIND, index_digest, fetch)))
    except OSError as error:
        raise PreflightError(f"cannot copy the index {url} to {cache_folder(_KIND)}: {error}") from error


def _download(url: str, index_digest: str, folder: Path) -> None:
    info = read_index_info(url)
    for name in [*info.files, INFO_NAME] if info.corpus_digest else info.files:
        storage.download(storage.join(url, name), str(folder / name))
    _check_digest(url, files_digest(describe_files(str(folder))), index_digest)


def _check_digest(url: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise PreflightError(
            f"the index {url} is not, or no longer, the one with digest {wanted[:SHORT]} that this run was planned "
            "with. Start the run again, or build the index again"
        )
