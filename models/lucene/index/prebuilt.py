"""pyserini's prebuilt indexes by their names: downloaded, checked and unpacked once a machine."""

import difflib
import hashlib
import json
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from beamrank.errors import PreflightError
from beamrank.progress import Progress
from beamrank.storage import files as storage
from models.checkpoints.disk_cache import add_entry, cache_folder, exclusive, find_entry
from models.lucene import jvm
from models.lucene.index.info import require_index

_KIND = "indexes"
_TABLES = "prebuilt-indexes/"


class PrebuiltIndex(NamedTuple):
    """An archive with a Lucene index, as Anserini's tables describe it."""

    name: str
    url: str
    md5: str
    compressed_bytes: int

    @property
    def entry(self) -> str:
        """The name of its entry in the cache: its content's."""
        return f"md5-{self.md5}"

    @property
    def folder(self) -> str:
        """The folder that holds it when it was fetched."""
        return str(cache_folder(_KIND) / self.entry)


def find_prebuilt(name: str) -> PrebuiltIndex:
    """An index by its name, from the tables in the package pyserini, which is not imported.

    Raises:
        PreflightError: pyserini is not installed, or there is no such index for BM25.
    """
    known: dict[str, PrebuiltIndex] = {}
    with zipfile.ZipFile(jvm.anserini_jar()) as jar:
        for table in jar.namelist():
            if table.startswith(_TABLES) and table.endswith(".json"):
                for row in json.loads(jar.read(table)):
                    if row["type"] == "inverted":
                        known[row["name"]] = PrebuiltIndex(
                            row["name"], row["urls"][0], row["md5"], row["compressed_size"]
                        )
    if name not in known:
        near = difflib.get_close_matches(name, known, 5, 0.4) or sorted(known)[:5]
        raise PreflightError(
            f"pyserini has no prebuilt index {name!r} for BM25. Some of its {len(known)}: {', '.join(near)}"
        )
    return known[name]


def fetch_prebuilt(index: PrebuiltIndex, progress: Progress) -> str:
    """The folder of an index, which is downloaded if this machine does not have it.

    Raises:
        PreflightError: it cannot be downloaded, is not the archive that its table names, or holds no Lucene index.
    """

    def fetch(folder: Path) -> str:
        progress.note(f"downloading the index {index.name} ({index.compressed_bytes / 1e9:.1f} GB) from {index.url}")
        archive = folder / "archive"
        storage.download(index.url, str(archive))
        with open(archive, "rb") as file:
            found = hashlib.file_digest(file, "md5").hexdigest()
        if found != index.md5:
            raise PreflightError(
                f"{index.url} is not the index that pyserini names: its MD5 is {found}, not {index.md5}. Run the same "
                "command again; if the message stays, the archive was replaced"
            )
        _unpack(archive, folder)
        archive.unlink()
        require_index(str(folder))
        return index.entry

    try:
        with exclusive(cache_folder(_KIND) / f".{index.entry}.lock"):
            return str(find_entry(_KIND, index.entry) or add_entry(_KIND, index.entry, fetch))
    except (OSError, tarfile.TarError, EOFError) as error:
        raise PreflightError(f"cannot fetch the index {index.name} from {index.url}: {error}") from error


def _unpack(archive: Path, folder: Path) -> None:
    """Moves the files of an archive, which are below one folder of it, into a folder; nothing else is written.

    Raises:
        PreflightError: it holds something other than files and folders.
    """
    unpacked = folder / "unpacked"
    with tarfile.open(archive) as content:
        for member in content:
            if not (member.isfile() or member.isdir()):
                raise PreflightError(
                    f"the archive {archive} holds {member.name!r}, which is neither a file nor a folder"
                )
            # Refuses paths that lead out of the folder.
            content.extract(member, unpacked, filter="data")
    for path in sorted(unpacked.rglob("*")):
        if path.is_file():
            path.rename(folder / path.name)
    shutil.rmtree(unpacked)
