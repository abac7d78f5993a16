"""The metadata of a Lucene index folder, and whether it belongs to a corpus."""

import re
from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ConfigDict, TypeAdapter

from beamrank.errors import PreflightError
from beamrank.records import BadRow
from beamrank.storage import files as storage
from beamrank.storage.documents import SHORT, checked_json, checked_values, validated
from models.lucene.index.content import IndexFile, describe_files, files_digest, read_content

INFO_NAME = "beamrank.json"
UPLOADING_NAME = "beamrank.uploading"
_SEGMENTS = re.compile(r"segments_[0-9a-z]+")
_LUCENE_MAGIC = bytes.fromhex("3fd76c17")


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

    def to_json(self) -> bytes:
        """The content of `beamrank.json`."""
        return checked_json(self.model_dump(mode="json"))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the user of this index."""
        if self.corpus_digest is not None:
            return ()
        return (
            "beamrank did not build this index, so nothing shows that it holds the docs of the corpus; a doc that it "
            "finds and the corpus lacks is reported when the texts are joined",
        )


_INFO = TypeAdapter(IndexInfo)


def needs_building(url: str) -> bool:
    """Whether an index has to be built: the folder does not exist, or holds only an interrupted upload."""
    return storage.is_empty(url) or _is_unfinished(storage.sizes_bytes(url))


def _is_unfinished(sizes: Mapping[str, int]) -> bool:
    """Whether the upload of an index into a folder has begun but not ended."""
    return UPLOADING_NAME in sizes and INFO_NAME not in sizes


def read_written_info(url: str) -> IndexInfo | None:
    """The record of beamrank in an index; None where another program built it.

    Raises:
        PreflightError: the file is damaged.
    """
    path = storage.join(url, INFO_NAME)
    try:
        info = validated(_INFO, checked_values(storage.read_bytes(path)))
        if info.digest != files_digest(info.files):
            raise ValueError("its digest is not that of its files")
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise PreflightError(f"{path} is damaged; remove the folder and build the index again: {error}") from error
    return info


def require_index(url: str) -> IndexInfo | None:
    """Makes sure that a folder, local or remote, is a complete Lucene index, by names and sizes.

    Returns:
        The record of beamrank in the index; None where another program built it.

    Raises:
        PreflightError: the folder is not a complete Lucene index.
    """
    sizes = storage.sizes_bytes(url)
    info = read_written_info(url) if INFO_NAME in sizes else None
    if info is not None:
        _check_sizes(url, info, sizes)
        return info
    if _is_unfinished(sizes):
        raise PreflightError(f"{url} is an index whose upload did not finish: build it again with `beamrank index`")
    fault = _fault(url, sizes)
    if fault is not None:
        raise PreflightError(
            f"{url} is not a Lucene index: {fault}. Give the folder of an index, or a new one for `beamrank index` to "
            "build"
        )
    return None


def read_index_info(url: str) -> IndexInfo:
    """The metadata of an index folder, local or remote.

    The files of a local index are hashed, once on a machine (`read_content`). Those of a remote one are hashed when
    they are copied; where beamrank did not build it, they are read here too, for the digest.

    Raises:
        PreflightError: the folder is not a Lucene index, or a file is missing or damaged.
    """
    info = require_index(url)
    if info is not None and storage.is_remote(url):
        return info
    files = describe_files(url) if storage.is_remote(url) else read_content(storage.absolute(url)).files
    if info is None:
        return IndexInfo(digest=files_digest(files), files=dict(files))
    for name, problem in find_damage(info, files):
        raise _damaged(url, name, problem)
    return info


def find_damage(info: IndexInfo, found: Mapping[str, IndexFile]) -> Iterator[tuple[str, str]]:
    """The names of files that differ from those that beamrank wrote, each with the difference."""
    for name in sorted(info.files.keys() | found.keys()):
        if name not in info.files:
            yield name, "was not written with the index"
        elif name not in found:
            yield name, "is missing"
        elif found[name].sha256 != info.files[name].sha256:
            yield name, "does not hold the bytes that were written"


def check_index(url: str, corpus_digest: str | None) -> IndexInfo:
    """Makes sure that a folder is an index, and of this corpus where both are known.

    Raises:
        PreflightError: it is not.
    """
    info = read_index_info(url)
    if corpus_digest is not None and info.corpus_digest is not None and info.corpus_digest != corpus_digest:
        raise PreflightError(
            f"the index {url} was built from another corpus: its digest is {info.corpus_digest[:SHORT]}, that of the "
            f"configured corpus {corpus_digest[:SHORT]}. It would find docs that this corpus does not have. Give "
            "index.path another folder, set `index.update: true` if the corpus has changed, or remove the folder to "
            "have it built again"
        )
    return info


def _check_sizes(url: str, info: IndexInfo, sizes: Mapping[str, int]) -> None:
    for name, file in info.files.items():
        if sizes.get(name) != file.size_bytes:
            found = f"has {sizes[name]} bytes" if name in sizes else "is missing"
            raise _damaged(url, name, f"{found} where {file.size_bytes} bytes were written")


def _damaged(url: str, name: str, problem: str) -> PreflightError:
    return PreflightError(
        f"the index {url} is damaged: {name} {problem}. BM25 would find other docs. Remove the folder and build it "
        "again with `beamrank index`"
    )


def _fault(url: str, sizes: dict[str, int]) -> str | None:
    if not sizes:
        return "it does not exist or holds no files"
    segments = [name for name in sizes if _SEGMENTS.fullmatch(name)]
    if not segments:
        return "it has no segments file"
    for name in segments:
        with storage.open_binary(storage.join(url, name)) as file:
            if file.read(len(_LUCENE_MAGIC)) != _LUCENE_MAGIC:
                return f"its {name} was not written by Lucene"
    return None
