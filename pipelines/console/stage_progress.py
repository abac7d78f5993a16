"""Progress of a stage and of the run, read from receipts while a job runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from beamrank.commit.pace import work_ratio
from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.commit.stage_record import StageRecord
from pipelines.console.progress import Bar, Meter, duration, fraction


@dataclass
class RunTimes:
    """The times of a whole run: `stages` are those that this command runs, `scored` is the first receipt of a model."""

    shards: int
    stages: Sequence[StageRecord] = ()
    scored: Receipt | None = None
    _meter: Meter = field(default_factory=Meter, init=False)
    _next_seconds: float | None = field(default=None, init=False)

    def words(self, stage: StageRecord, meter: Meter) -> str:
        """The progress of the run; empty if the command runs this stage alone."""
        if len(self.stages) < 2:
            return ""
        return f"; run: elapsed {duration(self._meter.elapsed_seconds)}, ETA {self._eta(stage, meter)}"

    def _eta(self, stage: StageRecord, meter: Meter) -> str:
        later = self.stages[[each.name for each in self.stages].index(stage.name) + 1 :]
        if later and stage.work is None:
            first = next((each for each in later if each.work is not None), later[0])
            return f"unknown until {first.name} starts"
        if later:
            return self._eta_with_next(stage, later[0], meter)
        if meter.seconds_left is not None:
            return duration(meter.seconds_left)
        if self._next_seconds is not None:
            return f"about {duration(max(0.0, self._next_seconds - meter.elapsed_seconds))}"
        return "unknown"

    def _eta_with_next(self, stage: StageRecord, after: StageRecord, meter: Meter) -> str:
        scored = [] if self.scored is None else [self.scored]
        ratio = None if stage.work is None or after.work is None else work_ratio(after.work, stage.work, scored)
        if ratio is None or meter.pace is None or meter.seconds_left is None:
            return "unknown"
        self._next_seconds = self.shards * ratio * meter.pace.seconds_each
        return f"about {duration(meter.seconds_left + self._next_seconds)}"


@dataclass(frozen=True)
class Scan:
    """A scan of the corpus: `count` returns how many of its units were read, `before` is how many in earlier passes."""

    count: Callable[[], int]
    units: int
    before: int = 0
    total: int = 0


class StageProgress:
    """Returns how much of a stage is done, and shows it."""

    def __init__(
        self,
        folder: StageFolder,
        digests: Sequence[str],
        bar: Bar,
        scan: Scan | None,
        first_done: Callable[[Receipt], None],
        inputs_done: Callable[[], tuple[int, int]],
    ) -> None:
        """Prepares to count.

        Args:
            folder: of the stage.
            digests: of its shards.
            bar: shows the progress.
            scan: of the corpus, if the stage reads it.
            first_done: receives the receipt of the first shard that this job finishes.
            inputs_done: how many inputs of a shard are scored, of how many, as far as this process knows.
        """
        self._folder, self._digests, self._bar, self._scan = folder, digests, bar, scan
        self._first_done, self._inputs_done = first_done, inputs_done
        self._before = folder.done(digests)
        self._is_first = True

    def __call__(self) -> int:
        """The number of finished shards and of units read."""
        done = self._folder.done(self._digests)
        read = self._scan.count() if self._scan else 0
        if self._scan and read < self._scan.units:
            self._bar.update(self._scan.before + read, self._scan.total, "corpus units read")
        else:
            inputs = self._inputs_done()
            within = f" ({fraction(*inputs)} inputs of the next)" if inputs[1] else ""
            self._bar.update(len(done), len(self._digests), f"shards{within}")
            self._note_first(done - self._before)
        return len(done) + read

    def _note_first(self, new: set[int]) -> None:
        """Leaves the start-up before the first shard, of workers and models, out of the pace."""
        if not (self._is_first and new):
            return
        self._is_first = False
        shard = min(new)
        receipt = self._folder.receipt(shard, self._digests[shard])
        if receipt is not None:
            self._bar.meter.skip_start(receipt.seconds)
            self._first_done(receipt)
