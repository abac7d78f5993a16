"""SMART's files as a corpus; a unit is a file, which is small."""

from collections.abc import Iterator

from beamrank.errors import PreflightError
from beamrank.formats import smart
from beamrank.formats.corpora.units import (
    CorpusFormat,
    CorpusUnit,
    DocBatch,
    Fields,
    WrongFormatError,
    parse_rows,
    whole_file,
)
from beamrank.formats.ids import BYTE_ORDER_MARK
from beamrank.formats.row_checks import RowError
from beamrank.storage.streams import open_stream

_CHECKED_BYTES = 1 << 18


def _check(url: str, fields: Fields) -> None:
    with open_stream(url) as file:
        beginning = file.read(_CHECKED_BYTES).removeprefix(BYTE_ORDER_MARK)
    found: set[str] = set()
    docs = 0
    for _, record in smart.split(beginning):
        try:
            found.update(smart.fields_of(record.decode("utf-8", "replace"))[1])
            docs += 1
        except RowError as error:
            if not docs:
                raise WrongFormatError(f"{url} does not hold SMART's records: its beginning {error}") from error
    missing = [name for name in fields or () if name not in found]
    if missing and docs:
        raise PreflightError(
            f"none of the first {docs} docs of {url} has the field `{missing[0]}` of `corpus.fields`; they have: "
            f"{', '.join(sorted(found))}"
        )


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    names = unit.fields or smart.TEXT_FIELDS
    with open_stream(unit.url) as file:
        content = file.read().removeprefix(BYTE_ORDER_MARK)
    records = list(smart.split(content))

    def parse(record: bytes) -> tuple[str, str]:
        try:
            return smart.parse(record.decode(), names)
        except UnicodeDecodeError as error:
            raise RowError(f"is not valid UTF-8 (byte 0x{record[error.start]:02x})") from error

    yield parse_rows(unit, [line - 1 for line, _ in records], [record for _, record in records], parse)


FORMAT = CorpusFormat("smart", (".all", ".dat", ".txt"), _check, whole_file, _read)
