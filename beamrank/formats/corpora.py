"""Corpora: their files and format, the units that are read independently, and the digests of
both.
"""

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Self

import pyarrow as pa
from pydantic import Field, model_validator

from beamrank.errors import DataError, PreflightError
from beamrank.formats.checks import Template, split_template
from beamrank.formats.columns import DocColumns, TemplateText, check_header, column_names
from beamrank.formats.decode.base import WrongFormatError
from beamrank.formats.files import (
    AUTO,
    Format,
    FormatGuesser,
    check_kinds,
    folder_files,
    is_packaged,
)
from beamrank.formats.rejects import NO_LIMIT, Rejects
from beamrank.formats.schemas import Hints
from beamrank.formats.texts.units import CorpusUnit, DocBatch, Fields
from beamrank.plugins import Registry
from beamrank.section import Glob, OneOf, Section
from beamrank.storage import files as storage
from beamrank.storage.digested import DigestedFile, digest_file
from beamrank.storage.documents import sha256
from beamrank.storage.globs import NOT_DATA, find, path_below
from beamrank.storage.streams import errors_as, has_ending, without_compression

FORMATS: Registry[Format] = Registry(
    "corpus format",
    "beamrank.corpora",
    {
        "beir": "beamrank.formats.named_formats:BEIR",
        "csv": "beamrank.formats.named_formats:CSV",
        "jsonl": "beamrank.formats.named_formats:JSONL",
        "labelled": "beamrank.formats.named_formats:LABELLED",
        "parquet": "beamrank.formats.named_formats:PARQUET",
        "trec": "beamrank.formats.texts.trec:TREC",
        "tsv": "beamrank.formats.named_formats:TSV",
    },
)
_GUESSER = FormatGuesser("corpus", FORMATS)
_NOT_DOCS = re.compile(r"readme", re.IGNORECASE)


class CorpusConfig(Section):
    """The docs."""

    short = "path"
    path: Glob
    """A file, a folder or a glob."""
    format: Annotated[str, OneOf(FORMATS, (AUTO,))] = AUTO
    """The format of the files; `auto` guesses it from the first file."""
    fields: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """The fields that make a doc's text, joined by one space; by default the format's own fields.
    """
    template: TemplateText | None = None
    """The text of a doc with fields in braces, such as `"{title}\\n{text}"`, in place of `fields`.
    """
    columns: DocColumns | None = None
    """The names of the id or the text, where they are not the usual ones."""
    header: bool | None = None
    """Whether the first line of each TSV or CSV file names the columns; by default this is
    recognized and printed.
    """
    quotes: bool = False
    """Whether a TSV has quotes, as a CSV has."""

    @model_validator(mode="after")
    def _check_header(self) -> Self:
        named = {"fields": self.fields, "template": self.template}
        check_header(self.header, self.columns, named)
        if self.fields is not None and self.template is not None:
            raise ValueError(
                "`fields` and `template` both say what makes a text: give one or the other"
            )
        return self

    @property
    def text_rule(self) -> tuple[Fields, Template | None]:
        """The fields that make a text, None for the format's own, and the template around them."""
        return (self.fields, None) if self.template is None else split_template(self.template)


def corpus_files(corpus: CorpusConfig) -> list[str]:
    """The files of a corpus, sorted: the file itself, a glob's matches, or the files below a folder
    with its endings.
    """
    corpus = resolved(corpus)
    form = FORMATS[corpus.format]
    with errors_as(PreflightError, corpus.path):
        is_folder = storage.is_folder(corpus.path)
        if form.file_in_folder and is_folder:
            return folder_files(corpus.path, form.file_in_folder)
        urls = find(corpus.path)
        if "columns" in form.keys and len(urls) > 1:
            urls = check_kinds(corpus.path, urls)
        files = [url for url in urls if not is_folder or _is_of(url, corpus)]
        if files:
            return files
        endings = f"holds no files named *{', *'.join(form.endings)}"
        reason = endings if storage.exists(corpus.path) else "does not exist"
        raise PreflightError(
            f"the corpus {corpus.path} {reason}: give `corpus.path` a file, a folder or a glob. "
            f"{NOT_DATA}",
            kind="no-file",
        )


def _is_of(url: str, corpus: CorpusConfig) -> bool:
    """Whether a file below the corpus's folder holds docs; PreflightError if its compression is not
    read.
    """
    form, path = (
        FORMATS[corpus.format],
        url.removeprefix(storage.absolute(corpus.path)).lstrip("/"),
    )
    is_other = form.not_docs.fullmatch(without_compression(path))
    # Spark's parts can have no ending.
    has_no_ending = "columns" in form.keys and "." not in storage.name(url)
    return (has_no_ending or has_ending(url, form.endings)) and not is_other


def resolved(corpus: CorpusConfig) -> CorpusConfig:
    """A corpus with the name of its format, where that is `auto`.

    A folder that has the packaging of a format, such as BEIR's, has that format; otherwise the
    first file that is not empty decides.

    Raises:
        PreflightError: the format cannot be guessed, or has no named columns or header and the
            corpus names some.
    """
    return _GUESSER.resolved(corpus, corpus.path, _with_docs)


def _with_docs(path: str) -> list[str]:
    urls = [url for url in find(path) if not _NOT_DOCS.match(storage.name(url))]
    if not urls:
        raise PreflightError(
            f"the corpus {path} does not exist: give a file, a folder or a glob", kind="no-file"
        )
    return urls


def text_rules(corpus: CorpusConfig) -> int:
    """The `rules` of its format."""
    return FORMATS[resolved(corpus).format].rules


def _whole(url: str, corpus: CorpusConfig) -> CorpusUnit:
    """A file of a corpus, whose format is named, as one unit."""
    hints = Hints(
        column_names(corpus.columns),
        *corpus.text_rule,
        quotes=corpus.quotes,
        format=corpus.format,
    )
    return CorpusUnit(0, url, FORMATS[corpus.format], hints, 0, 0, corpus.header)


def notes(corpus: CorpusConfig) -> list[str]:
    """Notes for the user on the headers that were recognized; a CSV always has one."""
    is_tsv = FORMATS[corpus.format].holds == "tsv"
    units = (_whole(url, corpus) for url in (corpus_files(corpus) if is_tsv else ()))
    return list(chain.from_iterable(unit.open().header_notes("corpus") for unit in units))


def find_taken(corpus: CorpusConfig, urls: Sequence[str]) -> str | None:
    """The first of some files that will be written that would be read as a file of the corpus."""
    # A corpus that does not exist is refused elsewhere.
    with suppress(PreflightError):
        corpus = resolved(corpus)
    return next((url for url in urls if _takes(corpus, url)), None)


def _takes(corpus: CorpusConfig, url: str) -> bool:
    below = path_below(corpus.path, url)
    if not below or corpus.format == AUTO:
        return below == ""
    base = FORMATS[corpus.format].file_in_folder
    with suppress(PreflightError):
        return _is_of(url, corpus) if base is None else is_packaged(below, base)
    return False


def list_units(corpus: CorpusConfig, unit_bytes: int = 64 << 20) -> list[CorpusUnit]:
    """Splits a corpus into units, in the order of its files, and checks the beginning of each file.

    `unit_bytes` is the size of a unit of a format that is split by bytes; others are split at row
    groups or files.

    Raises:
        PreflightError: there are no files, they are empty or of a different format, or lack the
            fields of `fields`.
    """
    corpus = resolved(corpus)
    form, units = FORMATS[corpus.format], list[CorpusUnit]()
    for url in corpus_files(corpus):
        file = _whole(url, corpus)
        with errors_as(PreflightError, url):
            try:
                rows = file.open()
                rows.check_beginning()
            except WrongFormatError as error:
                if error.kind == "no-rows":
                    continue
                hint = _GUESSER.hint(url, corpus.format) or (
                    f". It is read as `format: {corpus.format}`: check `corpus.format` and "
                    "`corpus.fields`"
                )
                raise PreflightError(f"{error}{hint}", **error.of_input) from error
            # A doc that may come again can be anywhere.
            ranges = [(0, 0)] if form.repeats else rows.decoder.ranges(unit_bytes)
        header = rows.has_header if form.open is None else None
        units += (
            replace(file, index=index, start=start, end=end, header=header)
            for index, (start, end) in enumerate(ranges, len(units))
        )
    if not units:
        raise PreflightError(
            f"the corpus {corpus.path} holds no docs: its files are empty, or have only a header",
            kind="no-rows",
        )
    return units


def read_unit(
    unit: CorpusUnit, rejects: Rejects | None = None, batch_docs: int = 1024
) -> Iterator[DocBatch]:
    """The docs of a unit, in order, at most `batch_docs` in a batch.

    `rejects` takes the rows that cannot be used, which are no docs; by default any number.

    Raises:
        DataError: the file cannot be read, is cut short, or has too many rows that cannot be used.
        WrongFormatError: it is not of its format, or is damaged.
    """
    try:
        rows = unit.open(Rejects("docs", NO_LIMIT) if rejects is None else rejects)
        batches = rows.batches(unit.start, unit.end)
        for batch in _without_repeats(batches) if unit.format.repeats else batches:
            for start in range(0, len(batch), batch_docs):
                yield DocBatch.of(unit.index, batch.slice(start, batch_docs))
        rows.check()
    except WrongFormatError:
        raise
    except PreflightError as error:
        raise DataError(str(error), **error.of_input) from error


def _without_repeats(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Docs, where one can come again with the same text; one with another text is there twice."""
    seen: dict[str, bytes] = {}
    for batch in batches:
        kept = []
        for doc_id, text in zip(*(batch.column(name) for name in ("doc_id", "text")), strict=True):
            content = hashlib.blake2b(text.as_py().encode(), digest_size=16).digest()
            before = seen.setdefault(doc_id.as_py(), content)
            kept.append(before is content or before != content)
        yield batch.filter(pa.array(kept, pa.bool_()))


def find_texts(corpus: CorpusConfig, doc_ids: Collection[str]) -> dict[str, str]:
    """The texts of some docs, from one scan that ends when all are found; docs that the corpus
    lacks are left out.
    """
    missing = set(doc_ids)
    texts: dict[str, str] = {}
    for unit in list_units(corpus) if missing else ():
        for batch in read_unit(unit):
            docs = zip(batch.doc_ids, batch.texts, strict=True)
            texts |= {doc_id: text for doc_id, text in docs if doc_id in missing}
        if len(texts) == len(missing):
            break
    return texts


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
    """SHA-256 over the format, the text's fields, the name and content of each file, `columns`, and
    which have headers.

    Names are relative to the folder that holds all the files, so a corpus may be moved. A remote
    file is not read: its store's checksum represents its content.
    """
    corpus = resolved(corpus)
    urls = corpus_files(corpus)
    folder = os.path.commonpath([storage.parent(url) for url in urls])
    files = [digest_file(url, read=not storage.is_remote(url)) for url in urls]
    names = [[os.path.relpath(storage.absolute(file.url), folder), file.content] for file in files]
    headers = [
        name for (name, _), url in zip(names, urls, strict=True) if _has_header(_whole(url, corpus))
    ]
    named = [column_names(corpus.columns), headers, corpus.quotes]
    decides = [
        FORMATS[corpus.format].rules,
        corpus.format,
        corpus.fields or corpus.template,
        names,
        *([named] if any(named) else []),
    ]
    described = json.dumps(decides, ensure_ascii=True)
    return DigestedCorpus(sha256(described.encode()), {file.url: file for file in files})


def _has_header(unit: CorpusUnit) -> bool:
    if unit.format.open is None and unit.format.holds != "json":
        with suppress(PreflightError):  # It is reported where the docs are read.
            return unit.open().has_header
    return False
