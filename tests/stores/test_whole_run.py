"""A whole run with everything at an object store: configuration, corpus, topics, qrels, index,
checkpoints, output.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.commit.plan import read_plan
from beamrank.commit.status import read_status
from beamrank.storage import files as storage
from pipelines.runs.run_metadata import ENDING
from tests.support.outputs import files_below
from tests.support.processes import beamrank, beamrank_here, succeed
from tests.support.runs import run_here, scored_and_reused
from tests.support.services.stores import Store
from tests.support.small_collection import SmallCollection
from tests.support.tiers import slow_but

pytestmark = pytest.mark.parametrize("store", slow_but(1, ["s3", "gcs"]), indirect=True)
# One is enough: it is another process.
_WORKER_PROCESS = ("--", "--direct_running_mode=multi_processing", "--direct_num_workers=1")


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> SmallCollection:
    """A small collection, whose paths are all relative to its configuration."""
    return (
        SmallCollection(tmp_path_factory.mktemp("collection"), shards=3)
        .with_index(8)
        .with_models()
        .with_qrels()
    )


@pytest.fixture(scope="module")
def local_runs(collection) -> dict[str, bytes]:
    """The run files of the same configuration on a disk."""
    return _runs(collection.run().plan.output)


def _runs(output: str) -> dict[str, bytes]:
    """The run files and the measures; the metadata of a run name the paths of its collection."""
    folder = storage.join(output, "runs")
    names = sorted(name for name in storage.sizes_bytes(folder) if not name.endswith(ENDING))
    return {name: storage.read_bytes(storage.join(folder, name)) for name in names}


@pytest.fixture
def job(collection, store: Store, tmp_path, monkeypatch) -> str:
    """A folder at a store with the collection in it."""
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "cache"))
    url = f"{store.url}/{tmp_path.name}"
    collection.upload(url)
    return url


def _assert_whole(output: str, expected: dict[str, bytes]) -> None:
    """Finished, with the runs of a disk and no secret of the store's."""
    assert sorted(expected) == ["bm25.trec", "duo-sum.trec", "measures.json", "mono.trec"]
    assert _runs(output) == expected
    assert [(stage.done, stage.eta_seconds) for stage in read_status(read_plan(output))] == [
        (3, 0.0)
    ] * 4
    for found in files_below(output):
        content = storage.read_bytes(found)
        assert b"AKIATESTSONLY" not in content
        assert b"a-secret-of-the-tests" not in content
    assert not (Path.cwd() / f"{output.partition('://')[0]}:").exists()


@pytest.mark.jvm
def test_whole_run_at_a_store_and_a_run_that_reuses_it(job, local_runs, store, tmp_path):
    run_here(f"{job}/config.yaml")
    _assert_whole(f"{job}/out", local_runs)
    # Launcher and workers asked for each checkpoint several times, and it was fetched once.
    assert [
        store.reads(job.rpartition("/")[2], kind, "model.safetensors") for kind in ("mono", "duo")
    ] == [1, 1]
    kinds = {path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()}
    assert kinds == {"checkpoints", "hashed", "indexes", "lists"}
    later = run_here(f"{job}/config.yaml", f"{job}/later", [f"reuse=[{job}/out]", "shards=2"])
    counts = scored_and_reused(later.plan.output)
    assert [scored for scored, _ in counts.values()] == [0, 0]
    assert _runs(f"{job}/later") == local_runs


@pytest.mark.slow
@pytest.mark.jvm
def test_worker_process_at_a_store_writes_the_same_bytes(job, local_runs):
    done = beamrank(
        "run", f"{job}/config.yaml", "--output", f"{job}/worker-process", *_WORKER_PROCESS
    )
    assert done.returncode == 0, done.stderr
    _assert_whole(f"{job}/worker-process", local_runs)


@pytest.mark.slow
def test_pairs_at_a_store_have_the_scores_of_a_disk(store, tmp_path, checkpoints):
    url = f"{store.url}/{tmp_path.name}"
    for number in range(2):
        texts = [f"text {number} {row}" for row in range(5)]
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"id": texts, "query": texts, "doc": texts[::-1]}), path)
        storage.upload(str(path), f"{url}/pairs/{number}.parquet")
    parts = []
    for pairs, output in ((str(tmp_path), str(tmp_path / "out")), (f"{url}/pairs", f"{url}/out")):
        options = ("--checkpoint", checkpoints.mono, "--shard-rows", "3", "--output", output)
        done = succeed("score", f"{pairs}/*.parquet", *options)
        folder = done.stdout.strip()
        parts.append({storage.name(path): storage.read_bytes(path) for path in files_below(folder)})
        assert "all files verified" in beamrank_here("verify", output).stderr
    assert parts[0] == parts[1]
    assert sorted(parts[0]) == ["_SUCCESS", *(f"part-{shard:05d}.parquet" for shard in range(4))]
