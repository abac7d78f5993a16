"""Files at real object stores: the first writer wins, files are whole, and listings are never
stale.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from beamrank.storage import files as storage
from beamrank.storage.digested import remote_file
from beamrank.storage.globs import find
from tests.support.processes import run_together

# Above these sizes a file goes up in several requests: 100 MiB with s3fs, 50 MiB with gcsfs.
_IN_PARTS_BYTES = {"s3": 101 << 20, "gs": 51 << 20}

_WRITER = """
import sys
from beamrank.storage import files as storage
url, writer, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
storage.exists(url)
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    print(int(storage.publish(f"{url}/{number}", writer.encode() * 1000)))
"""


def test_publish_first_writer_wins(every_store):
    url = f"{every_store.url}/first/a"
    assert storage.publish(url, b"1")
    assert not storage.publish(url, b"2")
    assert storage.read_bytes(url) == b"1"
    storage.replace(url, b"3")
    assert storage.read_bytes(url) == b"3"
    storage.remove(url)
    storage.remove(url)
    assert not storage.exists(url)
    assert storage.publish(url, b"4")


@pytest.mark.parametrize(
    "content", [b"", b"\r", b"\n", b"a\r", b"a\n", b"a\r\n", b"\na\r\n\r", b"\xff\0--\r\n--"]
)
def test_line_ends_are_kept(every_store, content):
    url = f"{every_store.url}/ends"
    storage.replace(url, content)
    assert storage.size_bytes(url) == len(content)
    assert storage.read_bytes(url) == content


def test_publish_first_writer_of_a_large_file_wins(any_store):
    size = _IN_PARTS_BYTES[any_store.url.partition("://")[0]]
    url = f"{any_store.url}/large"
    assert storage.publish(url, bytes(size))
    assert not storage.publish(url, b"\1" * size)
    assert storage.size_bytes(url) == size
    with storage.open_binary(url) as file:
        assert file.read(10) == bytes(10)
    storage.remove(url)


def test_publish_of_two_processes_one_wins(every_store):
    url, count = f"{every_store.url}/race", 25
    commands = [[sys.executable, "-c", _WRITER, url, name, str(count)] for name in "ab"]
    outcomes = [printed.split() for printed in run_together(commands, 60)]
    for number, won in enumerate(zip(*outcomes, strict=True)):
        assert sorted(won) == ["0", "1"]
        assert storage.read_bytes(f"{url}/{number}") == b"ab"[won.index("1") :][:1] * 1000
    assert len(outcomes[0]) == count


def test_files_of_another_process_are_seen(store):
    folder = f"{store.url}/seen"
    assert storage.sizes_bytes(folder) == {}
    assert not storage.exists(f"{folder}/a")
    program = "import sys; from beamrank.storage import files; files.replace(sys.argv[1], b'12')"
    subprocess.run([sys.executable, "-c", program, f"{folder}/a"], check=True, env=dict(os.environ))
    assert storage.sizes_bytes(folder) == {"a": 2}
    assert find(folder) == [f"{folder}/a"]


def test_replace_stream_that_fails_keeps_the_old_file(store):
    url = f"{store.url}/runs/bm25.trec"
    storage.replace_stream(url, [b"whole\n", b"run\n"])

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError("a part is gone")

    with pytest.raises(RuntimeError):
        storage.replace_stream(url, broken())
    assert storage.read_bytes(url) == b"whole\nrun\n"
    assert storage.sizes_bytes(storage.parent(url)) == {"bm25.trec": 10}


def test_read_files_sends_one_request_a_file(store):
    folder = f"{store.url}/many [1]"
    for name in "abc":
        storage.replace(f"{folder}/{name}", name.encode())
    store.requests.clear()
    assert storage.read_files(folder, ["c", "none", "a"]) == {"c": b"c", "a": b"a"}
    assert len(store.requests) == 3


def test_stored_file_identifies_the_content(store):
    url = f"{store.url}/told"
    told = []
    for content in (b"1", b"2", b"1"):
        storage.replace(url, content)
        told.append(remote_file(url))
    assert told[0] == told[2] != told[1]


def test_missing_bucket_is_file_not_found(store):
    missing = store.url.replace("bucket", "no-such-bucket")
    with pytest.raises(FileNotFoundError):
        storage.publish(f"{missing}/a", b"")
    with pytest.raises(FileNotFoundError):
        storage.read_bytes(f"{missing}/a")


def test_unreachable_store_is_an_os_error(s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(OSError, match=r"s3://bucket/a: .*docs/guide/storage\.md"):
        storage.read_bytes("s3://bucket/a")
