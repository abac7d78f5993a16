"""Converts MS MARCO's files, runs and files of examples to files of examples."""

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from beamrank.errors import ConfigError, DataError, PreflightError
from beamrank.formats.notes import counted
from beamrank.progress import Progress
from beamrank.storage import files as storage
from beamrank.storage.local_files import new_folder
from contrib.tensorflow2019.examples.parts import BadRows, Part, ShardPart, WritePart, map_in_order
from contrib.tensorflow2019.examples.reader import ids_url
from contrib.tensorflow2019.examples.sources import Conversion, parts_of
from contrib.tensorflow2019.examples.top1000 import BucketPart
from contrib.tensorflow2019.examples.writer import WRITERS

_SETS = re.compile(r"(?<![a-z])(train|dev|eval|test)(?![a-z])")


def convert_examples(
    sources: Sequence[str], target: Path, to: str, conversion: Conversion, max_bad_rows: int, progress: Progress
) -> list[Path]:
    """Writes the examples of some sources to a new folder, which appears whole or not at all.

    Args:
        sources: their paths; each becomes a set of files, named as in the original code: `dataset_dev.tf` and
            `query_doc_ids_dev.txt`.
        target: the folder; it must not exist, or be empty.
        to: a name in `WRITERS`.
        conversion: how they are made; its `work` is a folder that this function makes.
        max_bad_rows: how many rows may be unusable.
        progress: receives notes.

    Returns:
        The files.

    Raises:
        ConfigError: there are qrels, and all sources have labels of their own.
        PreflightError: a source is missing or invalid, or two would have the same files.
        DataError: too many rows are unusable, a file is damaged, or no candidate of a source is relevant by the qrels.
    """
    names = [_set_name(source) for source in sources]
    if len({*names}) < len(names):
        raise PreflightError(
            f"the sources {', '.join(sources)} would be written to the same files, dataset_{names[0]}{WRITERS[to][0]}: "
            "convert them one by one"
        )
    bad = BadRows()
    labelled: bool | None = None  # whether the qrels gave any relevant example; None if no source uses them
    with new_folder(target) as folder:
        for name, source in zip(names, sources, strict=True):
            with tempfile.TemporaryDirectory(dir=folder) as work:
                conversion = Conversion(**{**vars(conversion), "work": Path(work)})
                parts = list(parts_of(source, conversion, bad))
                if not parts:
                    raise PreflightError(f"{source} is empty: there is nothing to convert")
                count, relevant = _write(parts, folder / f"dataset_{name}", to, conversion, bad)
            progress.note(f"{source}: {counted(count, 'example')}, {relevant:,} of them relevant")
            by_qrels = isinstance(parts[0], BucketPart | ShardPart)
            if by_qrels and conversion.relevance:
                labelled = bool(labelled) or relevant > 0
                if not relevant:
                    progress.warn(f"no candidate of {source} is relevant by the qrels: each of its labels is 0")
            if bad.count > max_bad_rows:
                raise DataError(f"{_described(bad)}. More than max_bad_rows {max_bad_rows}: nothing was written")
        if labelled is False:
            raise DataError(
                "no candidate is relevant by the qrels, so each label would be 0: give the qrels of these queries and "
                "docs, or none"
            )
        if conversion.relevance and labelled is None:
            raise ConfigError("--qrels: triples and files of examples have labels of their own: leave it out")
        written = sorted(path.name for path in folder.iterdir())
    if bad.count:
        progress.warn(f"{_described(bad)}; they are left out")
    return [target / name for name in written]


def _write(parts: Sequence[Part], base: Path, to: str, conversion: Conversion, bad: BadRows) -> tuple[int, int]:
    """Writes the parts of a source: Parquet to a file each, the others to one file.

    Returns:
        How many examples there are, and how many of them have label 1.
    """
    ending = WRITERS[to][0]
    numbered = [(conversion.work / f"dataset_{number:05}{ending}", part) for number, part in enumerate(parts)]
    total = total_relevant = 0
    for number, (path, count, relevant, found) in enumerate(
        map_in_order(WritePart(to), numbered, conversion.processes)
    ):
        bad.add(found.first, found.count)
        total, total_relevant = total + count, total_relevant + relevant
        if not count:
            continue
        if to == "parquet":
            suffix = f"-{number:05}-of-{len(parts):05}" if len(parts) > 1 else ""
            path.rename(base.with_name(base.name + suffix + ending))
            continue
        beside = Path(ids_url(str(path)))
        target = base.with_name(base.name + ending)
        _append(path, target, header=to == "tsv")
        if beside.exists():
            _append(beside, Path(ids_url(str(target))))
    return total, total_relevant


def _append(path: Path, target: Path, header: bool = False) -> None:
    """Appends a file to another one and removes it; the first line of a later file with a `header` is left out."""
    with path.open("rb") as part, target.open("ab") as file:
        if header and file.tell():
            part.readline()
        shutil.copyfileobj(part, file, 1 << 20)
    path.unlink()


def _set_name(source: str) -> str:
    """The name of a set: the word `train`, `dev`, `eval` or `test` in a source's name, else `dev`."""
    found = _SETS.search(storage.name(source).lower())
    return found[1] if found else "dev"


def _described(bad: BadRows) -> str:
    first = "; ".join(f"{row.place} {row.reason}" for row in bad.first)
    return f"rows that could not be used: {bad.count:,} (first: {first})"
