"""The one reader of tables: finds the columns of a file once, and reads its rows as record batches.

A whole block of rows is converted column by column. Only where that fails, each row is looked at,
which also tells what is wrong with it.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.errors import PreflightError
from beamrank.formats.checks import joined
from beamrank.formats.decode.base import (
    Decoder,
    FolderColumns,
    RecordsDecoder,
    Rows,
    WrongFormatError,
    ignore,
)
from beamrank.formats.decode.json_rows import JsonDecoder, is_json
from beamrank.formats.decode.lines import LinesDecoder, open_lines
from beamrank.formats.decode.lists import ListDecoder
from beamrank.formats.decode.packing import check_binary, check_text
from beamrank.formats.decode.tables import (
    TableDecoder,
    is_table,
    open_table_file,
    table_in_memory,
)
from beamrank.formats.files import Beginning, Format, InputFile
from beamrank.formats.id_places import repeated_rows
from beamrank.formats.rejects import Problems, Rejects
from beamrank.formats.schemas import (
    NO_HINTS,
    TITLE,
    Binding,
    ColumnsError,
    Hints,
    Schema,
    bind,
    has_usual_name,
    names_columns,
    plain_name,
)
from beamrank.formats.values import (
    RowError,
    Text,
    plain_type,
    values_of,
    whole_of,
)
from beamrank.notes import Note, counted
from beamrank.storage.streams import errors_as

_PLACE = "place"
# Rows that cannot be used after which a file is not read further to check its format.
_CHECKED_ROWS = 1000
_UNNAMED = Format()


class TableReader:
    """The rows of one file, and their problems.

    Attributes:
        url: the file, for messages.
        schema: what the input is.
        decoder: reads the file.
        table: its rows, with the columns that folders name.
        problems: the rows that cannot be used.
        binding: the places of the columns of each meaning; empty of a file without rows.
        layout: the name of the format of rows without names; empty for a file with names.
    """

    def __init__(
        self,
        file: InputFile | pa.Table,
        schema: Schema,
        hints: Hints = NO_HINTS,
        rejects: Rejects | None = None,
        formats: Mapping[str, Format] = {},
    ) -> None:
        """Opens a file, or a table in memory, whose rows count from 0.

        Args:
            file: what is read.
            schema: what the input is.
            hints: what the configuration says about the columns.
            rejects: takes the rows that are left out; by default, each is an error.
            formats: the named formats that the input can have.

        Raises:
            PreflightError: the file cannot be read, or has no such columns.
        """
        named, folders = formats.get(hints.format, _UNNAMED), dict[str, str | None]()
        self.schema = schema = named.schema(schema)
        if isinstance(file, InputFile):
            self.url, folders = file.url, file.partition
            opened: Callable[[], Decoder] = partial(_open, file, schema, hints, formats)
        else:
            self.url = f"the table of the {schema.what.removeprefix('file of ')}"
            opened = partial(table_in_memory, self.url, file)
        self.problems = Problems(self.url, rejects or Rejects("rows"))
        # A format that opens its files makes the texts.
        self._hints = hints._replace(fields=None, template=None) if named.open else hints
        self.layout = ""
        with errors_as(PreflightError, self.url):
            self.decoder: Decoder = opened()
            if schema.lists and set(map(plain_name, self.decoder.names)) == set(schema.lists):
                self.decoder = ListDecoder(self.decoder, schema.lists)
            self.table = self.decoder
            if self.decoder.names and folders:
                self.table = FolderColumns(self.decoder, self._not_repeated(folders))
            binding = self._bound()
            self._left_out = self._without_values(binding)
        self.binding = {m: at for m, at in binding.items() if m not in self._left_out}

    @property
    def names(self) -> Mapping[str, str]:
        """The names of the columns by their meanings; columns without a header have none."""
        if not self.decoder.names:
            return {}
        return {meaning: self.table.names[places[-1]] for meaning, places in self.binding.items()}

    @property
    def notes(self) -> list[Note]:
        """Notes for the user about the file."""
        classes = [
            Note(
                f"the {meaning} is the number of a class",
                ", ".join(f"{number} {name}" for number, name in enumerate(names)),
                "the numbers are read, not their names",
            )
            for meaning, places in self.binding.items()
            if (names := self.decoder.classes(places[-1]))
        ]
        return [*self.decoder.notes, *classes]

    def noun(self, end: int) -> str:
        """The unit that the places of a range that ends there count."""
        return "byte" if end and self.decoder.noun == "line" else self.decoder.noun

    def batches(self, start: int = 0, end: int = 0) -> Iterator[pa.RecordBatch]:
        """The rows of a range: the columns of the schema (null where the file lacks one), and the
        place of each row (int64).

        Args:
            start: the first byte, row group or record batch.
            end: the end of the range, exclusive; 0 for the rest of the file. Places in text are
                bytes where it is given, else lines.

        Raises:
            PreflightError: the file cannot be read. Rows that cannot be used are refused by
                `check`.
        """
        wanted = {
            at: self.schema.columns[meaning].kind.wanted
            for meaning, places in {**self.binding, **self._left_out}.items()
            for at in places
        }
        with errors_as(PreflightError, self.url):
            for rows in self.table.rows(start, end, wanted, self.bad):
                if len(rows.places) and self.binding:
                    yield self._converted(rows)

    def check_beginning(self) -> None:
        """Raises WrongFormatError where none of the first rows can be used, or there are none."""
        # The columns of a table have types.
        if isinstance(self.decoder, TableDecoder) and self.binding:
            return
        for batch in self.batches():
            if len(batch):
                return
            if self.problems.count >= _CHECKED_ROWS:
                break
        self.check(0)

    @property
    def has_header(self) -> bool:
        """Whether the first line of a file of text names the columns."""
        return isinstance(self.decoder, LinesDecoder) and bool(self.decoder.names)

    def header_notes(self, key: str) -> list[str]:
        """The row that was taken for a header, and rows that could be one, where the configuration
        does not say it; and what the columns of the file are.
        """
        line = ", ".join(map(str, self.decoder.first))[:80]
        notes = [f"{self.url}: {note}" for note in self.notes]
        if self._hints.header is not None or not isinstance(self.decoder, LinesDecoder):
            return notes
        names = [str(name) for name in self.decoder.first]
        if self.has_header:
            notes.append(f"the first line of {self.url} is a header ({line}), and no row")
        elif not any(map(str.isdecimal, names)) and bind(self.schema, names):
            notes.append(
                f"the first line of {self.url} is read as a row, and may be a header ({line}): set "
                f"`{key}.header` to true or false"
            )
        return notes

    def read_all(self) -> pa.Table:
        """All rows of the file."""
        kinds = {name: column.kind.stored for name, column in self.schema.columns.items()}
        return pa.Table.from_batches(self.batches(), pa.schema({**kinds, _PLACE: pa.int64()}))

    def bad(self, place: int, error: RowError, row: Any = "") -> None:
        """Notes a row that cannot be used, which is left out."""
        self.problems.add(int(place), error, row, self.decoder.noun)

    def check(self, rows: int = 1) -> None:
        """Raises PreflightError where rows, which were read, cannot be used; WrongFormatError where
        there are no others.
        """
        problems = self.problems
        error_of = PreflightError if rows else WrongFormatError
        if problems.are_fatal:
            listed = problems.listed(f"{self.decoder.noun} ")
            first = problems.first
            raise error_of(
                f"{self.url} is not a valid {self.schema.what}: "
                f"{counted(problems.count, 'problem')}{problems.allowed}{listed}",
                kind=first.kind,
                file=self.url,
                place=first.line,
            )
        if not rows:
            raise error_of(
                f"{self.url} holds no rows: a {self.schema.what} must have at least one",
                kind="no-rows",
                file=self.url,
            )

    def _not_repeated(self, partition: Mapping[str, str | None]) -> dict[str, str | None]:
        """The columns that folders name, without folders that a column of the file repeats."""
        try:
            binding = bind(self.schema, self.decoder.names, self._hints)
        except ColumnsError:
            return dict(partition)
        kept = {}
        for name, value in partition.items():
            meaning = next(iter(bind(self.schema, [name])), "")
            is_own = meaning in binding and self._holds_only(binding[meaning][-1], value)
            if not is_own and (meaning or name not in self.decoder.names):
                kept[name] = value
        return kept

    def _holds_only(self, at: int, value: str | None) -> bool:
        """Whether each value of a column of the file is the one that a folder names."""
        blocks = self.decoder.rows(0, 0, {at: pa.string()}, ignore)
        values = itertools.chain.from_iterable(values_of(rows.columns[at]) for rows in blocks)
        return all(str(whole_of(held)) == value for held in values)

    def _bound(self) -> Binding:
        """The places of the columns; raises PreflightError where some are missing."""
        decoder, schema = self.table, self.schema
        if not decoder.width:
            return {}
        if not decoder.names:
            return self._unnamed()
        if self._hints.numbers:
            raise ColumnsError(
                f"{self.url} has names for its columns: {', '.join(decoder.names)}. `columns` "
                "needs names, not numbers",
                kind="column-missing",
                file=self.url,
            )
        try:
            names = self._names_with_values()
            binding = bind(schema, names, self._hints, self.decoder.texts)
            if not schema.is_complete(binding):
                binding = bind(schema, decoder.names, self._hints, self.decoder.texts)
        except ColumnsError as error:
            raise error.of(self.url) from error
        if not schema.is_complete(binding):
            raise self._lacking()
        for meaning, places in binding.items():
            for at in places:
                self._check_type(meaning, at)
        return binding

    def _names_with_values(self) -> list[str]:
        """The names of the columns; empty for columns without values, unless they are given."""
        given = {*self._hints.names.values(), *(self._hints.fields or ()), TITLE}
        empty = self.decoder.empty
        return [
            "" if at in empty and name not in given else name
            for at, name in enumerate(self.table.names)
        ]

    def _lacking(self) -> WrongFormatError:
        all_names = enumerate(self.table.names or map(str, self.decoder.first))
        names = {at: name for at, name in all_names if at not in self.decoder.empty}
        lists = [f"`{name}`" for at, name in names.items() if self._is_list(at)]
        remedy, kind = self.schema.remedy, "column-missing"
        if lists:
            kind = "list-column"
            remedy = (
                f"The lists of {', '.join(lists)} are no rows: write a row for each element, or "
                "name the format of the file in `format`"
            )
        return WrongFormatError(
            f"{self.url} needs columns for {self.schema.needed}, and it has: "
            f"{', '.join(names.values())}. {remedy}",
            kind=kind,
            file=self.url,
        )

    def _is_list(self, at: int) -> bool:
        if self.table.first:
            return isinstance(self.table.first[at], list)
        kind = plain_type(self.table.types.get(at, pa.null()))
        return isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType)

    def _check_type(self, meaning: str, at: int) -> None:
        """Raises PreflightError where no value of a column can be used."""
        if self._is_list(at):
            raise self._lacking()
        kind = plain_type(self.table.types.get(at, pa.null()))
        fits = pa.types.is_null(kind) or self.schema.columns[meaning].kind.fits(kind)
        if not fits and self._has_values(at):
            raise PreflightError(
                f"{self.url} has the {meaning} of its rows in the column "
                f"`{self.table.names[at]}`, which is of type {kind}: rename the column, convert "
                f"it, or name another in `columns: {{{meaning}: ...}}`",
                kind="column-type",
                file=self.url,
            )

    def _has_values(self, at: int) -> bool:
        """Whether a column of a table is not null in every row; programs choose its type then."""
        rows = self.table.rows(0, 0, {at: pa.null()}, ignore)
        return any(len(block.places) > block.columns[at].null_count for block in rows)

    def _unnamed(self) -> Binding:
        """The places in rows without names: by the configuration's numbers, or by their width."""
        numbers, width = self._hints.numbers, self.decoder.width
        if numbers:
            binding = {meaning: (number - 1,) for meaning, number in numbers.items()}
            if max(numbers.values()) > width or not self.schema.is_complete(binding):
                raise PreflightError(
                    f"{self.url} has rows of {width} columns, and `columns` needs numbers from 1 "
                    f"to {width} for {self.schema.needed}",
                    kind="column-missing",
                    file=self.url,
                )
            self.layout = "numbered"
            return binding
        for name, meanings in self.schema.unnamed.items():
            if len(meanings) == width:
                self.layout = name
                return {
                    meaning: (at,)
                    for at, meaning in enumerate(meanings)
                    if meaning in self.schema.columns
                }
        first = list(map(str, self.decoder.first))
        check_binary(self.url, "".join(first).encode())
        if not self.schema.unnamed or (width > 1 and has_usual_name(self.schema, first)):
            raise self._lacking()
        others = self.schema.other_widths
        other = others.get(min(width, max(others, default=0)), "")
        accepted = "; ".join(
            f"{len(meanings)} columns ({' '.join(meanings)})"
            for meanings in self.schema.unnamed.values()
        )
        raise WrongFormatError(
            f"{self.url} has {counted(width, 'column')} in its first row, and no header names "
            f"them; accepted: {accepted}. {other}",
            kind="columns",
            file=self.url,
            place=1,
        )

    def _without_values(self, binding: Binding) -> Binding:
        """The columns that the first row has no value in, and that a row does not need."""
        optional = [
            meaning for meaning in binding if self.schema.is_complete(binding.keys() - {meaning})
        ]
        # Reading the beginning again can take long.
        if not optional or isinstance(self.decoder, RecordsDecoder):
            return {}
        places = {at: pa.null() for meaning in optional for at in binding[meaning]}
        rows = next(self.table.rows(0, 0, places, ignore), None)
        if rows is None:
            return {}
        return {
            meaning: binding[meaning]
            for meaning in optional
            if values_of(rows.columns[binding[meaning][0]][:1]) == [None]
        }

    def _converted(self, rows: Rows) -> pa.RecordBatch:
        """Rows as a batch; rows that cannot be used are problems."""
        try:
            for places in self._left_out.values():
                _check_null(rows.columns[places[0]])
            columns = {
                meaning: join_texts(
                    [kind.array(rows.columns[at]) for _, at, kind in parts], self._template(meaning)
                )
                for meaning, parts in self._parts.items()
            }
            self._check_header(columns)
        except (ValueError, pa.ArrowException):
            return self._by_row(rows)
        return self._batch(columns, rows.places)

    @cached_property
    def _parts(self) -> Mapping[str, list[tuple[str, int, Any]]]:
        """The columns of each meaning: the name in messages, the place and the kind."""
        return {
            meaning: [self._part(meaning, at, len(places) > 1) for at in places]
            for meaning, places in self.binding.items()
        }

    def _part(self, meaning: str, at: int, is_one_of_several: bool) -> tuple[str, int, Any]:
        kind = self.schema.columns[meaning].kind
        if not isinstance(kind, Text):
            return meaning, at, kind
        name = self.table.names[at] if self.table.names else meaning
        # A title may be missing; another part of a text may not, unless a template says so.
        is_title = is_one_of_several and name.lower() == TITLE
        is_given = self._hints.fields is not None and self._hints.template is None
        return name, at, replace(kind, or_empty=kind.or_empty or (is_title and not is_given))

    def _template(self, meaning: str) -> tuple[str, ...] | None:
        return self._hints.template if self.schema.columns[meaning].titled else None

    def _check_header(self, columns: Mapping[str, Any]) -> None:
        """Raises ValueError where a row can be the header again."""
        for meaning, name in self.names.items() if self.has_header else ():
            column = columns[meaning]
            is_id = pa.types.is_string(column.type)
            if is_id and pc.any(pc.equal(column, name)).as_py():
                raise ValueError("a row can be the header")

    def _by_row(self, rows: Rows) -> pa.RecordBatch:
        lists = {at: values_of(column) for at, column in rows.columns.items()}
        kept = []
        for number, place in enumerate(rows.places):
            values = {at: column[number] for at, column in lists.items()}
            try:
                kept.append((place, self._row(values)))
            except RowError as error:
                self.bad(place, error, list(values.values()))
        columns = {
            meaning: pa.array([row[meaning] for _, row in kept], column.kind.stored)
            for meaning, column in self.schema.columns.items()
            if meaning in self.binding
        }
        return self._batch(columns, [place for place, _ in kept])

    def _row(self, values: Mapping[int, Any]) -> dict[str, Any]:
        """The values of a row by their meanings; raises RowError where one cannot be used."""
        names = self.table.names
        if self.has_header and all(values[at] == names[at] for at in values):
            raise RowError("is the header again", "header-again", fatal=True)
        for places in self._left_out.values():
            if values[places[0]] is not None:
                raise RowError(
                    f"has a value in `{names[places[0]]}`, which is null in the first row", "null"
                )
        return {
            meaning: joined(
                [kind.value(name, values[at]) for name, at, kind in parts], self._template(meaning)
            )
            for meaning, parts in self._parts.items()
        }

    def _batch(self, columns: Mapping[str, Any], places: Any) -> pa.RecordBatch:
        if self.schema.hashed and self.schema.hashed not in columns:
            hashes = _hashes(columns["query_id"], columns["doc_id"])
            columns = {**columns, self.schema.hashed: hashes}
        arrays = {
            meaning: columns[meaning]
            if meaning in columns
            else pa.nulls(len(places), column.kind.stored)
            for meaning, column in self.schema.columns.items()
        }
        return pa.record_batch({**arrays, _PLACE: pa.array(np.asarray(places, np.int64))})


def _open(file: InputFile, schema: Schema, hints: Hints, formats: Mapping[str, Format]) -> Decoder:
    """Opens a file: by its format, its name, or else its first bytes."""
    named = formats.get(hints.format, _UNNAMED)
    if named.open:
        return named.open(file, hints)
    beginning = Beginning(file.url, file.source.open)
    if not beginning.is_table:
        _check_rows(file.url, schema, beginning.record)
    for known in () if hints.format else formats.values():
        if known.open and known.look.matches(beginning):
            return known.open(file, hints)
    kind, content = named.holds or hints.format, beginning.content
    is_text = kind in ("csv", "tsv")
    if not is_text and is_table(file.url, content):
        return open_table_file(file.url, content)
    if kind == "json" or (not is_text and is_json(content)):
        check_text(file.url, content)
        titled = any(column.titled for column in schema.columns.values())
        return JsonDecoder(file.source, [TITLE] if titled else [])
    return open_lines(file.source, schema, hints._replace(format=kind))


def _check_rows(url: str, schema: Schema, record: Mapping[str, Any]) -> None:
    """Raises PreflightError where the first object of JSON is a whole table."""
    parts = list(record.values())
    is_table = bool(parts) and all(isinstance(part, dict) for part in parts)
    if is_table and any(names_columns(schema, list(names)) for names in (record, parts[0])):
        raise PreflightError(
            f"{url} is one JSON object of a whole table, as pandas' `to_json` writes it by "
            'default: write a line for each row, with `to_json(path, orient="records", '
            "lines=True)`",
            kind="column-objects",
            file=url,
        )


def check_all(files: Sequence[TableReader], rows: int) -> None:
    """Raises as `TableReader.check`, where the rows of some file, which were read, cannot be used,
    or all files have none.
    """
    wrong = (file for file in files if file.problems.are_fatal)
    next(wrong, files[0]).check(rows)


def notes_of(files: Iterable[TableReader], rejects: Rejects | None) -> tuple[Note, ...]:
    """The notes of files, each once."""
    of_files = dict.fromkeys(note for file in files for note in file.notes)
    return (*(() if rejects is None else rejects.notes()), *of_files)


def again(
    files: Sequence[TableReader], tables: Sequence[pa.Table], names: Sequence[str]
) -> Iterator[tuple[int, TableReader, dict[str, Any], dict[str, Any], str]]:
    """The rows of several files whose values in some columns a row before has: each with its number
    in all tables, its file, its values, the values of the first such row, and where this is.
    """
    table = pa.concat_tables(tables)
    starts = np.cumsum([0, *map(len, tables)])
    for row, first in repeated_rows(*map(table.column, names)):
        now, before = (table.slice(at, 1).to_pylist()[0] for at in (row, first))
        here, there = np.searchsorted(starts, [row, first], side="right") - 1
        is_here = here == there
        place = f"{files[there].decoder.noun} {before[_PLACE]}" if is_here else "an earlier file"
        yield row, files[here], now, before, place


def without(table: pa.Table, rows: Sequence[int]) -> pa.Table:
    """A table without some rows; millions of topics are not copied where all stay."""
    if not rows:
        return table
    return table.filter(pa.array(np.isin(np.arange(len(table)), rows, invert=True)))


def join_texts(parts: list[pa.Array], template: tuple[str, ...] | None) -> pa.Array:
    """`joined` of columns."""
    if template is not None:
        pieces = (pa.scalar(piece, pa.large_string()) for piece in (*template, ""))
        first, *after, separator = pieces
        pairs = zip(parts, after, strict=True)
        return pc.binary_join_element_wise(first, *itertools.chain.from_iterable(pairs), separator)
    if len(parts) == 1:
        return parts[0]
    nulled = [pc.if_else(pc.equal(part, ""), None, part) for part in parts]
    return pc.binary_join_element_wise(*nulled, " ", null_handling="skip")


def _hashes(query_ids: pa.Array, doc_ids: pa.Array) -> pa.Array:
    """The first 63 bits of the SHA-256 of each query_id, a space and the doc_id."""
    keys = map("{} {}".format, query_ids.to_pylist(), doc_ids.to_pylist())
    digests = (hashlib.sha256(key.encode()).digest() for key in keys)
    return pa.array([int.from_bytes(digest[:8], "big") >> 1 for digest in digests], pa.int64())


def _check_null(column: Any) -> None:
    nulls = column.count(None) if isinstance(column, list) else column.null_count
    if nulls < len(column):
        raise ValueError("a value where the first row has none")
