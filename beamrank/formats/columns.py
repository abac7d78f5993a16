"""Rows of text files whose columns are separated by tabs or spaces: runs and qrels."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from beamrank.errors import DataError, PreflightError
from beamrank.formats.guess import packed_as
from beamrank.formats.ids import BYTE_ORDER_MARK, IdError, check_doc_id
from beamrank.formats.ids import shown as shown_text
from beamrank.formats.problems import Problems, counted
from beamrank.storage import files as storage
from beamrank.storage.streams import open_stream

_Number = TypeVar("_Number", int, float)
_SHOWN = 5


class FileRows:
    """The rows of one file, and their problems.

    Files compressed with gzip, bzip2, xz or zstd are recognized by their names; a named pipe is accepted. Blank lines
    are skipped. A line whose first character is `#` is a comment, as in trec_eval 10; comments are counted. Lines end
    in LF or CR LF: a CR elsewhere is a problem of its line, since some tools would read two rows there.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.comments: list[bytes] = []
        self._problems = Problems()

    def __iter__(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yields each row's line number, counted from 1, and its columns.

        Raises:
            PreflightError: the file cannot be read.
        """
        try:
            with open_stream(self.url, pipe=True) as file:
                for line, text in enumerate(file, 1):
                    if line == 1:
                        text = self._first(text)
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
