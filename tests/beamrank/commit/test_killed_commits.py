"""Workers that are killed while they commit shards, two at a time and into the same folder."""

import hashlib
import random
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from beamrank.commit.listing import manifest_name
from beamrank.commit.receipts import Receipt, StageFolder

SHARDS = 24
_ROWS = 30_000
# How many shards a worker that will be killed may commit: all together cannot finish, on any
# machine.
_COMMITS = 5


def shard_digests() -> tuple[str, ...]:
    return tuple(hashlib.sha256(bytes([shard])).hexdigest() for shard in range(SHARDS))


def shard_table(shard: int) -> pa.Table:
    """Half a megabyte that cannot be compressed, so that a kill finds writes under way."""
    content = pa.py_buffer(random.Random(shard).randbytes(16 * _ROWS))
    return pa.table(
        {"value": pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), _ROWS, [None, content])}
    )


def work(url: str) -> None:
    """A worker: commits every shard without a receipt, one after the other, then seals the
    stage.
    """
    folder, digests = StageFolder(url), shard_digests()
    tables = [shard_table(shard) for shard in range(SHARDS)]
    print("ready", flush=True)
    allowed = int(sys.stdin.readline())
    for shard, (digest, table) in enumerate(zip(digests, tables, strict=True)):
        if folder.receipt(shard, digest) is None:
            if allowed == 0:
                # Waits to be killed.
                sys.stdin.readline()
            allowed -= 1
            folder.commit(shard, digest, table, seconds=0, counts={})
    folder.seal("mono", digests)


def _worker(url: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, __file__, str(url)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _start(worker: "subprocess.Popen[str]", commits: int) -> None:
    assert worker.stdin is not None
    worker.stdin.write(f"{commits}\n")
    worker.stdin.flush()


def _states(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in folder.glob("receipts/0*.json")
    }


def _assert_whole(folder: StageFolder, receipts: dict[int, Receipt]) -> None:
    """Every valid receipt has a readable part with the content of its shard."""
    for shard, receipt in receipts.items():
        assert folder.read_part(receipt).equals(shard_table(shard))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of one worker that was not killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    worker = _worker(folder)
    assert worker.communicate(f"{SHARDS}\n")[0] == "ready\n"
    assert worker.returncode == 0
    return folder


def _parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_workers_killed_while_committing_leave_only_whole_shards(seed, tmp_path, undisturbed):
    """Two workers race through the same shards and are killed, one soon after the other, until the
    stage is sealed.
    """
    drawn, kills = random.Random(seed), 2 * seed
    folder, url = StageFolder(str(tmp_path)), tmp_path
    kept: dict[str, tuple[int, int]] = {}
    killed = 0
    while folder.manifest(shard_digests()) is None:
        workers = [_worker(url), _worker(url)]
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        dying = killed < kills
        for worker in workers:
            _start(worker, _COMMITS if dying else SHARDS)
        for worker in workers:
            if dying:
                time.sleep(drawn.uniform(0, 0.02))
                assert worker.poll() is None
                worker.kill()
                killed += 1
            worker.communicate()
        _assert_whole(folder, folder.receipts(shard_digests()))
        assert {name: _states(url)[name] for name in kept} == kept
        kept = _states(url)
    assert killed == kills
    assert _parts(url) == _parts(undisturbed)
    manifest = folder.manifest(shard_digests())
    assert manifest is not None
    assert (url / manifest_name(shard_digests())).read_bytes() == manifest.to_json()
    folder.sweep(shard_digests())
    assert list(url.rglob("*.tmp")) == []


if __name__ == "__main__":
    work(sys.argv[1])
