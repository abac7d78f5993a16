"""Checks of lines: columns, white space, characters."""

from beamrank.formats.decode.base import BYTE_ORDER_MARK
from beamrank.formats.run_writer import RunFormat, text_formats
from contrib.lint.check import Found, RunState
from contrib.lint.run_rows import MAX_LINE_BYTES, Line, is_rank

_MOST_COLUMNS = 6
# A file of passages has rows of any number of words.
_TOP1000 = ". MS MARCO's top1000 files are unranked: give one as `candidates.run`"


def columns(line: Line, _run: RunState) -> str | None:
    if (
        not line.columns
        or line.is_comment
        or line.is_too_long
        or line.has_inner_cr
        or not line.has_wrong_columns
    ):
        return None
    return _explained(len(line.columns), line.format)


def _explained(count: int, of_run: RunFormat | None) -> str:
    """The problem of a line of so many columns, in a run of a format or of none yet."""
    if of_run is not None:
        longer = ": the line holds more than one row, or words after the last column"
        return (
            f"{count} columns, where the rows before are {_described(of_run)}"
            f"{longer * (count > len(of_run.columns))}"
        )
    accepted = "; ".join(map(_described, text_formats().values()))
    hint = {4: "; four are TREC qrels"}.get(count, _TOP1000 * (count > _MOST_COLUMNS))
    return f"{count} columns; accepted: {accepted}{hint}"


def _described(of_run: RunFormat) -> str:
    columns = of_run.columns
    return f"{of_run.title} rows of {len(columns)} columns ({' '.join(columns)})"


def blank_line(line: Line, _run: RunState) -> str | None:
    return None if line.columns or line.has_inner_cr else "blank line"


def utf8(line: Line, _run: RunState) -> str | None:
    try:
        line.text.decode()
    except UnicodeDecodeError as error:
        # A line that is too long is cut anywhere.
        return None if line.is_too_long else f"not valid UTF-8: byte 0x{line.text[error.start]:02x}"
    return None


def byte_order_mark(line: Line, _run: RunState) -> str | None:
    if line.number > 1 or not line.text.startswith(BYTE_ORDER_MARK):
        return None
    return (
        "the file begins with a byte order mark (U+FEFF): other tools read it as part of the "
        "first query_id"
    )


def crlf(line: Line, _run: RunState) -> str | None:
    return (
        "the line ends in CR LF: some tools read the CR as part of the last column"
        if _ends_in_cr(line)
        else None
    )


def _ends_in_cr(line: Line) -> bool:
    return line.text.endswith(b"\r")


def inner_cr(line: Line, _run: RunState) -> str | None:
    if not line.has_inner_cr:
        return None
    return (
        "a carriage return (CR) inside the line: some tools read two lines here. Lines must "
        "end in LF"
    )


def nul(line: Line, _run: RunState) -> str | None:
    return (
        "the line holds a NUL character, which ends a string in trec_eval"
        if b"\0" in line.text
        else None
    )


def separators(line: Line, _run: RunState) -> str | None:
    text = line.text.removesuffix(b"\r")
    if line.number == 1:
        text = text.removeprefix(BYTE_ORDER_MARK)
    if not line.is_row or text == line.separator.join(line.columns):
        return None
    name = "tab" if line.separator == b"\t" else "space"
    return f"columns must be separated by one {name} each, without white space before or after them"


def final_newline(line: Line, _run: RunState) -> str | None:
    return None if line.ended else "the last line does not end in LF: the file may be cut short"


def comment_row(line: Line, _run: RunState) -> str | None:
    if not line.is_comment or line.format is None or line.has_wrong_columns:
        return None
    if not is_rank(line.columns[line.format.columns.index("rank")]):
        return None
    return (
        "the line begins with `#` and looks like a row: trec_eval 10 skips it, other tools read it"
    )


def long_line(line: Line, _run: RunState) -> str | None:
    return f"the line is longer than {MAX_LINE_BYTES:,} bytes" if line.is_too_long else None


def no_rows(run: RunState) -> Found:
    if not run.topics:
        yield 1, "the file holds no rows"
