"""A small real collection, and what its runs reach."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml
from apache_beam.utils.subprocess_server import pick_port
from fsspec import register_implementation

from beamrank.demo.collection import demo_qrels, demo_topics, stdlib_docs
from tests.support.cascades import write_config
from tests.support.dataflow_stub import GCP, BucketFileSystem, Service, serving


@pytest.fixture(scope="session")
def corpus() -> dict[str, str]:
    """Some hundred docs of the standard library, those that answer the first questions among them."""
    answers = {doc_id for query_id, doc_id, _ in demo_qrels() if query_id in list(topics_of_demo(10))}
    docs = stdlib_docs()
    return {doc.doc_id: doc.text for number, doc in enumerate(docs) if doc.doc_id in answers or number % 20 == 0}


def topics_of_demo(count: int) -> dict[str, str]:
    return {topic.query_id: topic.text for topic in demo_topics()[:count]}


@pytest.fixture(scope="session")
def topics() -> dict[str, str]:
    return topics_of_demo(10)


@pytest.fixture(scope="session")
def config_path(
    tmp_path_factory: pytest.TempPathFactory,
    corpus: dict[str, str],
    topics: dict[str, str],
    mono_checkpoint: str,
    duo_checkpoint: str,
) -> Path:
    """A configuration whose index is built once; give each run an output of its own."""
    return write_config(tmp_path_factory.mktemp("collection"), corpus, topics, mono_checkpoint, duo_checkpoint)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    pytest.importorskip("google.cloud.dataflow", reason=GCP)
    with serving() as service:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.url)
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        yield service


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """A folder that is also bucket://here."""
    BucketFileSystem.root = tmp_path
    BucketFileSystem.clear_instance_cache()
    register_implementation("bucket", BucketFileSystem, clobber=True)
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.fixture
def remote_config(bucket: Path, config_path: Path, topics: dict[str, str], corpus: dict[str, str]) -> Path:
    """The cascade with a given run as its first stage, its corpus in the bucket and its models in the images."""
    values = yaml.safe_load(config_path.read_text())
    for key in ("index", "bm25", "output"):
        values.pop(key)
    (bucket / "corpus.jsonl").write_bytes((config_path.parent / "corpus.jsonl").read_bytes())
    lines = [
        f"{query_id} Q0 {doc_id} {rank} {1 / rank} given\n"
        for query_id in topics
        for rank, doc_id in enumerate(sorted(corpus)[:8], 1)
    ]
    (bucket / "given.trec").write_text("".join(lines))
    values |= {
        "corpus": {"path": "bucket://here/corpus.jsonl", "format": "jsonl"},
        "candidates": {"run": str(bucket / "given.trec"), "k": 8},
        "mono": {"checkpoint": "embedded:mono", "k": 4},
        "duo": {"checkpoint": "embedded:duo", "k": 2},
        "device": "cpu",
        "output": "bucket://here/out",
    }
    path = bucket / "config.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.fixture(scope="session")
def worker_pool() -> Iterator[str]:
    """The address of a pool that starts workers as processes of its own; it stands for another machine."""
    (port,) = pick_port(None)
    command = [sys.executable, "-m", "pipelines.runners.worker_pool", f"--service_port={port}"]
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=nowhere, stderr=nowhere) as pool:
        while not _answers(port):
            assert pool.poll() is None
            time.sleep(0.1)
        yield f"localhost:{port}"
        for child in psutil.Process(pool.pid).children(recursive=True):
            child.kill()
        pool.kill()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("localhost", port)) == 0
