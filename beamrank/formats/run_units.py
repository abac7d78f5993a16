"""A given run: its files and their digest, the units that are read independently, and the rows of a
unit.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar

import pyarrow as pa

from beamrank.errors import PreflightError
from beamrank.formats.corpora import FORMATS
from beamrank.formats.files import Beginning, FormatGuesser, InputFile, Paths, shown_paths
from beamrank.formats.reader import TableReader
from beamrank.formats.rejects import NO_LIMIT, Rejects, row_place
from beamrank.formats.run_order import RunLayout
from beamrank.formats.runs import open_run_file, run_files
from beamrank.formats.schemas import NO_HINTS, Hints
from beamrank.formats.texts.units import CorpusUnit
from beamrank.storage import files as storage
from beamrank.storage.digested import DigestedFile, changed, digest_file
from beamrank.storage.documents import digest
from beamrank.storage.row_files import read_rows, write_rows

UNIT_BYTES = 64 << 20
# The launcher reads a run up to this size by itself.
SMALL_BYTES = 64 << 20
_SAMPLE_ROWS = 2_000_000
_TIMES_LARGER = 8
_FILES_AT_ONCE = 16
_Value = TypeVar("_Value")
# The bytes 0x80 to 0xbf of UTF-8, as they look when they were read as Latin-1 or as Windows-1252.
_CONTINUED = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_TWICE_ENCODED = re.compile(f"[ÂÃ][{_CONTINUED}]|â[{_CONTINUED}]{{2}}")
# The runs that this process has digested, by the digest.
_digested: dict[str, "DigestedRun"] = {}


class RunUnit(NamedTuple):
    """A part of a run that is read on its own.

    Attributes:
        file: its file, as it was digested.
        root: the file's `InputFile.root`.
        size_bytes: about how large it is.
        start: the first byte, row group or record batch.
        end: the end of the range, exclusive; 0, like `start`, for a whole file.
    """

    file: DigestedFile
    root: str
    size_bytes: int
    start: int = 0
    end: int = 0

    @property
    def input(self) -> InputFile:
        return InputFile(self.file.url, self.root)


@dataclass(frozen=True)
class DigestedRun:
    """The digest of a run, and the files that it covers, in their order, each as one unit."""

    digest: str
    files: tuple[RunUnit, ...]

    def check(self, expected: str) -> None:
        """Raises DataError where the run does not have the digest that was planned with."""
        if self.digest == expected:
            return
        before = _digested.get(expected)
        url, what = self.files[0].file.url, "changed"
        if before is not None:
            old, new = (
                {unit.file.url: unit.file.content for unit in run.files} for run in (before, self)
            )
            url = min(dict(old.items() ^ new.items()))
            what = "was removed" if url not in new else "was added" if url not in old else "changed"
        raise changed(url, what)


def run_bytes(paths: Paths) -> int:
    """The size of all files of a run."""
    return sum(_sizes_bytes(run_files(paths)))


def digest_run(paths: Paths) -> DigestedRun:
    """SHA-256 over the content of each file in order; of one file the hash of its content.

    A large file at a store is not read: the store's checksum represents its content.

    Raises:
        PreflightError: there is no such run, or it is being written.
    """
    inputs = run_files(paths)
    sizes = _sizes_bytes(inputs)
    reads_all = sum(sizes) <= SMALL_BYTES
    try:
        digested = [
            digest_file(file.url, read=reads_all or not storage.is_remote(file.url))
            for file in inputs
        ]
    except FileNotFoundError as error:
        raise PreflightError(f"there is no run {shown_paths(paths)}: {error}") from error
    files = tuple(map(RunUnit, digested, (file.root for file in inputs), sizes))
    contents = [file.content for file in digested]
    run = DigestedRun(contents[0] if len(contents) == 1 else digest(contents), files)
    _digested[run.digest] = run
    return run


def _sizes_bytes(files: Sequence[InputFile]) -> list[int]:
    return _mapped(lambda file: storage.size_bytes(file.url), files)


def _mapped(function: Callable[[InputFile], _Value], files: Sequence[InputFile]) -> list[_Value]:
    """The values of a function of files, many at a time if they are at a store."""
    if not any(storage.is_remote(file.url) for file in files):
        return list(map(function, files))
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        return list(pool.map(function, files))


_RANGE = {"root": pa.string(), "start": pa.int64(), "end": pa.int64(), "size_bytes": pa.int64()}
_UNITS = pa.schema({"url": pa.string(), "version": pa.string(), "sha256": pa.string(), **_RANGE})


def write_units(folder: str, prefix: str, units: Sequence[RunUnit]) -> str:
    """Writes units to a file, for the workers of a job: see `write_rows`."""
    return write_rows(
        folder, prefix, _UNITS, ({**vars(unit.file), **unit._asdict()} for unit in units)
    )


@lru_cache(maxsize=2)
def read_units(url: str) -> list[RunUnit]:
    """The units in a file of `write_units`; raises DataError where it is missing or was changed."""
    rows = [dict(row) for row in read_rows(url)]
    return [
        RunUnit(**{name: row.pop(name) for name in _RANGE}, file=DigestedFile(**row))
        for row in rows
    ]


class RunBatch(NamedTuple):
    """Rows of a unit, in order, as `TableReader.batches` gives them.

    Attributes:
        rows: the rows.
        twice_encoded: how many texts were encoded as UTF-8 twice.
        twice_example: the place of the first.
    """

    rows: pa.RecordBatch
    twice_encoded: int = 0
    twice_example: str = ""

    @property
    def is_scored(self) -> bool:
        """Whether any of its rows has a score."""
        return bool(self.rows.column("score").null_count < len(self.rows))


class RunReader(NamedTuple):
    """Reads a run: its layout, and what a configuration says about its columns."""

    layout: RunLayout
    hints: Hints

    @property
    def kind(self) -> str:
        """The kind of its rows that cannot be used, by which `max_bad_rows` limits them."""
        return "docs" if self.layout.listed else "run"

    @classmethod
    def of(cls, run: DigestedRun, hints: Hints) -> "RunReader":
        """A reader by the first file that has rows; raises PreflightError where it cannot be read,
        or none has rows.
        """
        files = [unit.input for unit in run.files if unit.size_bytes]
        for file in files:
            layout = _layout(file, hints)
            if layout.listed or layout.columns:
                return cls(layout, hints)
        # A file without a row that can be read says why.
        for file in files or [run.files[0].input]:
            rows = open_run_file(file, hints)
            rows.check(sum(map(len, rows.batches())))
        raise AssertionError("a file has rows")

    def units(self, run: DigestedRun, unit_bytes: int) -> list[RunUnit]:
        """The units of a run, in the order of its files."""
        large = [unit.input for unit in run.files if unit.size_bytes > unit_bytes]
        of_files = _mapped(lambda file: self._open(file).decoder.ranges(unit_bytes), large)
        ranges = dict(zip(large, of_files, strict=True))
        units: list[RunUnit] = []
        for unit in run.files:
            of_unit = ranges.get(unit.input, [(0, 0)] if unit.size_bytes else [])
            for start, end in of_unit:
                size = unit.size_bytes * (end - start) // of_unit[-1][1] if end else unit.size_bytes
                units.append(unit._replace(size_bytes=size, start=start, end=end))
        return units

    def _open(self, file: InputFile, rejects: Rejects | None = None) -> TableReader:
        """Opens a file of the run."""
        listed = self.layout.listed
        if not listed:
            return open_run_file(file, self.hints, rejects)
        return CorpusUnit(0, file.url, FORMATS[listed], Hints(format=listed), 0, 0).open(rejects)

    def sent_bytes(self, units: Sequence[RunUnit]) -> int:
        """About how many bytes of rows travel to the shards, by the rows of the first unit."""
        rows = size = 0
        for batch in self.read(units[0], Rejects(self.kind, NO_LIMIT)):
            rows, size = rows + len(batch.rows), size + batch.rows.nbytes
            if rows > _SAMPLE_ROWS:
                # A large file that is one unit, because it is compressed.
                return _TIMES_LARGER * sum(unit.size_bytes for unit in units)
        return size * sum(unit.size_bytes for unit in units) // units[0].size_bytes

    def read(self, unit: RunUnit, rejects: Rejects) -> Iterator[RunBatch]:
        """The rows of a unit; `rejects` takes rows that cannot be used.

        Raises:
            PreflightError: the file cannot be read, has another layout than the first, or too many
                wrong rows.
        """
        listed = self.layout.listed
        if listed:
            self.layout.check(_layout(unit.input, self.hints))
        rows = self._open(unit.input, rejects)
        batches = rows.batches(unit.start, unit.end)
        if listed:
            noun = rows.noun(unit.end)
            yield from (_listed_batch(batch, unit.file.url, noun) for batch in batches)
            return
        self.layout.check(RunLayout.of(rows))
        yield from map(RunBatch, batches)
        rows.check()

    def where(self, unit: RunUnit, position: int) -> tuple[str, str]:
        """The file of a row, and its place there."""
        return unit.file.url, f"{self._open(unit.input).noun(unit.end)} {position}"


def open_run(
    paths: Paths, hints: Hints, expected: str | None = None
) -> tuple[RunReader, list[RunUnit]]:
    """The reader and the units of a run, which has the digest that is expected.

    Raises:
        PreflightError: it cannot be read, or has no rows.
        DataError: it changed after its digest was taken.
    """
    run = digest_run(paths)
    if expected is not None:
        run.check(expected)
    reader = RunReader.of(run, hints)
    return reader, reader.units(run, UNIT_BYTES)


def _layout(file: InputFile, hints: Hints) -> RunLayout:
    """The layout of a file."""
    listed = FormatGuesser(
        "candidates", {name: known for name, known in FORMATS.items() if known.lists_candidates}
    ).guess(Beginning(file.url))
    if listed is None:
        return RunLayout.of(open_run_file(file, hints))
    if hints != NO_HINTS:
        raise PreflightError(
            f"{file.url} looks like {listed}, whose fields have fixed names: leave `columns`, "
            "`format` and `quotes` out"
        )
    return RunLayout(file.url, listed)


def _listed_batch(rows: pa.RecordBatch, url: str, noun: str) -> RunBatch:
    """The candidates that a corpus lists: the order of the file stands for the ranks."""
    texts = rows.column("text").to_pylist()
    twice = [at for at, text in enumerate(texts) if is_twice_encoded(text)]
    names = ("query_id", "doc_id", "rank", "score", "place")
    columns = {name: rows.column(name) for name in rows.schema.names}
    columns["rank"] = pa.nulls(len(rows), pa.int64())
    batch = pa.record_batch({name: columns[name] for name in names})
    first = row_place(url, rows.column("place")[twice[0]].as_py(), noun) if twice else ""
    return RunBatch(batch, len(twice), first)


def is_twice_encoded(text: str) -> bool:
    """Whether a text was encoded as UTF-8 twice."""
    # Most texts hold none of the letters, which is found faster.
    return ("Ã" in text or "Â" in text or "â" in text) and _TWICE_ENCODED.search(text) is not None
