"""BEIR's packaging: a folder with corpus.jsonl, one object a line, `_id`, `title` (which may be missing) and `text`."""

from collections.abc import Iterator

from beamrank.errors import PreflightError
from beamrank.formats.corpora.jsonl import line_parser
from beamrank.formats.corpora.lines import ParseLine, byte_ranges, check_lines, read_lines
from beamrank.formats.corpora.units import CorpusFormat, CorpusUnit, DocBatch, Fields
from beamrank.storage import files as storage
from beamrank.storage.streams import files_with_endings

_find_files = files_with_endings(".jsonl")


def member(folder: str, base: str) -> str:
    """The file `base` of a BEIR folder, which may be compressed.

    Raises:
        PreflightError: there is none, or more than one.
    """
    names = [name for name in storage.sizes_bytes(folder) if name == base or name.startswith(f"{base}.")]
    if len(names) != 1:
        found = f"holds {' and '.join(sorted(names))}" if names else f"holds no {base}"
        raise PreflightError(f"the BEIR folder {folder} {found}: give the path of the one file to read")
    return storage.join(folder, names[0])


def _files(path: str) -> list[str]:
    return [member(path, "corpus.jsonl")] if storage.is_folder(path) else _find_files(path)


def _parser(fields: Fields) -> ParseLine:
    if fields is None:
        return line_parser("_id", ("title", "text"), optional=frozenset({"title"}))
    return line_parser("_id", fields)


def _check(url: str, fields: Fields) -> None:
    check_lines(url, "beir", _parser(fields))


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    return read_lines(unit, _parser(unit.fields))


FORMAT = CorpusFormat(_files, _check, byte_ranges, _read)
