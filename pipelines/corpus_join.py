"""Joins the open shards of a stage with the corpus, for a launcher: one Beam job, or several in turn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import apache_beam as beam
import numpy as np

from beamrank.commit.listing import RECEIPTS, receipt_name
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import StageFolder
from beamrank.commit.scan_reports import ScanWatch
from beamrank.commit.shards import InputPart, ShardTask
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, DataError
from beamrank.formats.corpora import list_units, unit_digest
from beamrank.formats.notes import counted
from beamrank.join.doc_hashes import Hashes, NeededDocs
from beamrank.storage import files as storage
from beamrank.storage.documents import hashes64
from models.stages.tokenize import TokenizeDocs
from pipelines.console.progress import Scan
from pipelines.plan.earlier_tokens import EarlierTokens, UnreadUnits, find_unread
from pipelines.plan.join_passes import join_passes
from transforms.join import JoinCorpus, UnitSource

# Runs one Beam job over some tasks, and shows its progress.
RunJob = Callable[[Sequence[ShardTask], beam.PTransform, Scan | None], None]


@dataclass(frozen=True)
class CorpusJoin:
    """The join of the open shards of a stage with the corpus.

    Attributes:
        plan: the plan.
        config: its configuration.
        stage: the stage.
        tasks: its open shards.
        note: prints a note for the user.
        run_job: runs a job.
        needed_prefix: how the docs that a join needs are named.
        shuffles_in_memory: whether the runner keeps the shuffle in this machine's memory.
        earlier_tokens: tokens that an earlier run stored.
    """

    plan: Plan
    config: RunConfig
    stage: TokenizeDocs
    tasks: Sequence[ShardTask]
    note: Callable[[str], None]
    run_job: RunJob
    needed_prefix: str
    shuffles_in_memory: bool
    earlier_tokens: EarlierTokens | None = None

    def run(self) -> None:
        """One Beam job, or several where the shuffle does not fit in the launcher's memory.

        Units whose tokens an earlier run stored are not read; shards for which those cannot be used are joined later,
        with the whole corpus.
        """
        sources = self._open_corpus()
        wanted = {task.shard: np.unique(hashes64(self.stage.needed_keys(task))) for task in self.tasks}
        unread = self._find_unread(sources, wanted)
        if unread is None:
            self._join(self.tasks, wanted, sources, None)
            return
        self.note(
            f"{self.stage.name}: {len(unread.numbers)} of {counted(len(sources), 'unit')} of the corpus not read: "
            f"unchanged, and the tokens are taken over from {unread.earlier.folder.url}"
        )
        self._join(unread.given_to(self.tasks), wanted, sources, unread)
        present = storage.sizes_bytes(storage.join(self._folder.url, RECEIPTS))
        left = [task for task in self.tasks if receipt_name(task.shard, task.digest) not in present]
        if left:
            self.note(
                f"{self.stage.name}: the whole corpus is read for {counted(len(left), 'shard')}: "
                f"tokens cannot be taken over ({_problem(unread.earlier.parts(left[0]))})"
            )
            self._join(left, wanted, sources, None)

    def _find_unread(self, sources: Sequence[UnitSource], wanted: Mapping[int, Hashes]) -> UnreadUnits | None:
        """The units that are not read, once their reports are written; None if all are read."""
        if self.earlier_tokens is None:
            return None
        try:
            units = {unit.index: unit_digest(unit, file) for unit, file in sources}
            unread = find_unread(self.earlier_tokens, self.tasks, wanted, units)
            unread.publish_reports(self._folder.url, self.stage.corpus_digest)
        except (BeamrankError, OSError) as error:
            self.note(f"{self.stage.name}: not taken over: {self.earlier_tokens.folder.url}: {error}")
            return None
        return unread if unread.reports else None

    def _join(
        self,
        tasks: Sequence[ShardTask],
        wanted: Mapping[int, Hashes],
        sources: Sequence[UnitSource],
        unread: UnreadUnits | None,
    ) -> None:
        stored_url, numbers, stored_docs = None, set[int](), 0
        if unread is not None:
            stored_url = unread.docs.publish(self._folder.url, self.needed_prefix)
            numbers, stored_docs = unread.numbers, len(unread.docs.hashes)
        units = [unit for unit, _ in sources]
        read = [source for source in sources if source[0].index not in numbers]
        docs = sum(len(wanted[task.shard]) for task in tasks) - stored_docs
        passes = 1
        if self.shuffles_in_memory:
            passes = join_passes(docs, units, len(tasks), self.stage.max_doc_tokens)
        if passes > 1:
            self.note(f"{self.stage.name}: the shuffle does not fit in memory at once; {passes} passes over the corpus")
        for number in range(passes):
            some = tasks[number * len(tasks) // passes : (number + 1) * len(tasks) // passes]
            needed = NeededDocs.of_hashes((task.shard, wanted[task.shard]) for task in some)
            needed_url = needed.publish(self._folder.url, self.needed_prefix)
            count = ScanWatch(self._folder.url).count
            scan = Scan(count, len(read), before=number * len(read), total=passes * len(read))
            self.run_job(some, JoinCorpus(self.stage, self._folder, needed_url, read, units, stored_url), scan)

    @property
    def _folder(self) -> StageFolder:
        return self.plan.folder(self.stage.name)

    def _open_corpus(self) -> list[UnitSource]:
        """The units of the corpus, each with its file as it was planned with; a worker checks the file when it reads.

        Raises:
            DataError: a file was added, removed or changed.
        """
        corpus = self.plan.corpus
        assert corpus is not None
        with corpus.unchanged():
            units = list_units(self.config.corpus)
        added = sorted({unit.url for unit in units} - corpus.files.keys())
        if added:
            raise DataError(
                f"{added[0]} was added to the corpus {self.config.corpus.path} after the run was planned, and the "
                "plan's digest does not cover it. Nothing was read from it, and finished shards are kept. Run the same "
                "command again to plan with it, or remove the file first"
            )
        return [(unit, corpus.files[unit.url]) for unit in units]


def _problem(parts: Sequence[InputPart]) -> str:
    """Why stored tokens could not be used, as far as this machine sees it."""
    try:
        for part in parts:
            part.read()
    except (BeamrankError, OSError) as error:
        return str(error)
    return "the workers' log has the reason"
