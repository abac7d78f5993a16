"""pyserini's indexes and topics by their names: downloaded, checked and unpacked once a machine.

The names come from the files of the package pyserini, which is not imported, and from Anserini.
"""

import ast
import difflib
import hashlib
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar

from beamrank.errors import PreflightError
from beamrank.notes import Progress
from beamrank.sources import Part
from beamrank.storage import files as storage
from beamrank.storage.disk_cache import cache_folder, fetched
from beamrank.storage.documents import SHORT, sha256
from models.lucene import jvm
from models.lucene.index import CACHE_KIND, require_index

_INDEX_TABLES = "prebuilt-indexes/"
_TOPICS = "topics"
_TOPICS_URL = "https://raw.githubusercontent.com/castorini/anserini-tools/master/topics-and-qrels/"
_Named = TypeVar("_Named")


def fetch_part(name: str, part: Part, progress: Progress | None, *_: object) -> str:
    """As `beamrank.sources.fetch_part`: an index, or the file of topics."""
    if part == "queries":
        return fetch_topics(name)
    if part != "index":
        raise PreflightError(f"prebuilt:{name} are topics, and no {part}: give a file")
    index = find_prebuilt(name)
    return index.folder if progress is None else fetch_prebuilt(index, progress)


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
        return str(cache_folder(CACHE_KIND) / self.entry)


def find_prebuilt(name: str) -> PrebuiltIndex:
    """An index for BM25 by its name."""
    with zipfile.ZipFile(jvm.anserini_jar()) as jar:
        tables = [
            member
            for member in jar.namelist()
            if member.startswith(_INDEX_TABLES) and member.endswith(".json")
        ]
        rows = [
            row
            for table in tables
            for row in json.loads(jar.read(table))
            if row["type"] == "inverted"
        ]
    indexes = {
        row["name"]: PrebuiltIndex(row["name"], row["urls"][0], row["md5"], row["compressed_size"])
        for row in rows
    }
    return _named(indexes, name, f"prebuilt index {name!r} for BM25")


def _named(entries: Mapping[str, _Named], name: str, what: str) -> _Named:
    if name not in entries:
        near = difflib.get_close_matches(name, entries, 5, 0.4) or sorted(entries)[:5]
        raise PreflightError(
            f"pyserini has no {what}. Some of its {len(entries)}: {', '.join(near)}"
        )
    return entries[name]


def fetch_prebuilt(index: PrebuiltIndex, progress: Progress) -> str:
    """The folder of an index, which is downloaded if this machine does not have it.

    Raises:
        PreflightError: it cannot be downloaded, is not the archive that its table names, or holds
            no Lucene index.
    """

    def fetch(folder: Path) -> None:
        progress.note(
            f"downloading the index {index.name} ({index.compressed_bytes / 1e9:.1f} GB) from "
            f"{index.url}"
        )
        archive = folder / "archive"
        storage.download(index.url, str(archive))
        with open(archive, "rb") as file:
            md5 = hashlib.file_digest(file, "md5").hexdigest()
        if md5 != index.md5:
            raise PreflightError(
                f"{index.url} is not the index that pyserini names: its MD5 is {md5}, not "
                f"{index.md5}. Run the same command again; if the message stays, the archive was "
                "replaced"
            )
        _unpack(archive, folder)
        archive.unlink()
        require_index(str(folder))

    return str(_fetched(CACHE_KIND, index.entry, fetch, f"the index {index.name} from {index.url}"))


def _fetched(kind: str, key: str, fetch: Callable[[Path], None], what: str) -> Path:
    """An entry of the cache, which is fetched if this machine does not have it."""
    try:
        return fetched(kind, key, fetch)
    except (OSError, tarfile.TarError, EOFError) as error:
        raise PreflightError(f"cannot fetch {what}: {error}") from error


def _unpack(archive: Path, folder: Path) -> None:
    """Copies the files of an archive, which are below one folder of it, into a folder; nothing else
    is written.
    """
    with tarfile.open(archive) as content:
        for member in content:
            path = PurePosixPath(member.name)
            if ".." in path.parts or not (member.isfile() or member.isdir()):
                raise tarfile.ExtractError(
                    f"it holds {member.name!r}, which is neither a file nor a folder below its own"
                )
            file = content.extractfile(member)
            if file is not None:
                with file, (folder / path.name).open("wb") as copy:
                    shutil.copyfileobj(file, copy)


def fetch_topics(name: str) -> str:
    """The file of some topics, which is downloaded once a machine. Anserini keeps no checksums of
    them.
    """
    base = topics_file_name(name)
    url = _TOPICS_URL + base
    key = sha256(url.encode())[:SHORT]

    def fetch(folder: Path) -> None:
        storage.download(url, str(folder / base))

    return str(_fetched(_TOPICS, key, fetch, f"the topics {name} from {url}") / base)


def topics_file_name(name: str) -> str:
    """The name of the file of some topics."""
    files = jvm.call(_topics_files)
    named = {
        known: files[constant]
        for known, constant in _topics_constants().items()
        if constant in files
    }
    return _named(named, name, f"topics {name!r}")


def _topics_constants() -> dict[str, str]:
    """The names of topics, each with the constant of Anserini that it stands for, from pyserini's
    source.
    """
    source = (jvm.pyserini_folder() / "search" / "_base.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="topics_mapping")], value=ast.Dict() as table):
                mapping: dict[str, str] = ast.literal_eval(table)
                return mapping
    raise PreflightError(
        "this version of pyserini keeps the names of its topics elsewhere: give topics.path a file"
    )


def _topics_files() -> dict[str, str]:
    """The file of each constant of Anserini's class of topics; on the thread that owns Java."""
    import jnius

    topics = jnius.autoclass("io.anserini.search.topicreader.Topics")
    return {topic.name(): topic.path for topic in topics.values()}
