"""Progress: what is shown on a terminal of any width and in a log, and the times in it."""

import io

import pyarrow as pa
import pytest
from rich.console import Console

from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.notes import SILENT
from pipelines.console import progress
from pipelines.console.progress import (
    Bar,
    ConsoleProgress,
    Meter,
    Scan,
    StageProgress,
    at_most_every,
    duration,
)


class Clock:
    """A clock that is set by hand, in place of the module `time`."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00:00"), (80.4, "0:01:20"), (3599.6, "1:00:00"), (230_400, "64:00:00")],
)
def test_duration_is_hours_minutes_seconds(seconds, text):
    assert duration(seconds) == text


def test_meter_ignores_what_was_done_before(clock):
    """Ten shards of an earlier run say nothing about how fast this one is."""
    meter = Meter()
    meter.see(10, 30)
    assert str(meter) == "elapsed 0:00:00, ETA unknown"
    clock.now += 100
    meter.see(15, 30)
    assert str(meter) == "elapsed 0:01:40, ETA 0:05:00"
    clock.now += 10
    meter.see(15, 30)
    assert str(meter) == "elapsed 0:01:50, ETA 0:04:50"


def test_meter_leaves_out_the_start_of_workers(clock):
    """Five minutes for machines to start, then a shard a minute."""
    meter = Meter()
    meter.see(0, 11)
    clock.now += 360
    meter.see(1, 11)
    assert meter.seconds_left == 3600
    meter.skip_start(60.0)
    assert meter.seconds_left == 600
    clock.now += 60
    meter.see(2, 11)
    assert str(meter) == "elapsed 0:07:00, ETA 0:09:00"


def test_meter_starts_over_for_another_total(clock):
    meter = Meter()
    meter.see(0, 4)
    clock.now += 40
    meter.see(4, 4)
    assert meter.seconds_left == 0
    meter.see(1, 4)
    assert meter.seconds_left is None
    clock.now += 10
    meter.see(2, 4)
    assert meter.seconds_left == 20
    meter.see(2, 8)
    assert meter.seconds_left is None


def test_bar_without_total_has_no_eta(clock):
    lines: list[str] = []
    bar = Bar(SILENT, "index", lambda line, *_: lines.append(line))
    clock.now += 5
    bar.update(8000, None, "docs")
    assert lines == ["index: 8,000 docs, elapsed 0:00:05"]


def test_bar_in_a_file_prints_every_half_minute(clock):
    log = io.StringIO()
    with ConsoleProgress(Console(file=log, width=40)).bar("mono") as bar:
        bar.update(0, 437, "shards")
        for shard in range(1, 10):
            clock.now += 10
            bar.update(shard, 437, "shards")
    assert log.getvalue().splitlines() == [
        "mono: 3 of 437 shards, elapsed 0:00:30, ETA 1:12:20",
        "mono: 6 of 437 shards, elapsed 0:01:00, ETA 1:11:50",
        "mono: 9 of 437 shards, elapsed 0:01:30, ETA 1:11:20",
    ]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_bar_fits_a_terminal_of_any_width(width):
    screen = io.StringIO()
    console = Console(file=screen, width=width, height=20, force_terminal=True, color_system=None)
    with ConsoleProgress(console).bar("tokenize-0a1b2c3d") as bar:
        bar.update(1234, 4370, "corpus units read")
    words = "tokenize-0a1b2c3d: 1,234 of 4,370 corpus units read, elapsed 0:00:00, ETA unknown"
    shown = [line.split("\r")[-1] for line in screen.getvalue().splitlines()]
    text = " ".join(
        "".join(character for character in line if character.isprintable()) for line in shown
    )
    for word in words.split():
        assert word in text
    assert "…" not in text


def test_stage_progress_shows_corpus_units_then_shards(clock, tmp_path):
    folder, digests = StageFolder(str(tmp_path)), ["0" * 64, "1" * 64, "2" * 64]
    table, read, lines = pa.table({"x": [1]}), [0], []
    folder.commit(0, digests[0], table, seconds=1.0, counts={})
    bar = Bar(SILENT, "tokenize", lambda line, *_: lines.append(line))
    scan = Scan(lambda: read[0], units=2, before=2, total=4)
    first: list[Receipt | None] = []

    def receipt(shard):
        first.append(folder.receipt(shard, digests[shard]))
        return first[-1]

    ask = StageProgress(lambda: folder.progress(digests), 3, bar, receipt, lambda: (0, 0), scan)
    seen = [ask()]
    clock.now += 30
    read[0] = 1
    seen.append(ask())
    read[0] = 2
    seen.append(ask())
    clock.now += 10
    committed = folder.commit(2, digests[2], table, seconds=4.0, counts={})
    seen.append(ask())
    assert [seen.index(each) for each in seen] == [0, 1, 2, 3]
    assert lines == [
        "tokenize: 2 of 4 corpus units read, elapsed 0:00:00, ETA unknown",
        "tokenize: 3 of 4 corpus units read, elapsed 0:00:30, ETA 0:00:30",
        "tokenize: 1 of 3 shards, elapsed 0:00:30, ETA unknown",
        "tokenize: 2 of 3 shards, elapsed 0:00:40, ETA 0:00:10",
    ]
    assert first == [committed]
    assert bar.meter.seconds_left == 4.0


def test_stage_progress_shows_inputs_within_a_shard(clock):
    inputs, lines = [(0, 0)], []
    bar = Bar(SILENT, "pairs", lambda line, *_: lines.append(line))
    ask = StageProgress(lambda: (set(), {}), 1, bar, lambda _: None, lambda: inputs[0])
    seen = []
    for inputs[0] in ((0, 0), (0, 4096), (1024, 4096)):
        seen.append(ask())
        clock.now += 30
    assert seen[0] == seen[1] != seen[2]
    assert lines == [
        "pairs: 0 of 1 shards, elapsed 0:00:00, ETA unknown",
        "pairs: 0 of 1 shards (0 of 4,096 inputs of the next), elapsed 0:00:30, ETA unknown",
        "pairs: 0 of 1 shards (1,024 of 4,096 inputs of the next), elapsed 0:01:00, ETA unknown",
    ]


def test_question_that_takes_long_is_asked_less_often(clock):
    asked: list[float] = []

    def ask():
        asked.append(clock.now)
        clock.now += 2
        return len(asked)

    answer = at_most_every(0.5, ask)
    assert answer() == 1
    clock.now += 19
    assert answer() == 1
    clock.now += 2
    assert answer() == 2
    assert asked == [1000, 1023]
