"""`beamrank run --only I/N`: one of N processes without an engine, such as the tasks of an array job.

A process takes its shards through all stages, because a shard's next stage needs the parts of that shard alone. Whoever
finishes the last shard of all seals the stages and writes the runs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.commit.shards import ShardTask
from beamrank.commit.stage import StageRecord
from beamrank.errors import BeamrankError, ConfigError
from beamrank.formats.notes import counted
from pipelines.console.progress import Bar, Scan
from pipelines.launcher import Launcher
from pipelines.runners.watchdog import watch


@dataclass(frozen=True)
class Share:
    """What one of several processes does: `index` from 0, of `count`."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`I/N`.

        Raises:
            ConfigError: it is not that.
        """
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if found is None or int(found[1]) >= int(found[2]):
            raise ConfigError(f"--only {text}: give I/N, the number of this process from 0 and how many there are")
        return cls(int(found[1]), int(found[2]))

    def of(self, shards: int) -> range:
        """Its shards: topics are spread over shards by a hash, so that ranges of them take about as long."""
        return range(self.index * shards // self.count, (self.index + 1) * shards // self.count)

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


@dataclass
class OnlyLauncher(Launcher):
    """Takes the shards of one share through the stages of a plan, in this process."""

    share: Share = Share(0, 1)
    _receipts: dict[str, Mapping[int, Receipt]] = field(default_factory=dict, init=False, repr=False)

    def run_stage(self, stage: StageRecord) -> None:
        """Does the shards of the share that have no receipt.

        Raises:
            BeamrankError: it failed; finished shards are kept.
        """
        folder = self.plan.folder(stage.name)
        tasks = [
            self.plan.task(stage, shard, [self._receipts[name][shard] for name in stage.inputs])
            for shard in self.share.of(len(self.plan.shards))
        ]
        digests = {task.shard: task.digest for task in tasks}
        done = folder.discard_broken(digests)
        still_open = self.with_reuse(stage, [task for task in tasks if task.shard not in done])
        if still_open:
            self._run_tasks(stage, still_open, tuple(digests.values()))
        self._receipts[stage.name] = folder.receipts(digests)
        missing = digests.keys() - self._receipts[stage.name].keys()
        if missing:
            raise BeamrankError(
                f"{stage.name}: {counted(len(missing), 'shard')} of --only {self.share} have no receipt (first: "
                f"{min(missing)}): run the same command again to complete it"
            )
        folder.sweep(tuple(digests.values()))
        if stage.corpus_digest is not None:
            # Before anything is scored, and not once more by `finish`.
            self._check_corpus(stage)
            self._accepted.add(stage.name)
        self.console.note(f"{stage.name}: {counted(len(tasks), 'shard')} of --only {self.share} done")

    def _run_job(
        self,
        stage: StageRecord,
        digests: tuple[str, ...],  # noqa: ARG002
        bar: Bar,
        tasks: Sequence[ShardTask],
        work: Any,
        scan: Scan | None,
    ) -> None:
        """Does tasks in a plain loop, in place of a Beam job."""
        done: list[int] = []

        def progress() -> int:
            read = scan.count() if scan else 0
            if scan and read < scan.units:
                bar.update(scan.before + read, scan.total, "corpus units read")
            else:
                bar.update(len(done), len(tasks), "shards")
            return len(done) + read

        watch(partial(work.run_here, tasks, done.append), progress, self._stall_limit(stage))

    def finish(self) -> bool:
        """Seals the stages if every shard of all shares is done; else notes what is left."""
        sealed = self.plan.manifests(StageFolder.seal)
        stage = next((each for each in self.plan.stages if each.name not in sealed), None)
        if stage is None:
            for name, manifest in sealed.items():
                self._accept(self.plan.stage(name), manifest)
            return True
        digests = self.plan.shard_digests(stage, [sealed[name] for name in stage.inputs])
        left = len(digests) - len(self.plan.folder(stage.name).done(digests))
        self.console.note(
            f"--only {self.share} is done. Left to others: {left:,} of {counted(len(digests), 'shard')} in {stage.name}"
            " and after it; who finishes the last shard writes the runs"
        )
        return False
