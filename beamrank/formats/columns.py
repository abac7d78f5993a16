"""Rows of runs and qrels: text with tabs or spaces between columns, JSONL, Parquet."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora.readers.mteb import is_sample, sample_of
from beamrank.formats.corpora.readers.parquet import numbered_rows
from beamrank.formats.guess import packed_as
from beamrank.formats.ids import BYTE_ORDER_MARK, IdError, check_doc_id
from beamrank.formats.ids import shown as shown_text
from beamrank.formats.problems import Problems, counted
from beamrank.formats.row_checks import RowError, json_object
from beamrank.storage import files as storage
from beamrank.storage.streams import open_stream

_Number = TypeVar("_Number", int, float)
_SHOWN = 5


class FileRows:
    """The rows of one file, and their problems.

    Files compressed with gzip, bzip2, xz or zstd are recognized by their names; a named pipe is accepted. Blank lines
    are skipped. A line whose first character is `#` is a comment, as in trec_eval 10; comments are counted. Lines end
    in LF or CR LF: a CR elsewhere is a problem of its line, since some tools would read two rows there.

    JSONL and Parquet files have the names of their columns as the first row. A column that holds a list of docs, as
    MTEB's top_ranked has, gives a row (query_id, doc_id, rank) for each doc, and no names. For qrels, MTEB's re-ranking
    rows (corpora/readers/mteb.py) give a row (query_id, doc_id, relevance) for each doc.
    """

    def __init__(self, url: str, *, qrels: bool = False) -> None:
        self.url = url
        self._qrels = qrels
        self.comments: list[bytes] = []
        self._problems = Problems()

    def __iter__(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yields each row's line number, counted from 1, and its columns.

        Raises:
            PreflightError: the file cannot be read.
        """
        if self.url.endswith((".parquet", ".pq")):
            yield from self._columns_of(_parquet_rows(self.url))
            return
        try:
            with open_stream(self.url, pipe=True) as file:
                for line, text in enumerate(file, 1):
                    if line == 1:
                        text = self._first(text)
                        if _is_json(text):
                            yield from self._columns_of(self._json_rows(itertools.chain([text], file)))
                            return
                    if b"\r" in text and b"\r" in text.removesuffix(b"\n").removesuffix(b"\r"):
                        self.bad(line, "a carriage return (CR) inside the line. Lines must end in LF or CR LF")
                        continue
                    columns = text.split()
                    if not columns:
                        continue
                    if columns[0].startswith(b"#"):
                        self.comments.append(text)
                        continue
                    yield line, columns
        except DataError as error:
            raise PreflightError(unreadable(self.url, error)) from error

    def _json_rows(self, lines: Iterator[bytes]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for line, text in enumerate(lines, 1):
            try:
                if text.strip():
                    yield line, json_object(text.decode())
            except UnicodeDecodeError:
                self.bad(line, "the row is not valid UTF-8")
            except RowError as error:
                self.bad(line, f"the row {error}")

    def _columns_of(self, rows: Iterator[tuple[int, Mapping[str, Any]]]) -> Iterator[tuple[int, list[bytes]]]:
        """The columns of records; all have the names of the first."""
        names: list[str] | None = None
        of_mteb = False
        for line, row in rows:
            of_mteb = of_mteb or (self._qrels and is_sample(row))
            if of_mteb:
                yield from self._judgments(line, row)
                continue
            if names is None:
                names = list(row)
                if not any(isinstance(value, list) for value in row.values()):
                    yield line, [name.encode() for name in names]
            if row.keys() != set(names):
                self.bad(line, f"the row has the fields {', '.join(row)}, and the first row {', '.join(names)}")
                continue
            try:
                for columns in _expanded([row[name] for name in names]):
                    yield line, columns
            except RowError as error:
                self.bad(line, f"the row {error}")

    def _judgments(self, line: int, row: Mapping[str, Any]) -> Iterator[tuple[int, list[bytes]]]:
        try:
            sample = sample_of(line, row)
        except RowError as error:
            self.bad(line, f"the row {error}")
            return
        for doc_id, (_, relevance) in sample.docs.items():
            yield line, [sample.query_id.encode(), doc_id.encode(), b"%d" % relevance]

    def _first(self, text: bytes) -> bytes:
        """The first line, without a byte order mark."""
        packed = packed_as(text)
        if packed:
            raise PreflightError(f"{self.url} does not hold text{packed}")
        return text.removeprefix(BYTE_ORDER_MARK)

    def bad(self, line: int, reason: str) -> None:
        """Notes the problem of a line."""
        self._problems.add(line, reason)

    def check_id(self, line: int, identifier: str) -> None:
        """Notes an id that cannot be used. No query_id begins with `#` here: its line would be a comment."""
        try:
            check_doc_id(identifier)
        except IdError as error:
            self.bad(line, f"the row {error}")

    def check(self, what: str, rows: int) -> None:
        """Checks the rows after the last one was read.

        Raises:
            PreflightError: lines are wrong (the first of each kind is listed), or there are no rows.
        """
        count = self._problems.count
        if count:
            found = f"{counted(count, 'problem')}{self._problems.listed()}"
            raise PreflightError(f"{self.url} is not a valid {what}: {found}")
        if not rows:
            raise PreflightError(f"{self.url} holds no rows: a {what} must have at least one")


def _is_json(line: bytes) -> bool:
    """Whether a line is an object, and not a row whose query_id begins with a brace."""
    try:
        return line.startswith(b"{") and bool(json_object(line.decode()))
    except (UnicodeDecodeError, RowError):
        return False


def _parquet_rows(url: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        yield from numbered_rows(url)
    except DataError as error:
        raise PreflightError(unreadable(url, error)) from error


def _expanded(values: list[Any]) -> Iterator[list[bytes]]:
    """The columns of a record; of a query and a list of docs, those of a run without scores."""
    match values:
        case [query_id, list(docs)]:
            doc_ids = [_written(doc_id) for doc_id in docs]
            if len(set(doc_ids)) < len(doc_ids):
                raise RowError(f"names a doc of query {query_id!r} twice")
            for rank, doc_id in enumerate(doc_ids, 1):
                yield [_written(query_id), doc_id, b"%d" % rank]
        case _:
            yield [_written(value) for value in values]


def _written(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, float) and value.is_integer():
        return b"%d" % value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value).encode()
    raise RowError(f"has a value that is neither text nor a number: {value!r:.60}")


def unreadable(url: str, error: DataError) -> str:
    """Why a file cannot be read."""
    if isinstance(error.__cause__, FileNotFoundError):
        return f"there is no file {url}"
    if isinstance(error.__cause__, IsADirectoryError):
        # Not below it: it may be the root of a disk.
        names = sorted(name for name in storage.sizes_bytes(url) if name.endswith((".trec", ".tsv", ".txt")))
        runs = [storage.join(url, name) for name in names[:_SHOWN]]
        return f"{url} is a folder: give a file{', such as ' if runs else ''}{', '.join(runs)}"
    return str(error)


def number(kind: Callable[[bytes], _Number], column: bytes) -> _Number:
    """An `int`, or a `float` (NaN and infinity included), without the underscores that Python allows.

    Raises:
        ValueError: the column is not such a number.
    """
    if b"_" in column:
        raise ValueError(column)
    return kind(column)


def shown(column: bytes) -> str:
    """A column for a message."""
    return shown_text(column.decode("utf-8", "backslashreplace"))
