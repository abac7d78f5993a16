"""Named pipes, devices, sockets and paths with a NUL as inputs: read if one pass is enough, else refused."""

import gzip
import lzma
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.errors import PreflightError
from beamrank.evaluation.evaluate import evaluate_run_files
from beamrank.formats.corpora import CorpusConfig, digest_corpus, list_units
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.storage.local_files import check_regular
from models.stages.given_run import candidates_digest

pytestmark = pytest.mark.timeout(20)

RUN = b"q Q0 a 1 2 t\nq Q0 b 2 1 t\n"
QRELS = b"q 0 b 1\n"
READERS: dict[str, Callable[[str], object]] = {
    "topics": lambda path: read_topics(TopicsConfig(path=path, format="tsv")),
    "corpus": lambda path: list_units(CorpusConfig(path=path, format="jsonl")),
    "Parquet corpus": lambda path: list_units(CorpusConfig(path=path, format="parquet")),
    "TREC CAR": lambda path: list_units(CorpusConfig(path=path, format="car")),
    "digest": lambda path: digest_corpus(CorpusConfig(path=path, format="jsonl")).digest,
    "given run": candidates_digest,
}
ONCE: dict[str, Callable[[str], object]] = {"run": read_run, "qrels": read_qrels}


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Callable[[str, bytes], str]]:
    """Makes a named pipe that gives some bytes to its first reader."""
    threads = []

    def start(name: str, content: bytes) -> str:
        path = tmp_path / name
        os.mkfifo(path)
        threads.append(threading.Thread(target=path.write_bytes, args=(content,), daemon=True))
        threads[-1].start()
        return str(path)

    yield start
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def test_runs_and_qrels_can_be_pipes(feed):
    runs = [feed("run", RUN), feed("baseline", b"q Q0 b 1 1 t\n")]
    found = evaluate_run_files(runs, feed("qrels", QRELS), ["RR"])
    assert [each.evaluation.means for each in found] == [{"RR": 0.5}, {"RR": 1}]


@pytest.mark.parametrize("content", [RUN, b"".join(b"q Q0 d%d 1 %d t\n" % (i, -i) for i in range(50_000))])
def test_pipe_is_read_to_its_end(feed, content):
    assert len(read_run(feed("run", content)).order["q"]) == content.count(b"\n")


def test_pipe_named_as_compressed_is_decompressed(feed):
    packed = {
        "run.gz": gzip.compress(RUN),
        "run.xz": lzma.compress(RUN),
        "run.zst": pa.compress(RUN, "zstd", asbytes=True),
    }
    for name, content in packed.items():
        assert read_run(feed(name, content)).order == {"q": ["a", "b"]}


@pytest.mark.parametrize("reader", READERS)
def test_pipe_is_refused_as_an_input_of_a_job(tmp_path, reader):
    """It has no writer: opening it would block."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        PreflightError, match=r"pipe is a named pipe \(FIFO\), and a job reads its inputs more than once"
    ):
        READERS[reader](str(tmp_path / "pipe"))


def test_pipe_in_the_folder_of_a_corpus_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "1", "contents": "x"}\n')
    os.mkfifo(tmp_path / "b.jsonl")
    with pytest.raises(PreflightError, match=r"b\.jsonl is a named pipe"):
        list_units(CorpusConfig(path=str(tmp_path), format="jsonl"))


@pytest.mark.parametrize("reader", [*READERS, *ONCE])
@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero"])
def test_device_is_refused(reader, device):
    with pytest.raises(PreflightError, match=f"{device} is a device: give a regular file"):
        (READERS | ONCE)[reader](device)


@pytest.mark.parametrize("reader", [*READERS, *ONCE])
def test_socket_is_refused(tmp_path, monkeypatch, reader):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        with pytest.raises(PreflightError, match="socket is a socket: give a regular file"):
            (READERS | ONCE)[reader](str(tmp_path / "socket"))


@pytest.mark.parametrize("reader", [*READERS, *ONCE])
def test_nul_in_a_path_is_refused(tmp_path, reader):
    with pytest.raises(PreflightError, match=r"the path '.*a\\x00b' contains a NUL character"):
        (READERS | ONCE)[reader](str(tmp_path / "a\0b"))


@pytest.mark.parametrize("reader", [*READERS, *ONCE])
@pytest.mark.parametrize("name", ["loop", "x" * 300, "a/" * 5000, "x" * 100_000], ids=len)
def test_path_that_no_file_can_have_is_refused(tmp_path, reader, name):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(PreflightError) as refusal:
        (READERS | ONCE)[reader](str(tmp_path / name))
    if reader in ONCE:
        assert str(refusal.value).startswith("cannot use the path ")
        assert len(str(refusal.value)) < 500


def test_regular_files_folders_and_links_are_accepted(tmp_path):
    pq.write_table(pa.table({"id": ["1"], "text": ["x"]}), tmp_path / "c.parquet")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "c.parquet")
    for path in (tmp_path, tmp_path / "c.parquet", tmp_path / "link.parquet", tmp_path / "none"):
        check_regular(str(path))
    assert len(list_units(CorpusConfig(path=str(tmp_path / "link.parquet"), format="parquet"))) == 1
