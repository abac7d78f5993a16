"""Rows of text files whose columns are separated by tabs or spaces: what runs and qrels have in common."""

from collections.abc import Iterator

from beamrank import storage
from beamrank.corpora.streams import open_stream
from beamrank.errors import DataError, PreflightError

_SHOWN = 5
_BOM = b"\xef\xbb\xbf"


class Rows:
    """The rows of one file, and what is wrong with them.

    Files compressed with gzip, bzip2, xz or zstd are known by their names; a named pipe will do. Blank lines are
    skipped. A line whose first character is `#` is a comment, as in trec_eval 10; comments are counted.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.comments: list[bytes] = []
        self.problem_count = 0
        self._problems: list[tuple[int, str]] = []

    def __iter__(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yields each row's line number, counted from 1, and its columns.

        Raises:
            PreflightError: the file cannot be read.
        """
        try:
            with open_stream(self.url, pipe=True) as file:
                for line, text in enumerate(file, 1):
                    columns = (text.removeprefix(_BOM) if line == 1 else text).split()
                    if not columns:
                        continue
                    if columns[0].startswith(b"#"):
                        self.comments.append(text)
                        continue
                    yield line, columns
        except DataError as error:
            raise PreflightError(self._explain(error)) from error

    def _explain(self, error: DataError) -> str:
        """Why the file cannot be read."""
        if isinstance(error.__cause__, FileNotFoundError):
            return f"there is no file {self.url}"
        if isinstance(error.__cause__, IsADirectoryError):
            runs = [each for each in storage.find(self.url) if each.endswith((".trec", ".tsv", ".txt"))][:_SHOWN]
            return f"{self.url} is a folder: give a file{', such as ' if runs else ''}{', '.join(runs)}"
        return str(error)

    def bad(self, line: int, reason: str) -> None:
        """Notes what is wrong with a line."""
        self.problem_count += 1
        self._problems = sorted([*self._problems, (line, reason)])[:_SHOWN]

    def check(self, what: str, rows: int) -> None:
        """Ends the reading.

        Raises:
            PreflightError: lines are wrong (it lists the first five), or there was no row.
        """
        if self.problem_count:
            listed = "".join(f"\n  line {line}: {reason}" for line, reason in self._problems)
            more = self.problem_count - len(self._problems)
            rest = f"\n  and {more:,} more" if more else ""
            noun = "problem" if self.problem_count == 1 else "problems"
            raise PreflightError(f"{self.url} is no sound {what}: {self.problem_count:,} {noun}{listed}{rest}")
        if not rows:
            raise PreflightError(f"{self.url} holds no rows: a {what} must have at least one")


def integer(column: bytes) -> int:
    """A whole number, written in digits.

    Raises:
        ValueError: it is none.
    """
    if b"_" in column:
        raise ValueError(column)
    return int(column)


def real(column: bytes) -> float:
    """A number, NaN and infinity included.

    Raises:
        ValueError: it is none.
    """
    if b"_" in column:
        raise ValueError(column)
    return float(column)


def shown(column: bytes) -> str:
    """A column for a message."""
    return repr(column.decode("utf-8", "backslashreplace"))
