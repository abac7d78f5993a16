"""`beamrank run --only I/N`: one of N processes without an engine, such as tasks of an array job.

It takes its shards through all stages, because a shard's next stage needs the parts of that shard
alone. Whoever finishes the last shard of all seals the stages and writes the runs.
"""

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

from beamrank.commit.plan import EngineVersionError, Plan, read_plan
from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.commit.shards import ShardTask
from beamrank.commit.stage import StageRecord
from beamrank.errors import BeamrankError, ConfigError, PreflightError
from beamrank.notes import counted
from models.stages.attempt import done_here
from pipelines.launcher import Launcher, Receipts, incomplete
from pipelines.plan.changes import plan_changes
from pipelines.runners.options import Runner
from pipelines.runners.watchdog import watch

if TYPE_CHECKING:
    from transforms.scatter import Work


class Share(NamedTuple):
    """The share of one of several processes: `number` from 0, of `processes`."""

    number: int
    processes: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`I/N`."""
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if match is None or int(match[1]) >= int(match[2]):
            raise ConfigError(
                f"--only {text}: give I/N, the number of this process from 0 and how many there are"
            )
        return cls(int(match[1]), int(match[2]))

    def of(self, shards: int) -> range:
        """Its shards: topics are spread over shards by a hash, so that ranges of them take about as
        long.
        """
        return range(
            self.number * shards // self.processes, (self.number + 1) * shards // self.processes
        )

    def check_alone(self, runner: Runner, flags: Sequence[str], stage: str | None) -> None:
        """Raises ConfigError for options that go with an engine, or with one stage."""
        if stage is not None or flags or runner is not Runner.LOCAL:
            raise ConfigError(
                f"--only {self} takes its shards through all stages in this process, without an "
                "engine: leave out --stage, --runner and Beam flags"
            )

    def __str__(self) -> str:
        return f"{self.number}/{self.processes}"


@dataclass
class ShareLauncher(Launcher):
    """Does a share of the shards of a plan in this process.

    Attributes:
        share: the shards.
    """

    share: Share = field(kw_only=True)
    _of_stages: dict[str, Mapping[int, Receipt]] = field(
        default_factory=dict, init=False, repr=False
    )
    _done: set[int] = field(default_factory=set, init=False, repr=False)

    def run(self, stages: Sequence[StageRecord] | None = None) -> None:
        """Runs these stages in order, up to one that needs all shards of another."""
        for stage in self.plan.stages if stages is None else stages:
            needed = stage.waits_for
            if needed and self.plan.seal(needed) is None:
                self.console.note(
                    f"{stage.name} needs all shards of {needed}: run --only again when all are done"
                )
                return
            super().run([stage])

    def run_stage(self, stage: StageRecord) -> None:
        """Runs the shards of the share that have no receipt."""
        folder, start = self.plan.folder(stage.name), time.monotonic()
        digests, before = self._digests(stage)
        tasks = self._open_tasks(stage, digests, before)
        try:
            if tasks:
                self._run_tasks(stage, tasks, digests)
        except (BeamrankError, OSError) as error:
            self._fail(stage, error)
        self._started = True
        receipts = self._of_stages[stage.name] = folder.receipts(digests)
        of = f" of --only {self.share}"
        if len(receipts) < len(digests):
            raise incomplete(stage.name, folder, digests, of)
        self._note_done(stage.name, len(tasks), start, of)
        folder.sweep(tuple(digests.values()))
        if stage.corpus_digest is not None:
            # Before anything is scored, and not once more by `finish`.
            self._check_corpus(stage)
            self._checked_stages.add(stage.name)

    def _own_shards(self) -> Sequence[int]:
        return self.share.of(len(self.plan.shards))

    def _of_all_shares(self, count: int) -> int:
        """As if topics of other shares counted as much: if none allows more, all do not either."""
        topics = sum(self.plan.shards.rows_of(shard).num_rows for shard in self._own_shards())
        return math.ceil(count * len(self.plan.topics) / topics)

    def _before(self, stage: StageRecord) -> list[Receipts]:
        return [self._of_stages[name] for name in stage.inputs]

    def look(self, *_: object) -> tuple[set[int], object]:
        return self._done.copy(), None

    def _run_tasks(
        self, stage: StageRecord, tasks: Sequence[ShardTask], digests: Mapping[int, str]
    ) -> None:
        self._done = digests.keys() - {task.shard for task in tasks}
        super()._run_tasks(stage, tasks, digests)

    def _run_job(
        self,
        _stage: StageRecord,
        _folder: StageFolder,
        _digests: tuple[str, ...],
        progress: Callable[[], object],
        tasks: Sequence[ShardTask],
        work: "Work",
    ) -> None:
        here = partial(self._done.update, done_here(work, tasks))
        watch(here, progress, self.config.stall_minutes * 60)

    def finish(self) -> bool:
        """Seals the stages if every shard of all shares is done; else notes what is left."""
        # Another share may have begun at the same time.
        check_share(self.plan)
        sealed = self.plan.manifests(StageFolder.seal)
        stage = next((record for record in self.plan.stages if record.name not in sealed), None)
        if stage is None:
            for name, manifest in sealed.items():
                self._check_sealed(self.plan.stage(name), manifest)
            return True
        digests = self.plan.shard_digests(stage, [sealed[name] for name in stage.inputs])
        left = len(digests) - len(self.plan.folder(stage.name).done(digests))
        self.console.note(
            f"--only {self.share} is done. Left to others: {left:,} of "
            f"{counted(len(digests), 'shard')} in {stage.name} and after it; who finishes the "
            "last shard writes the runs"
        )
        return False


def check_share(plan: Plan) -> None:
    """Makes sure that the shares of an array find the same: a share completes the unfinished plan
    of its output, or begins another one that the user asked for.

    Raises:
        EngineVersionError: a later version of the engine made the current plan.
        BeamrankError: the same configuration and flags gave an unfinished plan that differs.
    """
    try:
        current = read_plan(plan.output)
    except EngineVersionError:
        raise
    except PreflightError:
        # There is none, or it is broken, and is written again.
        return
    is_other = current.name != plan.name and current.written == plan.written
    if not is_other or len(current.manifests(StageFolder.gather)) == len(current.stages):
        return
    changes = "; ".join(map(str, plan_changes(current, plan)))
    raise BeamrankError(
        f"{plan.output} holds the unfinished {current.name}, and the same command finds something "
        f"else now: {changes}. Shares of two plans do not make one run, so nobody would write the "
        "runs. Give all of them the same inputs and versions, and set `dtype`, `device` and "
        "`kernel` where machines differ; or run it once without --only, which makes the new plan "
        "current (with --stage retrieve, if only that), and start all again"
    )
