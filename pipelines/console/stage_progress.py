"""Progress of a stage and of the run, read from receipts while a job runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from beamrank.stages.forecast import duo_to_mono
from beamrank.stages.plan import StageSpec
from beamrank.stages.receipts import Receipt, StageFolder
from pipelines.console.progress import Bar, Meter, duration


@dataclass
class RunTimes:
    """The times of a whole run: `stages` are those that this command runs, `mono` is the first receipt of mono's."""

    shards: int
    stages: Sequence[StageSpec] = ()
    mono: Receipt | None = None
    _meter: Meter = field(default_factory=Meter, init=False)
    _duo_seconds: float | None = field(default=None, init=False)

    def words(self, stage: StageSpec, meter: Meter) -> str:
        """What to add to the progress of a stage; nothing where the command runs that stage alone."""
        if len(self.stages) < 2:
            return ""
        return f"; run: elapsed {duration(self._meter.elapsed_seconds)}, ETA {self._eta(stage, meter)}"

    def _eta(self, stage: StageSpec, meter: Meter) -> str:
        later = self.stages[[each.name for each in self.stages].index(stage.name) + 1 :]
        if later and stage.kind != "mono":
            first = next((each for each in later if each.kind == "mono"), later[0])
            return f"unknown until {first.name} starts"
        if later:
            return self._eta_with_duo(stage, later[0], meter)
        if meter.seconds_left is not None:
            return duration(meter.seconds_left)
        if self._duo_seconds is not None:
            return f"about {duration(max(0.0, self._duo_seconds - meter.elapsed_seconds))}"
        return "unknown"

    def _eta_with_duo(self, mono: StageSpec, duo: StageSpec, meter: Meter) -> str:
        ratio = duo_to_mono(mono, duo, [] if self.mono is None else [self.mono])
        if ratio is None or meter.pace is None or meter.seconds_left is None:
            return "unknown"
        self._duo_seconds = self.shards * ratio * meter.pace.seconds_each
        return f"about {duration(meter.seconds_left + self._duo_seconds)}"


@dataclass(frozen=True)
class Scan:
    """A scan of the corpus: `count` says how many of its units were read, `before` how many in earlier passes."""

    count: Callable[[], int]
    units: int
    before: int = 0
    total: int = 0


class StageProgress:
    """Shows how far a stage is whenever it is asked how much is done."""

    def __init__(
        self,
        folder: StageFolder,
        digests: Sequence[str],
        bar: Bar,
        scan: Scan | None,
        first_done: Callable[[Receipt], None],
    ) -> None:
        """`first_done` is told the receipt of a shard that this job was the first to finish."""
        self._folder, self._digests, self._bar, self._scan = folder, digests, bar, scan
        self._first_done = first_done
        self._before = folder.done(digests)
        self._is_first = True

    def __call__(self) -> int:
        """How many shards are done and units are read."""
        done = self._folder.done(self._digests)
        read = self._scan.count() if self._scan else 0
        if self._scan and read < self._scan.units:
            self._bar.update(self._scan.before + read, self._scan.total, "corpus units read")
        else:
            self._bar.update(len(done), len(self._digests), "shards")
            self._look_at_first(done - self._before)
        return len(done) + read

    def _look_at_first(self, new: set[int]) -> None:
        """What came before the first shard, workers that start and models that load, is not repeated."""
        if not (self._is_first and new):
            return
        self._is_first = False
        shard = min(new)
        receipt = self._folder.receipt(shard, self._digests[shard])
        if receipt is not None:
            self._bar.meter.skip_start(receipt.seconds)
            self._first_done(receipt)
