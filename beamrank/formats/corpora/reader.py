"""Any corpus as units, and a unit as docs."""

import re
from collections.abc import Iterator

from beamrank.errors import PreflightError
from beamrank.formats.corpora.readers import beir, jsonl, mteb
from beamrank.formats.corpora.registry import FORMATS, CorpusConfig
from beamrank.formats.corpora.units import CorpusUnit, DocBatch, WrongFormatError, split_batch
from beamrank.formats.folders import folder_files, folder_hint, holds_file
from beamrank.formats.guess import AUTO, format_hint, guessed
from beamrank.formats.header import Names, header_notes
from beamrank.formats.names import DocColumns, find_columns, given_columns
from beamrank.formats.row_checks import RowError
from beamrank.storage import files as storage
from beamrank.storage.globs import NOT_DATA, find
from beamrank.storage.streams import errors_as, has_ending, open_stream, without_compression

_NOT_DOCS = re.compile(r"readme", re.IGNORECASE)
_HINT_BYTES = 1 << 16
# What these formats call the id.
_JSON_IDS = {"jsonl": "id", "beir": "_id"}
# Formats that are recognized by the columns of a Parquet file.
_IN_PARQUET = {"beir": beir.is_beir, "mteb": mteb.is_mteb}


def corpus_files(corpus: CorpusConfig) -> list[str]:
    """The files of a corpus, sorted: the file itself, a glob's matches, or those below a folder with its endings.

    Raises:
        PreflightError: there are none, or their storage cannot be reached.
    """
    with errors_as(PreflightError, corpus.path):
        return _corpus_files(_with_format(corpus))


def resolved(corpus: CorpusConfig) -> CorpusConfig:
    """A corpus with the name of its format, where that is `auto`, and of the id in JSON, where that is not the usual.

    A folder that has BEIR's packaging has that format; otherwise the first file that is not empty decides.

    Raises:
        PreflightError: the format cannot be guessed, or has no named columns or header and the corpus names some.
    """
    corpus = _with_format(corpus)
    corpus_format = FORMATS[corpus.format]
    for key, usable in (("columns", corpus_format.check_named), ("header", corpus_format.has_header)):
        if getattr(corpus, key) is not None and usable is None:
            raise PreflightError(f"`corpus.{key}` means nothing to `format: {corpus.format}`: leave it out")
    own = _JSON_IDS.get(corpus.format)
    if own is None or corpus.columns is not None:
        return corpus
    try:
        files = corpus_files(corpus)
    except PreflightError:  # It is reported where they are read.
        return corpus
    with errors_as(PreflightError, files[0]):
        name = _id_in_json(files[0], corpus, own)
    return corpus if name is None else corpus.model_copy(update={"columns": DocColumns(doc_id=name)})


def _id_in_json(url: str, corpus: CorpusConfig, own: str) -> str | None:
    """The field of the id in a file that does not have the format's own."""
    if url.endswith(FORMATS["parquet"].endings):
        return None
    names = list(jsonl.first_row(url) or {})
    try:
        at = None if not names or own in names else find_columns(names, ["doc_id"], {}).get("doc_id")
    except RowError as error:
        raise PreflightError(f"{url}: the first row {error}") from error
    if at is None:
        return None
    try:
        _check(url, corpus)
    except WrongFormatError:
        return names[at]
    return None


def has_header(url: str, corpus: CorpusConfig) -> bool:
    """Whether the first line of a file of a corpus, whose format is named, is a header.

    Raises:
        PreflightError: it lacks names that the corpus gives, or cannot be read.
    """
    recognize = FORMATS[corpus.format].has_header
    return recognize is not None and recognize(url, _names(corpus))


def notes(corpus: CorpusConfig) -> list[str]:
    """What a user should know of the headers that were recognized."""
    if corpus.format != "tsv" or corpus.header is not None:
        return []  # A CSV has a header.
    return header_notes("corpus", corpus_files(corpus), _names(corpus))


def _names(corpus: CorpusConfig) -> Names:
    return Names("doc_id", given_columns(corpus.columns), corpus.fields, corpus.header)


def _with_format(corpus: CorpusConfig) -> CorpusConfig:
    """A corpus with the name of its format."""
    if corpus.format != AUTO:
        return corpus
    with errors_as(PreflightError, corpus.path):
        if storage.is_folder(corpus.path) and holds_file(corpus.path, FORMATS["beir"].file_in_folder or ""):
            return corpus.model_copy(update={"format": "beir"})
        found = [url for url in find(corpus.path) if not _NOT_DOCS.match(storage.name(url))]
        if not found:
            raise PreflightError(f"the corpus {corpus.path} does not exist: give a file, a folder or a glob")
        first = next(filter(storage.size_bytes, found), found[0])
        name = guessed(first, "corpus.format", FORMATS)
        if name == "parquet":
            name = next((each for each, matches in _IN_PARQUET.items() if matches(first)), name)
        return corpus.model_copy(update={"format": name})


def _corpus_files(corpus: CorpusConfig) -> list[str]:
    corpus_format = FORMATS[corpus.format]
    is_folder = storage.is_folder(corpus.path)
    if corpus_format.file_in_folder and is_folder:
        return folder_files(corpus.path, corpus_format.file_in_folder)
    found = find(corpus.path)
    if found and not is_folder:
        return found
    files = [url for url in found if _is_of(url, corpus)]
    if not files:
        endings = f"holds no files named *{', *'.join(corpus_format.endings)}"
        reason = endings if storage.exists(corpus.path) else "does not exist"
        hint = folder_hint(map(storage.name, found), FORMATS, "corpus.format")
        raise PreflightError(
            f"the corpus {corpus.path} {reason}: give `corpus.path` a file, a folder or a glob{hint}. {NOT_DATA}"
        )
    return files


def _is_of(url: str, corpus: CorpusConfig) -> bool:
    """Whether a file of the corpus's folder holds docs.

    Raises:
        PreflightError: it does, in a compression that beamrank does not read.
    """
    corpus_format = FORMATS[corpus.format]
    path = without_compression(url.removeprefix(storage.absolute(corpus.path)).lstrip("/"))
    not_docs = corpus_format.not_docs
    return has_ending(url, corpus_format.endings) and (not_docs is None or not not_docs.fullmatch(path))


def list_units(corpus: CorpusConfig, unit_bytes: int = 64 << 20) -> list[CorpusUnit]:
    """Splits a corpus into units, in the order of its files, and checks the beginning of each file.

    Args:
        corpus: where the docs are.
        unit_bytes: the size of a unit of a format that is split by bytes; others are split at row groups or files.

    Raises:
        PreflightError: there are no files, they are empty or of another format, or lack what `fields` names.
    """
    corpus = resolved(corpus)
    corpus_format = FORMATS[corpus.format]
    units: list[CorpusUnit] = []
    for url in corpus_files(corpus):
        with errors_as(PreflightError, url):
            try:
                header = _check(url, corpus)
            except WrongFormatError as error:
                raise PreflightError(f"{error}{_hint(url, corpus.format)}") from error
            ranges = corpus_format.ranges(url, unit_bytes)
        for start, end in ranges:
            units.append(CorpusUnit(len(units), url, corpus_format, corpus.fields, start, end, _doc_id(corpus), header))
    if not units:
        raise PreflightError(f"the corpus {corpus.path} holds no docs: its files are empty")
    return units


def _check(url: str, corpus: CorpusConfig) -> bool:
    """Checks a file; returns whether it has a header."""
    corpus_format, header = FORMATS[corpus.format], has_header(url, corpus)
    if corpus_format.check_named is not None:
        unit = CorpusUnit(0, url, corpus_format, corpus.fields, 0, 0, _doc_id(corpus), header)
        corpus_format.check_named(unit)
    elif corpus_format.check is not None:
        corpus_format.check(url, corpus.fields)
    return header


def _doc_id(corpus: CorpusConfig) -> str | None:
    return None if corpus.columns is None else corpus.columns.doc_id


def _hint(url: str, given: str) -> str:
    with open_stream(url) as file:
        hint = format_hint(file.read(_HINT_BYTES), {given}, FORMATS, "corpus.format")
    return hint or ". Check `corpus.format` and `corpus.fields`"


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
