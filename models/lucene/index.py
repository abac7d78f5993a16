"""A Lucene index: the hashes of its files, its record `beamrank.json`, checks of both, and local
copies of remote ones.

An index that beamrank builds holds `beamrank.json`. An index without it, such as one of Anserini's
prebuilt ones, is used as it is; the corpus that it was built from is then unknown.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter

from beamrank.errors import BeamrankError, PreflightError
from beamrank.records import BadRow
from beamrank.storage import files as storage
from beamrank.storage.digested import DigestedFile, RewrittenError, digest_file, file_version
from beamrank.storage.disk_cache import cache_folder, discard, fetched
from beamrank.storage.documents import (
    SHORT,
    checked_json,
    checked_values,
    digest,
    sha256,
    validated,
)

INFO_NAME = "beamrank.json"
UPLOADING_NAME = "beamrank.uploading"
CACHE_KIND = "indexes"
_LUCENE_FILE = re.compile(r"segments_[0-9a-z]+|_[0-9a-z]+[._].*")
_LUCENE_MAGIC = bytes.fromhex("3fd76c17")
# Of a file of segments: a name, a version and an id, the number of the file; the version of Lucene
# that wrote it, and the major one that began the index.
_LUCENE_VERSION = re.compile(rb".{4}\x08segments.{20}.[0-9a-z]+([^0-9a-z])(.)(.)(.)", re.DOTALL)
_HEAD_BYTES = 64
# The version of the pinned pyserini, which also reads indexes of the version before.
LUCENE = 9


class IndexKind(NamedTuple):
    """How texts are indexed: for a language (`index.language`), and with or without doc vectors."""

    language: str = "en"
    doc_vectors: bool = False


PLAIN = IndexKind()


class IndexFile(NamedTuple):
    """A file of an index."""

    size_bytes: int
    sha256: str


class IndexInfo(BaseModel):
    """The metadata of an index. All but `digest` and `files` is empty if beamrank did not build it.

    Attributes:
        digest: SHA-256 over the names and contents of Lucene's files.
        files: Lucene's files.
        corpus_digest: `beamrank.formats.corpora.corpus_digest` of the corpus it was built from.
        docs: how many docs can be found.
        empty_docs: docs without text, which cannot.
        bad_rows: rows of the corpus that could not be read.
        bad_examples: the first of them.
        anserini: the version that built it.
        language: for which it was built.
        text_rules: `text_rules` of the corpus.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    digest: str
    files: dict[str, IndexFile]
    corpus_digest: str | None = None
    docs: int | None = None
    empty_docs: int = 0
    bad_rows: int = 0
    bad_examples: tuple[BadRow, ...] = ()
    anserini: str | None = None
    language: str = "en"
    text_rules: int = 1

    def to_json(self) -> bytes:
        """The content of `beamrank.json`."""
        return checked_json(self.model_dump(mode="json"))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the user of this index."""
        if self.corpus_digest is not None:
            return ()
        return (
            "beamrank did not build this index, so nothing shows that it holds the docs of the "
            "corpus; a doc that it finds and the corpus lacks is reported when the texts are "
            "joined",
        )


_INFO = TypeAdapter(IndexInfo)


def lucene_sizes(url: str) -> dict[str, int]:
    """The names and sizes of Lucene's files in a folder, by name."""
    return {
        name: size
        for name, size in sorted(storage.sizes_bytes(url).items())
        if _LUCENE_FILE.fullmatch(name)
    }


def describe_files(url: str) -> dict[str, IndexFile]:
    """The size and content of each of Lucene's files in a folder, local or remote; reads them
    all.
    """
    return {
        name: IndexFile(size, storage.sha256(storage.join(url, name)))
        for name, size in lucene_sizes(url).items()
    }


def files_digest(files: Mapping[str, IndexFile]) -> str:
    """The digest of an index with these files."""
    return digest(sorted((name, file.sha256) for name, file in files.items()))


@dataclass(frozen=True)
class LocalIndex:
    """A local index folder, and Lucene's files in it as they were hashed."""

    folder: str
    files: Mapping[str, IndexFile]
    hashed: Mapping[str, DigestedFile]

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Makes sure that no file is written from the time of its hash to the end of the `with`
        block.

        Raises:
            RewrittenError: a file was written, added or removed.
        """
        try:
            yield
        except BeamrankError:
            # Lucene fails on files that it did not write.
            self._check()
            raise
        self._check()

    def _check(self) -> None:
        changed = lucene_sizes(self.folder).keys() ^ self.hashed.keys() or {
            name for name, file in self.hashed.items() if file.is_rewritten()
        }
        if changed:
            raise RewrittenError(
                f"the index {self.folder} changed while it was searched ({min(changed)} was "
                "written, added or removed), so the hits may come from another index than "
                "the plan's. Nothing was committed from this search, and finished shards are kept. "
                "Run the same command again, which checks the index and resumes"
            )


def _read_local(folder: str) -> LocalIndex:
    """Hashes Lucene's files in a local folder, except files that this machine hashed before in the
    present version.
    """
    record = str(cache_folder("hashed") / f"{sha256(folder.encode())[:SHORT]}.json")
    try:
        before = checked_values(storage.read_bytes(record))["files"]
        before = {name: (version, content) for name, (version, content) in before.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        before = {}
    sizes, hashed = lucene_sizes(folder), {}
    for name in sizes:
        url = storage.join(folder, name)
        if name in before and before[name][0] == file_version(url):
            hashed[name] = DigestedFile(url, *before[name])
        else:
            hashed[name] = digest_file(url)
    current = {name: (file.version, file.sha256) for name, file in hashed.items()}
    if current != before:
        # Where the cache cannot be written, the files are hashed again next time.
        with suppress(OSError):
            storage.replace(record, checked_json({"folder": folder, "files": current}))
    files = {name: IndexFile(sizes[name], file.sha256) for name, file in hashed.items()}
    return LocalIndex(folder, files, hashed)


def local_index(url: str, index_digest: str) -> LocalIndex:
    """A local folder with an index: the folder itself, or a copy of a remote one, made once a
    machine.

    Copies are in `indexes/DIGEST` below BEAMRANK_CACHE. A damaged copy is made again.

    Raises:
        PreflightError: the index does not have this digest any more, or the copy cannot be written.
    """
    if storage.is_remote(url):
        return _local_copy(url, index_digest)
    info = _read_local(storage.absolute(url))
    _check_digest(url, info.files, index_digest)
    return info


def _local_copy(url: str, index_digest: str) -> LocalIndex:
    def fetch(folder: Path) -> None:
        info = read_index_info(url)
        for name in [*info.files, INFO_NAME] if info.corpus_digest else info.files:
            storage.download(storage.join(url, name), str(folder / name))
        _check_digest(url, describe_files(str(folder)), index_digest)

    try:
        copy = fetched(CACHE_KIND, index_digest, fetch)
        info = _read_local(str(copy))
        if files_digest(info.files) != index_digest:
            discard(copy)
            info = _read_local(str(fetched(CACHE_KIND, index_digest, fetch)))
        return info
    except OSError as error:
        raise PreflightError(
            f"cannot copy the index {url} to {cache_folder(CACHE_KIND)}: {error}"
        ) from error


def _check_digest(url: str, files: Mapping[str, IndexFile], expected: str) -> None:
    if files_digest(files) != expected:
        raise PreflightError(
            f"the index {url} is not, or no longer, the one with digest {expected[:SHORT]} that "
            "this run was planned with. Start the run again, or build the index again",
            kind="changed",
        )


def needs_building(url: str) -> bool:
    """Whether an index has to be built: the folder does not exist, or holds only an interrupted
    upload.
    """
    return storage.is_empty(url) or _is_unfinished(storage.sizes_bytes(url))


def _is_unfinished(sizes: Mapping[str, int]) -> bool:
    return UPLOADING_NAME in sizes and INFO_NAME not in sizes


def is_outdated(url: str, corpus_digest: str) -> bool:
    """Whether beamrank built an index from another state of the corpus, or from another corpus."""
    info = None if needs_building(url) else read_written_info(url)
    return info is not None and info.corpus_digest not in (None, corpus_digest)


def read_written_info(url: str) -> IndexInfo | None:
    """The record of beamrank in an index; None where another program built it."""
    path = storage.join(url, INFO_NAME)
    try:
        info = validated(_INFO, checked_values(storage.read_bytes(path)))
        if info.digest != files_digest(info.files):
            raise ValueError("its digest does not fit its files")
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise PreflightError(
            f"{path} is damaged; remove the folder and build the index again: {error}",
            kind="damaged",
            file=path,
        ) from error
    return info


def require_index(url: str) -> IndexInfo | None:
    """Refuses a folder, local or remote, that is not a complete Lucene index, by names and sizes.

    Returns:
        The record of beamrank in the index; None where another program built it.
    """
    sizes = storage.sizes_bytes(url)
    info = read_written_info(url) if INFO_NAME in sizes else None
    if info is not None:
        for name, file in info.files.items():
            if sizes.get(name) != file.size_bytes:
                problem = f"has {sizes[name]} bytes" if name in sizes else "is missing"
                raise _damaged(url, name, f"{problem} where {file.size_bytes} bytes were written")
    else:
        _require_foreign(url, sizes)
    return info


def _require_foreign(url: str, sizes: Mapping[str, int]) -> None:
    """Refuses a folder that is not an index of another program."""
    if _is_unfinished(sizes):
        raise PreflightError(
            f"{url} is an index whose upload did not finish: build it again with `beamrank index`",
            kind="unfinished",
        )
    segments = [
        name for name in sizes if name.startswith("segments_") and _LUCENE_FILE.fullmatch(name)
    ]
    faults = [
        f"its {name} was not written by Lucene" for name in segments if not _is_readable(url, name)
    ]
    if not segments:
        faults = ["it has no segments file" if sizes else "it does not exist or holds no files"]
    if faults:
        raise PreflightError(
            f"{url} is not a Lucene index: {faults[0]}. Give the folder of an index, or a new one "
            "for `beamrank index` to build"
        )


def _is_readable(url: str, name: str) -> bool:
    """Whether a file of segments is Lucene's; raises PreflightError for a version that cannot be
    read.
    """
    with storage.open_binary(storage.join(url, name)) as file:
        head = file.read(_HEAD_BYTES)
    if not head.startswith(_LUCENE_MAGIC):
        return False
    version = _LUCENE_VERSION.match(head)
    *written, begun = b"".join(version.groups()) if version else bytes([LUCENE] * 4)
    if written[0] > LUCENE or begun < LUCENE - 1:
        raise PreflightError(
            f"the index {url} was begun by Lucene {begun} and written by Lucene "
            f"{'.'.join(map(str, written))}, and beamrank reads Lucene {LUCENE - 1} and {LUCENE} "
            "(Pyserini 2 and Anserini 2 write Lucene 10). Give index.path a new folder, in which "
            "`beamrank index CONFIG` builds it from the corpus; or search with the other program, "
            "and give its run as `candidates.run`"
        )
    return True


def read_index_info(url: str) -> IndexInfo:
    """The metadata of an index folder, local or remote.

    The files of a local index are hashed, once on a machine. Remote files are hashed when they are
    copied; where beamrank did not build the index, they are read here too, for the digest.
    """
    info = require_index(url)
    if info is not None and storage.is_remote(url):
        return info
    files = (
        describe_files(url) if storage.is_remote(url) else _read_local(storage.absolute(url)).files
    )
    if info is None:
        return IndexInfo(digest=files_digest(files), files=dict(files))
    for name, problem in find_damage(info, files):
        raise _damaged(url, name, problem)
    return info


def find_damage(info: IndexInfo, files: Mapping[str, IndexFile]) -> Iterator[tuple[str, str]]:
    """The names of files that differ from what beamrank wrote, each with the difference."""
    for name in sorted(info.files.keys() | files.keys()):
        if name not in info.files:
            yield name, "was not written with the index"
        elif name not in files:
            yield name, "is missing"
        elif files[name].sha256 != info.files[name].sha256:
            yield name, "does not hold the bytes that were written"


def _damaged(url: str, name: str, problem: str) -> PreflightError:
    return PreflightError(
        f"the index {url} is damaged: {name} {problem}. BM25 would find other docs. Remove the "
        "folder and build it again with `beamrank index`",
        kind="damaged",
        file=name,
    )


def holds_doc_vectors(url: str, files: Iterable[str]) -> bool:
    """Whether an index with these files holds doc vectors: as files, or in compound ones, which
    name what they hold.
    """
    compound = (name for name in files if name.endswith(".cfe"))
    return any(name.endswith(".tvd") for name in files) or any(
        b".tvd" in storage.read_bytes(storage.join(url, name)) for name in compound
    )


def check_kind(url: str, info: IndexInfo, kind: IndexKind) -> None:
    """Refuses an index that beamrank built for another language, or one without doc vectors where
    they are needed.
    """
    again = (
        "Give index.path a new folder, or remove this one, and run `beamrank index CONFIG`, "
        "which builds it"
    )
    if info.corpus_digest is not None and info.language != kind.language:
        raise PreflightError(
            f"the index {url} was built with `index.language: {info.language}`, not "
            f"{kind.language}: the topics have other terms. {again}"
        )
    if kind.doc_vectors and not holds_doc_vectors(url, info.files):
        raise PreflightError(
            f"the index {url} has no doc vectors, which `bm25.expansion` reads. {again} with them"
        )


def check_index(
    url: str, corpus_digest: str, kind: IndexKind = PLAIN, text_rules: int = 1
) -> IndexInfo:
    """The metadata of an index, which must be of this corpus and kind where it says its own."""
    info = read_index_info(url)
    check_kind(url, info, kind)
    if info.corpus_digest not in (None, corpus_digest):
        raise _other_corpus(url, info, corpus_digest, text_rules)
    return info


def _other_corpus(url: str, info: IndexInfo, corpus_digest: str, text_rules: int) -> PreflightError:
    built_from = info.corpus_digest or ""
    if info.text_rules != text_rules:
        reason = (
            f"is old: another version of beamrank built it, which reads other texts from such "
            f"files (rules {info.text_rules}, here {text_rules}; see CHANGELOG.md)"
        )
    else:
        reason = (
            f"was built from another corpus: its digest is {built_from[:SHORT]}, and "
            f"the configured corpus has {corpus_digest[:SHORT]}. It would find docs that this "
            "corpus does not have"
        )
    return PreflightError(
        f"the index {url} {reason}. Give index.path another folder, set `index.update: true` to "
        "have it updated, or remove the folder to have it built again"
    )
