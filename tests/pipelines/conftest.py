"""A small real collection, and what its runs reach."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from apache_beam.utils.subprocess_server import pick_port
from fsspec import register_implementation

from beamrank.demo.collection import demo_qrels, demo_questions, stdlib_docs
from tests.support.checkpoints import Pair
from tests.support.services.dataflow import GCP, BucketFileSystem, Service, serving
from tests.support.small_collection import SmallCollection


@pytest.fixture(scope="session")
def corpus() -> dict[str, str]:
    """Some hundred docs of the standard library, those that answer the first questions among
    them.
    """
    answers = {doc_id for query_id, doc_id in demo_qrels() if query_id in list(topics_of_demo(10))}
    docs = stdlib_docs()
    return {
        doc.doc_id: doc.text
        for number, doc in enumerate(docs)
        if doc.doc_id in answers or number % 20 == 0
    }


def topics_of_demo(count: int) -> dict[str, str]:
    return {topic.query_id: topic.text for topic in demo_questions()[:count]}


@pytest.fixture(scope="session")
def topics() -> dict[str, str]:
    return topics_of_demo(10)


@pytest.fixture(scope="session")
def config_path(tmp_path_factory, corpus, topics, checkpoints) -> Path:
    """A configuration whose index is built once; give each run an output of its own."""
    folder = tmp_path_factory.mktemp("collection")
    return SmallCollection(folder, corpus, topics).with_index(12).with_models(checkpoints, 8).path


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
def remote_config(bucket: Path, topics: dict[str, str], corpus: dict[str, str]) -> Path:
    """The cascade with a given run as its first stage, its corpus in the bucket and its models in
    the images.
    """
    keys = {
        "corpus": {"path": "bucket://here/corpus.jsonl", "format": "jsonl"},
        "output": "bucket://here/out",
    }
    candidates = {query_id: sorted(corpus)[:8] for query_id in topics}
    collection = SmallCollection(bucket, corpus, topics, **keys).given_run(candidates, k=8)
    return collection.with_models(Pair("embedded:mono", "embedded:duo"), 4, 2).path


@pytest.fixture(scope="session")
def worker_pool() -> Iterator[str]:
    """The address of a pool that starts workers as processes of its own; it stands for another
    machine.
    """
    (port,) = pick_port(None)
    command = [sys.executable, "-m", "pipelines.runners.workers", "pool", f"--service_port={port}"]
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
