"""A given run as the first stage: the order of its ties, its forms and sizes, and a model that
makes it worse.
"""

import itertools
import json
import random
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.errors import PreflightError
from beamrank.formats.runs import read_run
from beamrank.notes import SILENT
from models.stages.core import open_stages, worker_paths
from pipelines.console.progress import Bar
from pipelines.launcher import Launcher
from pipelines.passes import Passes
from pipelines.runners import dataflow
from tests.pipelines.runners.test_engines import get_engine
from tests.support.processes import TWO_PROCESSES, beamrank, beamrank_here, refused, succeed
from tests.support.runs import assert_same_bytes, parts, read_trec
from tests.support.small_collection import SmallCollection

DOCS = {
    f"d{number}": f"the passage number {number}, which is about {number} cats"
    for number in range(8)
}
TOPICS = {"q1": "cats", "q2": "the passage about 3 cats", "q3": "number 7"}


@pytest.fixture
def collection(tmp_path) -> SmallCollection:
    """All docs are candidates of each topic; the first four of them tie."""
    return _collection(tmp_path, TOPICS)


def _collection(folder: Path, topics: Mapping[str, str]) -> SmallCollection:
    made = SmallCollection(folder, DOCS, topics).given_run({}, k=8)
    rows = enumerate(DOCS, 1)
    lines = [f"{doc_id} {rank} {min(5, 9 - rank)} t" for rank, doc_id in rows]
    made.write("given.trec", (f"{query_id} Q0 {line}" for query_id in topics for line in lines))
    return made


def _run(collection: SmallCollection, *arguments: str):
    return succeed("run", collection.path, *arguments)


def test_given_run_is_ordered_by_the_chosen_ties(collection: SmallCollection) -> None:
    expected = {"rank": {query_id: list(DOCS) for query_id in TOPICS}}
    expected["doc_id"] = dict(read_run(str(collection.folder / "given.trec")).order)
    assert expected["rank"] != expected["doc_id"]
    for ties, order in (("rank", "their ranks"), ("doc_id", "doc_id, descending")):
        done = _run(
            collection,
            "--output",
            str(collection.folder / ties),
            "--set",
            f"candidates.ties={ties}",
        )
        assert f": 9; ordered by {order}" in done.stderr
        assert read_trec(collection.folder / ties / "runs/candidates.trec") == expected[ties]


def test_order_of_ties_decides_the_digest(collection: SmallCollection) -> None:
    default, rank, doc_id = (
        collection.plan(*overrides).plan
        for overrides in ([], ["candidates.ties=rank"], ["candidates.ties=doc_id"])
    )
    assert default.digest == rank.digest != doc_id.digest


def test_run_warns_about_a_worse_model(tmp_path: Path, mono_checkpoint) -> None:
    """The relevant docs are those that the model places last, so the run that it was given is
    better.
    """
    collection = _collection(tmp_path, {f"q{number}": f"number {number}" for number in range(9)})
    collection.keys["mono"] = {"checkpoint": mono_checkpoint, "k": 8}
    assert "warning" not in _run(collection).stderr
    ranked = read_trec(collection.output / "runs/mono.trec")
    assert all(doc_ids != list(DOCS) for doc_ids in ranked.values())
    collection.with_qrels(
        {query_id: ids[-1] for query_id, ids in ranked.items()}, ["recip_rank", "P_8"]
    )
    measured = _run(collection, "--stage", "runs")
    assert "By RR, mono (0.1250) is worse than candidates (" in measured.stderr
    warnings = [line for line in measured.stderr.splitlines() if line.startswith("warning: ")]
    below, backwards = warnings
    assert "mono is below candidates: RR 0.1250 after " in below
    assert "a larger checkpoint, or a multilingual one" in below
    assert "the reverse of the order of mono agrees better" in backwards
    assert "P@8" in measured.stderr
    assert measured.stdout.splitlines()[0].split("\t") == ["run", "RR", "P@8"]
    assert json.loads((collection.output / "runs/measures.json").read_text())["mono"] == {
        "RR": 0.125,
        "P@8": 0.125,
    }
    gate = ["--stage", "runs", "--fail-if"]
    assert _run(collection, *gate, "warnings > 2").returncode == 0
    failed = beamrank_here("run", collection.path, *gate, "warnings > 1")
    assert (failed.returncode, failed.stdout) == (4, measured.stdout)
    assert failed.stderr.splitlines()[-1].endswith("warnings > 1 holds: mono has 2")
    assert "nDCG@10 < 0" in refused("run", collection.path, "--fail-if", "nDCG@10 < 0", code=2)


def _rows(count: int) -> list[tuple[str, str, int, float]]:
    """Rows of some hundreds of queries, which are apart; scores tie."""
    drawn = random.Random(1)
    rows = [
        (f"q{number}", f"d{doc}", doc, doc // 3 / 8) for number in range(count) for doc in range(8)
    ]
    return drawn.sample(rows, len(rows))


@pytest.fixture
def many(tmp_path) -> SmallCollection:
    """Topics in seven shards; the run has their rows and those of other queries in Parquet files of
    two partitions.
    """
    made = SmallCollection(tmp_path, DOCS, {f"q{number}": "cats" for number in range(60)}, shards=7)
    made.keys["candidates"] = {"run": "run", "k": 5, "columns": {"query_id": "q", "doc_id": "d"}}
    rows = _rows(70)
    for number, part in enumerate((rows[:200], rows[200:])):
        folder = tmp_path / "run" / f"year={2024 + number}"
        folder.mkdir(parents=True)
        columns = zip(*part, strict=True)
        pq.write_table(
            pa.table(dict(zip(("q", "d", "rank", "score"), map(list, columns), strict=True))),
            folder / "0.parquet",
        )
    (tmp_path / "run/_SUCCESS").touch()
    text = "".join(
        f"{query_id} Q0 {doc_id} {rank} {score} t\n" for query_id, doc_id, rank, score in rows
    )
    (tmp_path / "run.trec").write_text(text)
    return made


def _parts(collection: SmallCollection, output: str, *overrides: str) -> list[str]:
    collection.run(*overrides, output=collection.folder / output, launcher=Launcher)
    return parts(collection.folder / output)


def test_job_gives_the_parts_of_the_launcher(many: SmallCollection, monkeypatch) -> None:
    text = ("candidates.run=run.trec", "candidates.columns=null")
    expected = _parts(many, "here", *text)
    assert len(expected) == 7
    assert _parts(many, "tables") == expected
    with monkeypatch.context() as patch:
        patch.setattr("pipelines.passes._HELD_BYTES", 1)
        assert _parts(many, "groups", *text) == expected
    monkeypatch.setattr("models.stages.given_run.SMALL_BYTES", 0)
    monkeypatch.setattr("beamrank.formats.run_units.UNIT_BYTES", 1000)
    monkeypatch.setattr("models.stages.given_run.UNIT_BYTES", 3000)
    assert _parts(many, "job", *text) == expected
    # Eleven units of 1,000 bytes and less, three of them a range.
    assert len(list((many.folder / "job/retrieve/scans").glob("unit-*.json"))) == 4
    monkeypatch.setattr("pipelines.passes.shuffle_passes", lambda size, shards, room: 3)
    assert _parts(many, "passes") == expected
    _run(many, "--output", str(many.folder / "share"), "--only", "0/1")
    assert parts(many.folder / "share") == expected


def test_launcher_holds_some_rows_of_a_run_at_a_time(tmp_path, monkeypatch) -> None:
    topics, rows, most = 64, 200_000, 1_048_576
    made = SmallCollection(tmp_path, DOCS, {f"q{n}": "cats" for n in range(topics)}, shards=32)
    queries, docs = (
        [f"{kind}{n % of}" for n in range(rows)] for kind, of in (("q", topics), ("d", rows))
    )
    table = pa.table(
        {"query_id": queries, "doc_id": docs, "score": pa.array([0.5] * rows, pa.float32())}
    )
    pq.write_table(table, tmp_path / "run.parquet", row_group_size=10_000)
    made.keys["candidates"] = {"run": "run.parquet", "k": 5}
    monkeypatch.setattr("pipelines.passes._HELD_BYTES", most)
    # Arrow counts what all threads hold.
    monkeypatch.setattr("models.stages.attempt._SHARDS_AT_ONCE", 1)
    plan, held, before = made.plan().plan, list[int](), pa.total_allocated_bytes()
    bar = Bar(
        SILENT,
        "retrieve",
        lambda *_: held.append(pa.total_allocated_bytes() - before),
    )
    record, *_ = plan.stages
    (stage,) = open_stages([record])
    open_shards = plan.tasks(record, []), plan.shard_digests(record, [])
    assert not list(Passes(1e12, False, bar).jobs(stage, plan, made.config, *open_shards))
    assert len(held) == 32
    assert max(held) < 2 * most < table.nbytes


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [TWO_PROCESSES, ("--runner", "embed")], ids=["multi_processing", "embed"]
)
def test_worker_processes_give_the_parts_of_the_launcher(
    many: SmallCollection, arguments, monkeypatch
) -> None:
    expected = _parts(many, "here")
    monkeypatch.setattr("models.stages.given_run.SMALL_BYTES", 0)
    _run(many, "--output", str(many.folder / "job"), *arguments)
    assert parts(many.folder / "job") == expected


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> SmallCollection:
    """The run is more than the launcher reads, as text and in tables: most rows are of queries that
    are no topics.
    """
    folder = tmp_path_factory.mktemp("large")
    made = SmallCollection(folder, DOCS, {f"q{number}": "cats" for number in range(60)}, shards=7)
    drawn = random.Random(2)
    others = [
        (f"other{number // 9}", drawn.randbytes(100).hex(), number, 0.5)
        for number in range(360_000)
    ]
    rows = _rows(60)
    rows = [
        *others[:100_000],
        *rows[:200],
        *others[100_000:350_000],
        *rows[200:],
        *others[350_000:],
    ]
    (folder / "run.trec").write_text("".join("{} Q0 {} {} {} t\n".format(*row) for row in rows))
    (folder / "run").mkdir()
    ends = [0, 215_000, 345_000, len(rows)]
    for number, (start, end) in enumerate(itertools.pairwise(ends)):
        columns = map(list, zip(*rows[start:end], strict=True))
        table = pa.table(dict(zip(("query_id", "doc_id", "rank", "score"), columns, strict=True)))
        pq.write_table(
            table, folder / f"run/{number}.parquet", compression="none", use_dictionary=False
        )
    made.keys["candidates"] = {"run": "run", "k": 5}
    return made


@pytest.mark.slow
@pytest.mark.parametrize("run", ["run", "run.trec"])
@pytest.mark.parametrize(
    "runner",
    ["local", *(pytest.param(each, marks=pytest.mark.maven) for each in ("flink", "spark"))],
)
def test_engines_read_a_run_that_is_too_large_for_the_launcher(
    large: SmallCollection, tmp_path, runner, run, monkeypatch
) -> None:
    if runner != "local":
        get_engine(runner)
    chosen = f"candidates.run={run}"
    done = beamrank(
        "run", large.path, "--output", tmp_path / "job", "--runner", runner, "--set", chosen
    )
    assert done.returncode == 0, done.stderr
    assert "topics: 40,000" in done.stderr
    assert len(list((tmp_path / "job/retrieve/scans").glob("unit-*.json"))) == 2
    monkeypatch.setattr("models.stages.given_run.SMALL_BYTES", 1 << 30)
    large.run(chosen, output=tmp_path / "here", launcher=Launcher)
    assert_same_bytes(tmp_path / "job", tmp_path / "here")


def _seconds(folder: Path, files: int) -> float:
    """The processor's, for a plan and a first stage of a run of so many files."""
    (folder / "run").mkdir(parents=True)
    for number in range(files):
        lines = [f"q{number % 50} Q0 d{number}-{doc} 1 {doc} t\n" for doc in range(3)]
        (folder / f"run/{number:05d}.trec").write_text("".join(lines))
    made = SmallCollection(folder, DOCS, {f"q{number}": "cats" for number in range(50)})
    made.keys["candidates"] = {"run": "run", "k": 5}
    begin = time.process_time()
    done = made.run(launcher=Launcher)
    seconds = time.process_time() - begin
    assert len(done.rows("retrieve")) == 50 * 5
    return seconds


@pytest.mark.slow
def test_small_files_cost_no_more_each_where_they_are_many(tmp_path) -> None:
    _seconds(tmp_path / "first", 100)
    few, many = (_seconds(tmp_path / str(files), files) for files in (500, 2000))
    assert many < 1.3 * 4 * few


@pytest.mark.parametrize(("most", "is_listed"), [(0, True), (1 << 20, False)])
def test_large_run_must_be_where_workers_reach_it(
    many: SmallCollection, monkeypatch, most, is_listed
) -> None:
    monkeypatch.setattr("models.stages.given_run.SMALL_BYTES", most)
    with pytest.raises(PreflightError, match=r"corpus\.path") as caught:
        dataflow.check_paths(worker_paths(many.config))
    assert ("candidates.run (" in str(caught.value)) == is_listed


def test_job_refuses_a_run_of_other_topics(many: SmallCollection, monkeypatch) -> None:
    many.write("topics.tsv", ["x1\tcats"])
    monkeypatch.setattr("models.stages.given_run.SMALL_BYTES", 0)
    for _ in range(2):
        with pytest.raises(PreflightError, match=r"run .*'q"):
            _parts(many, "job")
