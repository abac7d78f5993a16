"""`beamrank lint --fix`: rewrites what has one right answer. The order of an evaluation stays as it
is.
"""

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from beamrank.errors import BeamrankError, ConfigError, DataError
from beamrank.formats.decode.tables import is_table
from beamrank.formats.run_writer import strictly_decreasing
from beamrank.storage import files as storage
from beamrank.storage.streams import check_packable, packed
from contrib.lint.linter import Report, is_pipe_url, lint_run
from contrib.lint.registry import CHECKS
from contrib.lint.run_rows import Line, RunRows, TopicReturnsError, TopicRows


@dataclass
class Fix:
    """The changes of `--fix` to a file.

    Attributes:
        fixed: how many findings of each code are gone; empty if the file was left as it is.
        refused: why it was left as it is, although something could be fixed; or nothing.
        rows: how many rows the new file has.
        removed: how many rows it has less: each one is a copy of another.
    """

    fixed: Counter[str] = field(default_factory=Counter)
    refused: str = ""
    rows: int = 0
    removed: int = 0


def check_fixable(url: str) -> None:
    """Makes sure that a file can be replaced."""
    if is_pipe_url(url):
        raise ConfigError(f"--fix cannot replace {url}, which is a pipe: give a file")
    if storage.is_folder(url) or is_table(url):
        raise ConfigError(
            f"--fix rewrites one text file, and {url} is a table or a folder: write the run again"
        )
    check_packable(url)


def fix_run(report: Report) -> tuple[Report, Fix]:
    """Fixes a run in place, whole or not at all; a file in which a row cannot be read is left as it
    is.

    Returns:
        What the checks find afterwards, and what was done.
    """
    counts = report.findings.counts
    if not any(map(report.is_fixable, counts)):
        return report, Fix()
    blocking = [
        code
        for code in counts
        if CHECKS[code].blocks_fix or (code == "L501" and not report.has_scores)
    ]
    if blocking:
        return report, Fix(
            refused=f"a row could be lost: first correct {', '.join(sorted(blocking))} by hand"
        )
    if report.state.format is not None and report.state.format.is_table:
        return report, Fix(refused="its columns have names: write the run again")
    fix = Fix()
    _replace(report.run, packed(report.run, _lines(report, fix)))
    after = lint_run(report.run, report.state.references, report.state.track)
    fix.fixed = counts - after.findings.counts
    return after, fix


def _replace(url: str, content: Iterable[bytes]) -> None:
    """Replaces a file; a local one keeps its permissions."""
    if storage.is_remote(url):
        storage.replace_stream(url, content, through_link=True)
        return
    path = storage.absolute(url)
    mode = stat.S_IMODE(os.stat(path).st_mode)
    storage.replace_stream(path, content, through_link=True)
    os.chmod(path, mode)


def _lines(report: Report, fix: Fix) -> Iterator[bytes]:
    for comment in report.state.comments.values():
        yield comment.strip() + b"\n"
    try:
        for separator, topic in _read_again(report):
            fixed = fixed_rows(topic, report.state.track.first_ranks)
            fix.rows += len(fixed)
            fix.removed += len(topic.rows) - len(fixed)
            for row in fixed:
                yield separator.join(row) + b"\n"
    except DataError as error:
        # Tied scores near the lowest float32 cannot be lowered.
        raise BeamrankError(f"{report.run} was left as it is: {error}") from error


def _read_again(report: Report) -> Iterator[tuple[bytes, TopicRows]]:
    """Each topic, and the separator of the run; a line that could be read before must be a row
    again.
    """

    def check(line: Line) -> None:
        if line.columns and not line.is_row and not line.is_comment:
            raise BeamrankError(
                f"{report.run}:{line.number} changed since it was checked: the file was left as "
                "it is"
            )

    rows = RunRows(report.run, check)
    is_contiguous = "L303" not in report.findings.counts
    try:
        for topic in rows.topics() if is_contiguous else rows.gathered():
            yield rows.separator, topic
    except TopicReturnsError as error:
        raise BeamrankError(
            f"{report.run} changed since it was checked: it was left as it is"
        ) from error


def fixed_rows(topic: TopicRows, first_ranks: tuple[int, ...]) -> list[list[bytes]]:
    """The rows of a topic as they should be: each once, in the order of the evaluation, with ranks
    that agree.
    """
    columns = topic.format.columns
    rows = list(map(list, dict.fromkeys(map(tuple, topic.rows))))
    topic = replace(topic, rows=rows, lines=topic.lines[: len(rows)])
    if "Q0" in columns:
        _write(topic.rows, columns.index("Q0"), [b"Q0"] * len(rows))
    order = topic.order
    if topic.is_constant and topic.ranks is not None:
        order = np.argsort(topic.ranks, kind="stable")
    assert order is not None
    topic = replace(topic, rows=[topic.rows[i] for i in order])
    # Where only ranks order a run, equal ones have no right answer.
    if topic.ranks is None or topic.format.has_scores or len(np.unique(topic.ranks)) == len(rows):
        first = first_ranks[-1]
        if topic.ranks is not None and topic.ranks.min() in first_ranks:
            first = int(topic.ranks.min())
        _write(
            topic.rows,
            columns.index("rank"),
            [b"%d" % rank for rank in range(first, first + len(rows))],
        )
    if topic.scores is not None and not topic.is_constant:
        _write(topic.rows, columns.index("score"), _untied(topic.column("score"), topic.scores))
    return topic.rows


def _untied(texts: list[bytes], scores: np.ndarray) -> list[bytes]:
    """Scores that decrease strictly in float32; texts of scores that stay are kept."""
    narrow = scores.astype(np.float32)
    if (narrow[1:] < narrow[:-1]).all():
        return texts
    pairs = zip(texts, narrow, strictly_decreasing(scores.tolist()), strict=True)
    return [text if before == after else b"%.9g" % after for text, before, after in pairs]


def _write(rows: list[list[bytes]], at: int, texts: Iterable[bytes]) -> None:
    for row, text in zip(rows, texts, strict=True):
        row[at] = text
