"""Topics, one a line: JSONL, BEIR's JSONL, and the section paths of TREC CAR, alone or in qrels."""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.formats.names import Columns
from beamrank.formats.qrels import FORMATS as QRELS_FORMATS
from beamrank.formats.row_checks import (
    RowError,
    check_surrogates,
    id_of,
    json_object,
    missing_field,
    text_of,
    whole_of,
)

_IDS, _TEXTS = ("query_id", "_id", "id", "qid", "topic_id"), ("text", "query")
_BEIR_IDS, _BEIR_TEXTS = ("_id", *(name for name in _IDS if name not in ("_id", "id"))), ("text",)
_QRELS = QRELS_FORMATS["trec"].columns


def split(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, each with its number."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        line = line.removesuffix(b"\r")
        if line:
            yield number, line


def split_parquet(content: bytes, columns: Columns | None = None) -> Iterator[tuple[int, bytes]]:
    """The rows of a Parquet file as lines of JSON, each with its number; of its columns, those that topics have."""
    known = [*_IDS, *_TEXTS, *(columns or {}).values()]
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as file:
            names = file.schema_arrow.names
            found = [name for name in dict.fromkeys(known) if name in names]
            rows = file.read(columns=found).to_pylist()
    except pa.ArrowInvalid as error:
        raise RowError(f"is not Parquet: {error}") from error
    if rows and not found:
        raise missing_field("` or `".join(_IDS), names)
    for number, row in enumerate(rows, start=1):
        row = {name: whole_of(value) for name, value in row.items()}
        yield number, json.dumps(row, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")


def split_beir(content: bytes, columns: Columns | None = None) -> Iterator[tuple[int, bytes]]:
    """The lines of BEIR's own packaging, or the rows of the Parquet files that Hugging Face has of it."""
    return split_parquet(content, columns) if content.startswith(b"PAR1") else split(content)


def json_parser(
    rows: Iterable[tuple[int, bytes]], columns: Columns, of_beir: bool = False
) -> Callable[[str], tuple[str, str]]:
    """What reads the id and the text of the rows of a file; a field that is null in all of them is none."""
    names = {name for _, line in rows for name in _given(line)}
    known = (_BEIR_IDS, _BEIR_TEXTS) if of_beir else (_IDS, _TEXTS)
    ids, texts = (tuple(key for key in keys if key in names) or keys for keys in _keys(columns, *known))
    return partial(_parse_json, id_keys=ids, text_keys=texts)


def _given(line: bytes) -> list[str]:
    """The fields of a row that are not null; none where it cannot be read, which its parser says."""
    try:
        return [name for name, value in json_object(line.decode()).items() if value is not None]
    except (RowError, UnicodeDecodeError):
        return []


def parse_json(line: str, columns: Columns | None = None) -> tuple[str, str]:
    """`query_id`, `_id` or `id` (an integer becomes its decimal digits), and `text` or `query`; or named ones.

    Raises:
        RowError: a field is missing or is not a string.
    """
    return _parse_json(line, *_keys(columns, _IDS, _TEXTS))


def parse_beir(line: str, columns: Columns | None = None) -> tuple[str, str]:
    """`_id` and `text`, or named ones.

    Raises:
        RowError: a field is missing or is not a string.
    """
    return _parse_json(line, *_keys(columns, _BEIR_IDS, _BEIR_TEXTS))


def _keys(columns: Columns | None, ids: tuple[str, ...], texts: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    given = columns or {}
    return (given["query_id"],) if "query_id" in given else ids, (given["text"],) if "text" in given else texts


def _parse_json(line: str, id_keys: tuple[str, ...], text_keys: tuple[str, ...]) -> tuple[str, str]:
    row = json_object(line)
    text_key = _key(row, text_keys)
    query_id, text = id_of(row[_key(row, id_keys)]), text_of(text_key, row[text_key])
    check_surrogates(line, query_id, text)
    return query_id, text


def _key(row: dict[str, object], keys: tuple[str, ...]) -> str:
    found = next((key for key in keys if key in row), None)
    if found is None:
        raise missing_field("` or `".join(keys), row)
    return found


def split_qrels(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines of TREC qrels, without comments and repetitions of the query_id of the line before."""
    before: bytes | None = None
    for number, line in split(content):
        query_id = line.split(None, 1)[:1]
        if query_id and query_id[0] != before and not line.startswith(b"#"):
            before = query_id[0]
            yield number, line


def query_id_of(line: str) -> str:
    """The query_id of a line of TREC qrels.

    Raises:
        RowError: the line does not have four columns.
    """
    columns = line.split()
    if len(columns) != len(_QRELS):
        raise RowError(f"has {len(columns)} columns where the four of TREC qrels are expected ({' '.join(_QRELS)})")
    return columns[0]


def parse_car_as_2019(line: str) -> tuple[str, str]:
    """The line as the id; its text as the code of 2019 makes it: `%20` is the only escape that is decoded."""
    return line, line.replace("enwiki:", "").replace("%20", " ").replace("/", " ")


def parse_car(line: str) -> tuple[str, str]:
    """The line as the id; its text without a leading `enwiki:`, percent-decoded, with each `/` a space.

    Raises:
        RowError: it is not UTF-8 when percent-decoded.
    """
    try:
        text = unquote(line.removeprefix("enwiki:"), errors="strict")
    except UnicodeDecodeError as error:
        raise RowError(f"{line!r} is not UTF-8 when percent-decoded") from error
    return line, text.replace("/", " ")
