"""A whole run with everything at an object store: configuration, corpus, topics, qrels, index, checkpoints, output."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from beamrank.config.run import load_config
from beamrank.stages.plan import read_plan
from beamrank.stages.status import read_status
from beamrank.storage import files as storage
from pipelines.console.progress import ConsoleProgress
from pipelines.launcher import Launcher
from pipelines.output.run_files import write_runs
from pipelines.planning.make_plan import make_plan
from tests.support.checkpoints import save_tiny
from tests.support.processes import beamrank
from tests.support.services.stores import Store

# One is enough: it is another process.
_WORKER_PROCESS = ("--", "--direct_running_mode=multi_processing", "--direct_num_workers=1")
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_WORDS = [f"{first}{last}" for first in ("ba", "de", "ki", "lo", "mu") for last in ("fan", "gor", "hil", "jun", "pet")]


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small collection with its configuration, whose paths are all relative to it."""
    folder = tmp_path_factory.mktemp("collection")
    chance = random.Random(0)
    docs = {f"d{number}": " ".join(chance.choices(_WORDS, k=12)) for number in range(40)}
    rows = "".join(json.dumps({"id": doc_id, "contents": text}) + "\n" for doc_id, text in docs.items())
    (folder / "corpus.jsonl").write_text(rows)
    topics = {f"q{number}": " ".join(chance.sample(_WORDS, 3)) for number in range(6)}
    (folder / "topics.tsv").write_text("".join(f"{query_id}\t{text}\n" for query_id, text in topics.items()))
    (folder / "qrels.txt").write_text("".join(f"{query_id} 0 d{number} 1\n" for number, query_id in enumerate(topics)))
    for kind, segments in (("mono", 2), ("duo", 3)):
        save_tiny(folder / kind, type_vocab_size=segments)
        (folder / kind / "vocab.txt").write_text("".join(f"{word}\n" for word in _SPECIAL + _WORDS))
    values = {
        "corpus": {"path": "corpus.jsonl", "format": "jsonl"},
        "topics": {"path": "topics.tsv", "format": "tsv"},
        "qrels": "qrels.txt",
        "index": {"path": "index"},
        "bm25": {"k": 8},
        "mono": {"checkpoint": "./mono", "k": 6},
        "duo": {"checkpoint": "./duo", "k": 3},
        "threads": 1,
        "shards": 3,
        "dtype": "float32",
        "device": "cpu",
        "output": "out",
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    return folder


@pytest.fixture(scope="module")
def local_runs(collection: Path) -> dict[str, bytes]:
    """The run files of the same configuration on a disk."""
    return _run_here(str(collection / "config.yaml"))


def _run_here(url: str, overrides: Sequence[str] = ()) -> dict[str, bytes]:
    config = load_config(url, overrides)
    talk = ConsoleProgress(quiet=True)
    plan = make_plan(config, talk)
    plan.publish()
    Launcher(plan, config, talk).run_all()
    write_runs(plan, config, talk)
    return _runs(config.output)


def _runs(output: str) -> dict[str, bytes]:
    folder = storage.join(output, "runs")
    return {name: storage.read_bytes(storage.join(folder, name)) for name in sorted(storage.sizes_bytes(folder))}


def _upload(folder: Path, url: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and path.relative_to(folder).parts[0] not in ("index", "out"):
            storage.upload(str(path), storage.join(url, str(path.relative_to(folder))))


@pytest.fixture
def job(collection: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder at a store with the collection in it."""
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "cache"))
    url = f"{store.url}/{tmp_path.name}"
    _upload(collection, url)
    return url


def _assert_whole(output: str, expected: dict[str, bytes]) -> None:
    """Finished, with the runs of a disk and no secret of the store's."""
    assert sorted(expected) == ["bm25.trec", "duo-sum.trec", "measures.json", "mono.trec"]
    assert _runs(output) == expected
    assert [(stage.done, stage.eta_seconds) for stage in read_status(read_plan(output))] == [(3, 0.0)] * 4
    for found in storage.find(output):
        content = storage.read_bytes(found)
        assert b"AKIATESTSONLY" not in content
        assert b"a-secret-of-the-tests" not in content
    assert not (Path.cwd() / f"{output.partition('://')[0]}:").exists()


@pytest.mark.jvm
def test_whole_run_at_a_store(job, local_runs, store, tmp_path):
    _run_here(f"{job}/config.yaml")
    _assert_whole(f"{job}/out", local_runs)
    # Launcher and workers asked for each checkpoint several times, and it was fetched once.
    assert [store.reads(job.rpartition("/")[2], kind, "model.safetensors") for kind in ("mono", "duo")] == [1, 1]
    kinds = {path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()}
    assert kinds == {"checkpoints", "hashed", "indexes"}


@pytest.mark.slow
@pytest.mark.jvm
def test_worker_process_at_a_store_writes_the_same_bytes(job, local_runs):
    done = beamrank("run", f"{job}/config.yaml", "--output", f"{job}/worker-process", *_WORKER_PROCESS)
    assert done.returncode == 0, done.stderr
    _assert_whole(f"{job}/worker-process", local_runs)
