"""Copies of checkpoints and indexes from a store: fetched once a machine, and checked."""

import sys
from pathlib import Path

import pytest

from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from models.checkpoints.checkpoint import resolve_checkpoint
from models.lucene.index import UPLOADING_NAME, local_index, needs_building, read_index_info
from tests.support.checkpoints import save_tiny
from tests.support.processes import run_together
from tests.support.refusals import refuses
from tests.support.services.stores import Store

_FETCHER = """
import sys
from models.checkpoints.checkpoint import resolve_checkpoint
from models.lucene.index import local_index
print("ready", flush=True)
sys.stdin.readline()
print(resolve_checkpoint(sys.argv[1], "mono").folder)
print(local_index(sys.argv[2], sys.argv[3]).folder)
"""
_LUCENE_MAGIC = bytes.fromhex("3fd76c17")


@pytest.fixture
def checkpoint(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "cache"))
    url = f"{store.url}/{tmp_path.name}/checkpoint"
    save_tiny(tmp_path / "saved")
    for path in (tmp_path / "saved").iterdir():
        storage.upload(str(path), storage.join(url, path.name))
    return url


@pytest.fixture
def index(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Files that look like Lucene's."""
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "cache"))
    url = f"{store.url}/{tmp_path.name}/index"
    storage.replace(f"{url}/segments_1", _LUCENE_MAGIC + b"segments")
    storage.replace(f"{url}/_0.cfs", bytes(100_000))
    return url


@pytest.mark.slow
def test_copy_is_fetched_once_by_two_processes(store, checkpoint, index):
    digest = read_index_info(index).digest
    store.requests.clear()
    found = set(
        run_together([[sys.executable, "-c", _FETCHER, checkpoint, index, digest]] * 2, 120)
    )
    assert found == {
        f"{resolve_checkpoint(checkpoint, 'mono').folder}\n{local_index(index, digest).folder}\n"
    }
    assert store.reads("checkpoint", "model.safetensors") == 1
    # A foreign index is read once for its digest, which is its name here, and once to be copied.
    assert store.reads("index", "_0.cfs") == 2


def test_corrupt_copy_is_fetched_again(store, checkpoint):
    first = resolve_checkpoint(checkpoint, "mono")
    weights = Path(first.folder) / first.weights[0]
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + b"\0")
    assert resolve_checkpoint(checkpoint, "mono") == first
    assert weights.read_bytes() == whole
    assert store.reads("checkpoint", "model.safetensors") == 2


def test_changed_index_is_refused(index):
    digest = read_index_info(index).digest
    storage.replace(f"{index}/_0.cfs", b"\1" * 100_000)
    with refuses(PreflightError, "changed"):
        local_index(index, digest)


def test_unfinished_upload_of_an_index_is_refused(index):
    assert not needs_building(index)
    storage.replace(f"{index}/{UPLOADING_NAME}", b"")
    assert needs_building(index)
    with refuses(PreflightError, "unfinished"):
        read_index_info(index)
    assert needs_building(f"{index}/nothing")


def test_missing_checkpoint_is_named(store):
    with pytest.raises(PreflightError, match=f"{store.url}/none"):
        resolve_checkpoint(f"{store.url}/none", "mono")
