"""Any corpus as units, a unit as docs, and the digests of both."""

import json
import os.path
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from beamrank.errors import PreflightError
from beamrank.formats.columns import column_names
from beamrank.formats.corpora.files import check_file, corpus_files, has_header, resolved
from beamrank.formats.corpora.units import FORMATS, CorpusConfig, CorpusUnit, DocBatch, split_batch
from beamrank.formats.guess import format_hint
from beamrank.formats.row_checks import WrongFormatError
from beamrank.storage import files as storage
from beamrank.storage.digested import DigestedFile, digest_file
from beamrank.storage.documents import digest, sha256
from beamrank.storage.streams import errors_as

# To raise when the same files are read differently.
_TEXT_RULES = 1
# It tells how a file is compressed, and Parquet from text.
_ENDING = re.compile(r"(\.tar)?\.\w+$")


def list_units(corpus: CorpusConfig, unit_bytes: int = 64 << 20) -> list[CorpusUnit]:
    """Splits a corpus into units, in the order of its files, and checks the beginning of each file.

    Args:
        corpus: where the docs are.
        unit_bytes: the size of a unit of a format that is split by bytes; others are split at row groups or files.

    Raises:
        PreflightError: there are no files, they are empty or of another format, or lack the fields of `fields`.
    """
    corpus = resolved(corpus)
    units: list[CorpusUnit] = []
    for url in corpus_files(corpus):
        with errors_as(PreflightError, url):
            try:
                file = check_file(url, corpus)
            except WrongFormatError as error:
                hint = format_hint(url, corpus.format, FORMATS, "corpus.format")
                raise PreflightError(f"{error}{hint or '. Check `corpus.format` and `corpus.fields`'}") from error
            ranges = file.format.ranges(url, unit_bytes)
        units += (
            replace(file, index=index, start=start, end=end) for index, (start, end) in enumerate(ranges, len(units))
        )
    if not units:
        raise PreflightError(f"the corpus {corpus.path} holds no docs: its files are empty")
    return units


def read_unit(unit: CorpusUnit, batch_docs: int = 1024) -> Iterator[DocBatch]:
    """The docs of a unit, in order.

    Rows that cannot be used are not docs: they are in `bad`, each with its place and reason. The caller decides how
    many are too many.

    Args:
        unit: one of `list_units`.
        batch_docs: the most docs in a batch.

    Raises:
        DataError: the file cannot be read, or is cut short.
    """
    for batch in unit.format.read(unit):
        yield from split_batch(batch, batch_docs)


def find_texts(corpus: CorpusConfig, doc_ids: Collection[str]) -> dict[str, str]:
    """The texts of some docs, from one scan that ends when all are found; docs that the corpus lacks are left out.

    Raises:
        PreflightError: the corpus does not exist or cannot be read.
    """
    missing = set(doc_ids)
    found: dict[str, str] = {}
    for unit in list_units(corpus) if missing else ():
        for batch in read_unit(unit):
            docs = zip(batch.doc_ids, batch.texts, strict=True)
            found |= {doc_id: text for doc_id, text in docs if doc_id in missing}
        if len(found) == len(missing):
            break
    return found


@dataclass(frozen=True)
class DigestedCorpus:
    """The digest of a corpus, and the files that it covers, by URL."""

    digest: str
    files: Mapping[str, DigestedFile]

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """`DigestedFile.unchanged` for all files."""
        with ExitStack() as stack:
            for file in self.files.values():
                stack.enter_context(file.unchanged())
            yield


def digest_corpus(corpus: CorpusConfig) -> DigestedCorpus:
    """SHA-256 over the format, the fields, the name and content of each file, `columns`, and which files have headers.

    Names are relative to the folder that holds all the files, so a corpus may be moved. A remote file is not read: its
    store's checksum represents its content.

    Raises:
        PreflightError: the corpus has no files, or one is being written.
    """
    corpus = resolved(corpus)
    urls = corpus_files(corpus)
    folder = os.path.commonpath([storage.parent(url) for url in urls])
    files = [digest_file(url, read=not storage.is_remote(url)) for url in urls]
    names = [[os.path.relpath(storage.absolute(file.url), folder), file.content] for file in files]
    headers = [name for (name, _), url in zip(names, urls, strict=True) if has_header(url, corpus)]
    named = [column_names(corpus.columns), headers]
    decides = [_TEXT_RULES, corpus.format, corpus.fields, names, *([named] if any(named) else [])]
    described = json.dumps(decides, ensure_ascii=True)
    return DigestedCorpus(sha256(described.encode()), {file.url: file for file in files})


def unit_digest(unit: CorpusUnit, file: DigestedFile) -> str:
    """SHA-256 of everything that decides the docs of a unit of this file: of its name only the ending."""
    ending = _ENDING.search(storage.name(unit.url).lower())
    decides = [unit.format.name, unit.fields, file.content, unit.start, unit.end, ending and ending.group()]
    named = [unit.doc_id, unit.header] if unit.doc_id or unit.header else []
    return digest([_TEXT_RULES, *decides, *named])
