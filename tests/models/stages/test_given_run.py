"""A given run as the first stage: cut by score, then rank, and shared out to the shards."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from beamrank.commit.receipts import StageFolder
from beamrank.commit.scans import read_scans
from beamrank.commit.schemas import CANDIDATES
from beamrank.commit.shards import ShardTask, cut_shards
from beamrank.errors import DataError, PreflightError
from beamrank.formats.run_order import Ties
from beamrank.formats.run_units import digest_run
from beamrank.records import Topic
from models.stages.attempt import scatter_here
from models.stages.given_run import GivenRun, RunScan

SHARDS = cut_shards([Topic("q1", "y"), Topic("q2", "x"), Topic("q3", "z")], 2)
DIGESTS = ("a" * 64, "b" * 64)


@dataclass
class _Execution:
    """A stage that is run in this process, and its notes."""

    stage: GivenRun
    folder: StageFolder
    notes: list[str] = field(default_factory=list)

    @property
    def tasks(self) -> list[ShardTask]:
        return [
            ShardTask(self.folder, shard.index, DIGESTS[shard.index], shard.topics)
            for shard in SHARDS
        ]

    def run(self) -> None:
        scan = RunScan.open(self.stage, self.folder, "tasks-", SHARDS.first_hashes)
        assert scan.is_small
        assert list(scatter_here(scan, self.tasks)) == [0, 1]
        manifest = self.folder.gather("retrieve", DIGESTS)
        assert manifest is not None
        self.notes = self.stage.review(
            manifest, read_scans(self.folder.url, self.stage.scan_digest)
        )

    def rows(self) -> list[dict[str, object]]:
        """The rows of all parts, by query."""
        parts = [
            self.folder.read_part(receipt) for receipt in self.folder.receipts(DIGESTS).values()
        ]
        return list(
            pa.concat_tables(parts)
            .sort_by([("query_id", "ascending"), ("rank", "ascending")])
            .to_pylist()
        )

    def counts(self) -> Counter[str]:
        """The sums over the receipts."""
        total = Counter[str]()
        for receipt in self.folder.receipts(DIGESTS).values():
            total.update(receipt.counts)
        return total


def _given(folder: Path, lines: Sequence[str], k: int = 3, ties: Ties = "rank") -> _Execution:
    run = folder / "given.run"
    run.write_text("".join(f"{line}\n" for line in lines))
    stage = GivenRun(run_digest=digest_run(str(run)).digest, k=k, ties=ties, url=str(run))
    return _Execution(stage, StageFolder(str(folder / ties)))


def _split(folder: Path, lines: Sequence[str], k: int = 3, ties: Ties = "rank") -> _Execution:
    execution = _given(folder, lines, k, ties)
    execution.run()
    return execution


def _row(query_id: str, doc_id: str, rank: int, score: float) -> dict[str, object]:
    return {"query_id": query_id, "doc_id": doc_id, "rank": rank, "score": score}


def test_given_run_is_cut_by_score_and_ties_by_rank(tmp_path):
    split = _split(
        tmp_path,
        [
            "q1 Q0 low 1 1.0 t",
            "q1 Q0 tied-second 3 2.0 t",
            "q1 Q0 tied-first 2 2.0 t",
            "q1 Q0 best 4 9.5 t",
            "q2 Q0 only 1 0.5 t",
            "q9 Q0 stranger 1 1.0 t",
        ],
    )
    assert split.rows() == [
        _row("q1", "best", 1, 9.5),
        _row("q1", "tied-first", 2, 2.0),
        _row("q1", "tied-second", 3, 2.0),
        _row("q2", "only", 1, 0.5),
    ]
    counts = {"topics": 3, "topics_without_candidates": 1, "candidates": 4, "foreign_queries": 1}
    assert split.counts() == counts | {"tied_scores": 1, "rank_disagreements": 2}


def test_given_run_notes_are_reported(tmp_path):
    notes = _split(
        tmp_path, ["q1 Q0 a 1 2.0 t", "q1 Q0 b 2 2.0 t", "q1 Q0 c 3 3.0 t", "q8 Q0 a 1 1.0 t"]
    ).notes
    assert [note.partition("given.run: ")[2] for note in notes] == [
        "queries that are not topics: 1 ('q8', ...); they are ignored",
        "rows with the score of the row before: 1; ordered by their ranks. `beamrank eval` and "
        "trec_eval order them by doc_id, descending, so their measures of this file can differ; "
        "`candidates.ties: doc_id` takes that order here too",
        "rows whose rank disagrees with the scores: 1; the scores decide",
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["q1 Q0 a 1 nan t"], "line 1: .*nan"),
        (
            ["q1 Q0 a\0b 1 1 t"],
            r"line 1: .*'a\\x00b', .*U\+0000",
        ),
        ([], "given.run"),
    ],
)
def test_run_with_a_wrong_row_commits_nothing(tmp_path, lines, message):
    with pytest.raises(PreflightError, match=message):
        _split(tmp_path, lines)
    assert not (tmp_path / "rank/receipts").exists()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["q1 Q0 a 1 2.0 t", "q2 Q0 a 1 2.0 t", "q1 Q0 a 2 1.0 t"],
            "line 3: .*'q1' .*'a' .*line 1",
        ),
        (["q1\ta\t1", "q1\ta\t2"], "line 2: .*'q1' .*'a' .*line 1"),
        (["q8 Q0 a 1 1.0 t"], "given.run .*'q8'"),
    ],
)
def test_run_that_cannot_be_used(tmp_path, lines, message):
    with pytest.raises(PreflightError, match=message):
        _split(tmp_path, lines)


def test_doc_id_of_a_foreign_index_is_checked(tmp_path):
    columns = [["q1", "q2"], ["good", "a\u00a0b"], [1, 1], [2.0, 1.0]]
    found = pa.table(
        [pa.array(each, field.type) for each, field in zip(columns, CANDIDATES, strict=True)],
        CANDIDATES,
    )
    with pytest.raises(DataError, match=r"'q2' .*'a\\xa0b'"):
        GivenRun(run_digest="", k=3, url="").computed(SHARDS[0].topics, found)


def test_run_that_changed_after_its_digest_commits_nothing(tmp_path):
    execution = _given(tmp_path, ["q1 Q0 a 1 2.0 t"])
    stage = execution.stage
    assert isinstance(stage.url, str)
    whole = Path(stage.url).read_bytes()
    Path(stage.url).write_text("q1 Q0 b 1 2.0 t\n")
    with pytest.raises(DataError, match=r"given\.run changed"):
        execution.run()
    assert not (tmp_path / "rank").exists()
    Path(stage.url).write_bytes(whole)
    execution.run()
    assert execution.counts()["topics"] == 3
