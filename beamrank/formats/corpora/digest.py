"""The digest of a corpus."""

import json
import os.path
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from beamrank.formats.corpora.reader import corpus_files, has_header, resolved
from beamrank.formats.corpora.registry import CorpusConfig
from beamrank.formats.corpora.units import CorpusUnit
from beamrank.formats.names import given_columns
from beamrank.storage import files as storage
from beamrank.storage.digested import DigestedFile, digest_file
from beamrank.storage.documents import digest, sha256

# Raised when the same files come to give other texts.
_TEXT_RULES = 1
# It tells how a file is compressed, and Parquet from text.
_ENDING = re.compile(r"(\.tar)?\.\w+$")


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
    named = [given_columns(corpus.columns), headers]
    decides = [_TEXT_RULES, corpus.format, corpus.fields, names, *([named] if any(named) else [])]
    described = json.dumps(decides, ensure_ascii=True)
    return DigestedCorpus(sha256(described.encode()), {file.url: file for file in files})


def corpus_digest(corpus: CorpusConfig) -> str:
    """The digest that `digest_corpus` gives."""
    return digest_corpus(corpus).digest


def unit_digest(unit: CorpusUnit, file: DigestedFile) -> str:
    """SHA-256 of everything that decides the docs of a unit of this file: of its name only the ending."""
    ending = _ENDING.search(storage.name(unit.url).lower())
    decides = [unit.format.name, unit.fields, file.content, unit.start, unit.end, ending and ending.group()]
    named = [unit.doc_id, unit.header] if unit.doc_id or unit.header else []
    return digest([_TEXT_RULES, *decides, *named])
