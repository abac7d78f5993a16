"""Reading the released files: their text, JSON whose keys are unique, and errors that name file and line."""

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from beamrank.errors import DataError, PreflightError
from beamrank.formats.checks import BYTE_ORDER_MARK, RowError, check_doc_id, check_query_id
from beamrank.formats.rows import unreadable
from beamrank.storage.streams import open_stream


class Source:
    """A file and its text."""

    def __init__(self, url: str) -> None:
        """Reads it, decompressed by the ending of its name.

        Raises:
            PreflightError: it does not exist, cannot be read or is not UTF-8.
        """
        self.url = url
        try:
            with open_stream(url) as file:
                content = file.read().removeprefix(BYTE_ORDER_MARK)
        except DataError as error:
            raise PreflightError(unreadable(url, error)) from error
        try:
            self.text = content.decode()
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise PreflightError(
                f"{url}, line {line}: the byte {content[error.start]:#04x} is not valid UTF-8: convert the file, or "
                "fetch it again"
            ) from None

    def line(self, position: int) -> int:
        """The line of a position in the text."""
        return self.text.count("\n", 0, position) + 1

    def refuse(self, line: int, reason: str) -> NoReturn:
        """Raises PreflightError for a line."""
        raise PreflightError(f"{self.url}, line {line}: {reason}")

    def check_id(self, line: int, identifier: str, *, query: bool = False) -> None:
        """Refuses an id that cannot be used."""
        try:
            (check_query_id if query else check_doc_id)(identifier)
        except RowError as error:
            self.refuse(line, f"the row {error}")

    def json(self) -> Any:
        """The JSON value that the file holds; see `json_at`."""
        value, end = self.json_at(self._skip(0))
        if self._skip(end) < len(self.text):
            self.refuse(self.line(end), "there is more text behind the JSON value: is this the right file?")
        return value

    def elements(self) -> Iterator[tuple[int, Any]]:
        """The position and the value of each element of a JSON array, one at a time."""
        position = self._skip(0)
        if not self.text.startswith("[", position):
            self.refuse(self.line(position), "a JSON array is expected, which begins with [")
        position = self._skip(position + 1)
        while not self.text.startswith("]", position):
            value, end = self.json_at(position)
            yield position, value
            position = self._skip(end)
            if self.text.startswith(",", position):
                position = self._skip(position + 1)
            elif not self.text.startswith("]", position):
                what = "the file ends" if position == len(self.text) else f"{self.text[position]!r} stands"
                self.refuse(self.line(position), f"{what} where the array goes on or ends: fetch the file again")

    def json_at(self, position: int) -> tuple[Any, int]:
        """The JSON value at a position, and where it ends.

        Raises:
            PreflightError: it is not JSON, is nested too deeply, or an object has a key twice.
        """
        try:
            return _DECODER.raw_decode(self.text, position)
        except json.JSONDecodeError as error:
            self.refuse(error.lineno, f"not valid JSON ({error.msg}): the file may be truncated, fetch it again")
        except _TwiceError as error:
            key = json.dumps(str(error))
            first = self.text.find(key, position)
            self.refuse(self.line(self.text.find(key, first + 1)), f"the key {key} appears twice in one object")
        except (ValueError, RecursionError) as error:
            self.refuse(self.line(position), f"not a JSON value that can be read: {error}")

    def _skip(self, position: int) -> int:
        while position < len(self.text) and self.text[position] in " \t\r\n":
            position += 1
        return position


class _TwiceError(ValueError):
    """A key appears twice in an object."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _TwiceError(key)
        found[key] = value
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)


def plain(text: str) -> str:
    """A text on one line, its white space as single spaces."""
    return " ".join(text.split())
