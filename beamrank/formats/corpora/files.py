"""The files of a corpus and their format."""

import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from beamrank.errors import PreflightError
from beamrank.formats.columns import DocColumns, Names, column_names, find_columns, header_notes, read_header
from beamrank.formats.corpora.parquet import is_parquet
from beamrank.formats.corpora.units import FORMATS, CorpusConfig, CorpusUnit, check_unit
from beamrank.formats.folders import folder_files, folder_hint, format_of_folder
from beamrank.formats.guess import AUTO, Beginning, guessed
from beamrank.formats.row_checks import RowError, WrongFormatError
from beamrank.storage import files as storage
from beamrank.storage.globs import NOT_DATA, find
from beamrank.storage.streams import errors_as, has_ending, without_compression

_NOT_DOCS = re.compile(r"readme", re.IGNORECASE)


def corpus_files(corpus: CorpusConfig) -> list[str]:
    """The files of a corpus, sorted: the file itself, a glob's matches, or those below a folder with its endings.

    Raises:
        PreflightError: there are none, or their storage cannot be reached.
    """
    corpus = _with_format(corpus)
    corpus_format = FORMATS[corpus.format]
    with errors_as(PreflightError, corpus.path):
        is_folder = storage.is_folder(corpus.path)
        if corpus_format.file_in_folder and is_folder:
            return folder_files(corpus.path, corpus_format.file_in_folder)
        found = find(corpus.path)
        if found and not is_folder:
            return found
        files = [url for url in found if _is_of(url, corpus)]
        if files:
            return files
        endings = f"holds no files named *{', *'.join(corpus_format.endings)}"
        reason = endings if storage.exists(corpus.path) else "does not exist"
        hint = folder_hint(map(storage.name, found), FORMATS, "corpus.format")
        raise PreflightError(
            f"the corpus {corpus.path} {reason}: give `corpus.path` a file, a folder or a glob{hint}. {NOT_DATA}"
        )


def _is_of(url: str, corpus: CorpusConfig) -> bool:
    """Whether a file of the corpus's folder holds docs; PreflightError if its compression is not read."""
    corpus_format = FORMATS[corpus.format]
    path = without_compression(url.removeprefix(storage.absolute(corpus.path)).lstrip("/"))
    not_docs = corpus_format.not_docs
    return has_ending(url, corpus_format.endings) and (not_docs is None or not not_docs.fullmatch(path))


def resolved(corpus: CorpusConfig) -> CorpusConfig:
    """A corpus with the name of its format, where that is `auto`, and of the id in JSON, where that is not the usual.

    A folder that has the packaging of a format, such as BEIR's, has that format; otherwise the first file that is not
    empty decides.

    Raises:
        PreflightError: the format cannot be guessed, or has no named columns or header and the corpus names some.
    """
    corpus = _with_format(corpus)
    corpus_format = FORMATS[corpus.format]
    usable = {
        "fields": corpus_format.has_fields,
        "columns": corpus_format.has_columns,
        "header": corpus_format.table is not None,
    }
    for key, is_usable in usable.items():
        if getattr(corpus, key) is not None and not is_usable:
            raise PreflightError(f"`corpus.{key}` means nothing to `format: {corpus.format}`: leave it out")
    if corpus_format.id_field is None or corpus.columns is not None:
        return corpus
    try:
        first = corpus_files(corpus)[0]
    except PreflightError:  # It is reported where they are read.
        return corpus
    with errors_as(PreflightError, first):
        name = _other_id(first, corpus, corpus_format.id_field)
    return corpus if name is None else corpus.model_copy(update={"columns": DocColumns(doc_id=name)})


def _with_format(corpus: CorpusConfig) -> CorpusConfig:
    """A corpus with the name of its format."""
    if corpus.format != AUTO:
        return corpus
    with errors_as(PreflightError, corpus.path):
        name = format_of_folder(corpus.path, FORMATS) if storage.is_folder(corpus.path) else None
        if name is None:
            found = [url for url in find(corpus.path) if not _NOT_DOCS.match(storage.name(url))]
            if not found:
                raise PreflightError(f"the corpus {corpus.path} does not exist: give a file, a folder or a glob")
            first = next(filter(storage.size_bytes, found), found[0])
            name = guessed(first, "corpus.format", FORMATS)
        return corpus.model_copy(update={"format": name})


def _other_id(url: str, corpus: CorpusConfig, own: str) -> str | None:
    """The usual name of an id that stands in a JSON file in place of the format's own, which it lacks."""
    names = [] if is_parquet(url) else list(Beginning(url).record)
    try:
        at = None if not names or own in names else find_columns(names, ["doc_id"], {}).get("doc_id")
    except RowError as error:
        raise PreflightError(f"{url}: the first row {error}") from error
    if at is None:
        return None
    try:
        check_file(url, corpus)
    except WrongFormatError:
        return names[at]
    return None


def check_file(url: str, corpus: CorpusConfig) -> CorpusUnit:
    """Checks the beginning of a file of a corpus whose format is named; returns the file as one unit.

    Raises:
        WrongFormatError: it has another format.
        PreflightError: it lacks fields or columns.
    """
    doc_id = None if corpus.columns is None else corpus.columns.doc_id
    unit = CorpusUnit(0, url, FORMATS[corpus.format], corpus.fields, 0, 0, doc_id, has_header(url, corpus))
    check_unit(unit)
    return unit


def has_header(url: str, corpus: CorpusConfig) -> bool:
    """Whether the first line of a file of a corpus, whose format is named, is a header.

    Raises:
        PreflightError: it lacks names that the corpus gives, or cannot be read.
    """
    table = FORMATS[corpus.format].table
    return table is not None and read_header(url, table, _names(corpus)) is not None


def notes(corpus: CorpusConfig) -> list[str]:
    """Notes for the user on the headers that were recognized."""
    if FORMATS[corpus.format].table != "tsv" or corpus.header is not None:
        return []  # A CSV has a header.
    return header_notes("corpus", corpus_files(corpus), _names(corpus))


def _names(corpus: CorpusConfig) -> Names:
    return Names("doc_id", column_names(corpus.columns), corpus.fields, corpus.header)


def find_taken(corpus: CorpusConfig, urls: Sequence[str]) -> str | None:
    """The first of some files that will be written, which need not exist, that would be read as a file of the corpus.

    The corpus's format is asked, in a copy of the folders that holds nothing but these files.

    Raises:
        PreflightError: no file can have one of the paths.
    """
    # A corpus that does not exist is refused elsewhere.
    with suppress(PreflightError):
        corpus = resolved(corpus)
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.realpath(folder)
        copies = {url: Path(_copied(root, url)) for url in urls}
        for url, copy in copies.items():
            try:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.touch()
            except OSError as error:
                storage.refuse_impossible_path(url, error)
                raise
        found: set[Path] = set()
        path = _copied(root, corpus.path)
        with suppress(PreflightError):
            # A folder that the glob matches would be refused by the next run.
            found.update(each for each in map(Path, find(path, folders=True)) if each.is_dir())
        with suppress(PreflightError):
            found.update(map(Path, corpus_files(corpus.model_copy(update={"path": path}))))
        return next((url for url, copy in copies.items() if found & {copy, *copy.parents}), None)


def _copied(root: str, url: str) -> str:
    if storage.is_remote(url):
        return f"{root}/{url.replace('://', '/')}"
    return f"{root}/file{os.path.realpath(storage.absolute(url))}"
