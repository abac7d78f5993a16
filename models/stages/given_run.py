"""A run that the user already has, as the first stage."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from beamrank.commit.receipts import Receipt
from beamrank.commit.shards import Shard, ShardTask
from beamrank.config.run import RunConfig
from beamrank.config.stages import CandidatesConfig
from beamrank.errors import PreflightError
from beamrank.formats.candidates import first_docs, read_candidates
from beamrank.formats.columns import RunColumns, column_names
from beamrank.formats.runs import Run, Ties
from beamrank.join.schemas import candidates_table
from beamrank.records import Topic
from beamrank.storage.digested import DigestedFile, digest_file, reread
from models.stages.base import Key, Worker
from models.stages.first_stage import FirstStage
from models.stages.planning import Planning, Trial

_TRIAL_ROWS = 100_000
_TIES: dict[Ties, str] = {
    "rank": "ordered by their ranks. `beamrank eval` and trec_eval order them by doc_id, descending, so their measures "
    "of this file can differ; `candidates.ties: doc_id` takes that order here too",
    "doc_id": "ordered by doc_id, descending, as `beamrank eval` and trec_eval do",
}


def candidates_digest(url: str) -> str:
    """The digest of the run's bytes.

    Raises:
        PreflightError: there is no such file, or it is being written.
    """
    try:
        return digest_file(url).content
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise PreflightError(f"there is no run {url}: give `candidates.run` a TREC or MS MARCO run") from error


@dataclass(frozen=True, kw_only=True)
class GivenRun(FirstStage):
    """Takes each topic's best `k` docs of a run, in the order of its scores; `ties` decides among equal ones."""

    type_name = "candidates"
    does = "launcher"
    section: ClassVar[type[CandidatesConfig]] = CandidatesConfig

    run_digest: Annotated[str, Key("candidates.run")]
    k: Annotated[int, Key("candidates.k")]
    ties: Annotated[Ties, Key("candidates.ties")] = "rank"
    columns: Annotated[RunColumns | None, Key("candidates.columns")] = None
    url: str
    max_bad_rows: int = 0

    @classmethod
    def from_config(cls, section: CandidatesConfig, planning: Planning) -> Self:
        return cls(
            run_digest=candidates_digest(section.run),
            k=section.k,
            ties=section.ties,
            columns=section.columns,
            url=section.run,
            max_bad_rows=planning.config.max_bad_rows,
        )

    @classmethod
    def trial(cls, config: RunConfig, topics: Sequence[Topic]) -> Trial:  # noqa: ARG003
        """The docs of the first rows; the time is negligible.

        Raises:
            PreflightError: there is no such run.
        """
        section = config.candidates
        assert section is not None
        candidates_digest(section.run)
        return Trial(doc_ids=first_docs(section.run, _TRIAL_ROWS, column_names(section.columns)))

    @classmethod
    def worker_on(cls, device: str) -> Worker:  # noqa: ARG003
        """The launcher reads the file once for all shards."""
        return Worker.LAUNCHER

    def run_all(self, tasks: Sequence[ShardTask], shards: Sequence[Shard], note: Callable[[str], None]) -> None:
        """Commits each task's share of the run. Queries of the run that are not topics are left out.

        Args:
            tasks: the open shards.
            shards: all shards of the plan.
            note: prints a note for the user.

        Raises:
            PreflightError: the run cannot be read, has wrong lines (duplicates among them) or none of the topics.
            DataError: the file changed after its digest was taken.
        """
        run = reread(self._read)
        _check_topics(self.url, run, shards)
        for task in tasks:
            self._commit(task, run)
        for line in _notes(run, shards, self.ties):
            note(f"{self.url}: {line}")

    def run(self, task: ShardTask) -> Receipt:
        return self._commit(task, self._read())

    def _read(self) -> Run:
        with DigestedFile(self.url, "", self.run_digest).unchanged():
            return read_candidates(self.url, self.ties, self.max_bad_rows, column_names(self.columns))

    def _commit(self, task: ShardTask, run: Run) -> Receipt:
        start = time.monotonic()
        query_ids = [topic.query_id for topic in task.topics if topic.query_id in run.order]
        depth = self.to_retrieve(task, self.k)
        doc_ids = [run.order[query_id][:depth] for query_id in query_ids]
        scores = [run.scores[query_id][:depth] for query_id in query_ids]
        return self.commit(task, candidates_table(query_ids, doc_ids, scores), start)


def _check_topics(url: str, run: Run, shards: Sequence[Shard]) -> None:
    if any(topic.query_id in run.order for shard in shards for topic in shard.topics):
        return
    raise PreflightError(
        f"the run {url} has none of the topics: its first query_id is {next(iter(run.order))!r}, the topics' "
        f"{shards[0].topics[0].query_id!r}. Give the run that was made for these topics"
    )


def _notes(run: Run, shards: Sequence[Shard], ties: Ties) -> list[str]:
    topics = {topic.query_id for shard in shards for topic in shard.topics}
    foreign = [query_id for query_id in run.order if query_id not in topics]
    notes = list(run.notes.remarks)
    if foreign:
        notes.append(f"queries that are not topics: {len(foreign):,} ({foreign[0]!r}, ...); they are ignored")
    if run.notes.tied_scores:
        notes.append(f"rows with the score of the row before: {run.notes.tied_scores:,}; {_TIES[ties]}")
    if run.notes.rank_disagreements:
        notes.append(f"rows whose rank disagrees with the scores: {run.notes.rank_disagreements:,}; the scores decide")
    if run.notes.tied_ranks:
        notes.append(f"rows with the rank of the row before: {run.notes.tied_ranks:,}; in the order of the file")
    return notes
