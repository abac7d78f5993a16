"""pyserini's prebuilt indexes and topics: names from its package, downloads from a server on
loopback.
"""

import hashlib
import json
import tarfile
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from beamrank.config.load import load_config
from beamrank.errors import ConfigError, PreflightError
from beamrank.formats.topics import TopicsConfig, read_topics
from contrib.datasets import prebuilt
from contrib.datasets.prebuilt import fetch_prebuilt, find_prebuilt
from models.lucene import jvm
from models.lucene.build import build_index
from models.stages.bm25 import ensure_index
from models.training.config import load_train_config
from pipelines.plan.named_inputs import named_inputs, named_training
from tests.support.corpora import save_tar
from tests.support.progress import RecordedProgress
from tests.support.small_collection import SmallCollection
from tests.support.training import write_train_config


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A folder, and its URL on loopback; the cache is empty."""
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture
def table(served, monkeypatch, tmp_path):
    """A function that puts an index into the tables of a jar, in place of Anserini's."""

    def describe(base, md5=None):
        content = (served[0] / base).read_bytes()
        row = {
            "name": "small",
            "type": "inverted",
            "urls": [served[1] + base],
            "compressed_size": len(content),
        }
        row["md5"] = md5 or hashlib.md5(content).hexdigest()
        with zipfile.ZipFile(tmp_path / "anserini.jar", "w") as jar:
            jar.writestr("prebuilt-indexes/small-inverted.json", json.dumps([row]))
        monkeypatch.setattr(jvm, "anserini_jar", lambda: tmp_path / "anserini.jar")

    return describe


def test_prebuilt_indexes_are_those_of_pyserini():
    index = find_prebuilt("msmarco-v1-passage")
    assert index.url.endswith("/lucene-inverted.msmarco-v1-passage.20221004.252b5e.tar.gz")
    assert index.md5 == "678876e8c99a89933d553609a0fd8793"
    assert index.folder.endswith("/indexes/md5-678876e8c99a89933d553609a0fd8793")
    with pytest.raises(PreflightError, match=r"'msmarco-passage'.*msmarco-v1-passage"):
        find_prebuilt("msmarco-passage")


@pytest.mark.jvm
def test_prebuilt_index_is_downloaded_once_and_searched(tmp_path, served, table, monkeypatch):
    collection = SmallCollection(tmp_path).with_index()
    config = load_config(str(collection.path))
    build_index(config.corpus, str(tmp_path / "built"), 1)
    with tarfile.open(served[0] / "index.tar.gz", "w:gz") as archive:
        for path in (tmp_path / "built").iterdir():
            if path.suffix != ".json":
                archive.add(path, f"lucene-index.small/{path.name}")
    table("index.tar.gz")
    progress = RecordedProgress()
    values = {**collection.keys, "index": {"prebuilt": "small"}}
    collection.keys = values
    settings = named_inputs(load_config(str(collection.path)), progress)
    assert settings.index is not None
    assert settings.index.path == find_prebuilt("small").folder
    first = ensure_index(settings, "", progress)
    (served[0] / "index.tar.gz").unlink()
    assert ensure_index(settings, "", progress) == first
    assert [
        note for note in progress.notes if note.startswith("downloading the index small")
    ] == progress.notes[:1]


@pytest.mark.parametrize(
    ("members", "md5", "message"),
    [
        ({"i/segments_1": b"x"}, "0" * 32, "0{32}"),
        ({"i/segments_1": b"not Lucene's"}, None, "segments_1"),
        ({"i/other": b"x"}, None, "Lucene"),
        ({"../../segments_1": b"x"}, None, r"small.*'\.\./\.\./segments_1'"),
        ({"/segments_1": b"x", "i/link": None}, None, "'i/link'"),
    ],
)
def test_archive_that_is_not_the_index_is_refused(served, table, tmp_path, members, md5, message):
    save_tar(served[0] / "index.tar.gz", members)
    table("index.tar.gz", md5)
    with pytest.raises(PreflightError, match=message):
        fetch_prebuilt(find_prebuilt("small"), RecordedProgress())
    assert not list((tmp_path / "cache" / "indexes").glob("[!.]*"))
    assert not list(tmp_path.rglob("segments_1"))


def test_index_that_cannot_be_downloaded_names_its_url(served, table):
    save_tar(served[0] / "index.tar.gz", {"i/segments_1": b"x"})
    table("index.tar.gz")
    (served[0] / "index.tar.gz").unlink()
    with pytest.raises(PreflightError, match=r"small .*http://127\.0\.0\.1"):
        fetch_prebuilt(find_prebuilt("small"), RecordedProgress())


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "`path`, or `prebuilt`"),
        ({"prebuilt": "small", "update": True}, "prebuilt"),
    ],
)
def test_index_section_needs_a_place(tmp_path, index, message):
    collection = SmallCollection(tmp_path, index=index, bm25={})
    with pytest.raises(ConfigError, match=message):
        load_config(str(collection.path))


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("msmarco-passage-dev-subset", "topics.msmarco-passage.dev-subset.txt"),
        ("dl19-passage", "topics.dl19-passage.txt"),
        ("robust04", "topics.robust04.txt"),
        ("beir-v1.0.0-nfcorpus-test", "topics.beir-v1.0.0-nfcorpus.test.tsv.gz"),
    ],
)
def test_names_of_topics_are_those_of_pyserini(name, base):
    assert prebuilt.topics_file_name(name) == base


def test_unknown_topics_name_the_nearest():
    with pytest.raises(PreflightError, match=r"'dl19'.* \d+: .*dl19-"):
        prebuilt.topics_file_name("dl19")


def test_prebuilt_topics_are_downloaded_once(tmp_path, served, monkeypatch):
    monkeypatch.setattr(prebuilt, "_TOPICS_URL", served[1])
    (served[0] / "topics.dl19-passage.txt").write_text("1\tTSS\n")
    collection = SmallCollection(tmp_path, topics={"q": "x"}).given_run({"1": ["d1"]})
    collection.keys["topics"] = {"path": "prebuilt:dl19-passage"}
    progress = RecordedProgress()
    for _ in range(2):
        settings = named_inputs(load_config(str(collection.path)), progress)
        assert list(read_topics(settings.topics)) == [("1", "TSS")]
        (served[0] / "topics.dl19-passage.txt").unlink(missing_ok=True)
    assert settings.topics.format == "tsv"
    data = {
        "corpus": {"path": "corpus.jsonl"},
        "topics": {"path": "prebuilt:dl19-passage"},
        "qrels": "q",
        "run": "r",
    }
    training = write_train_config(tmp_path / "training", "start", data=data)
    trained = named_training(load_train_config(str(training), "mono"), progress)
    assert trained.data.topics is not None
    assert list(read_topics(trained.data.topics)) == [("1", "TSS")]
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "other"))
    with pytest.raises(PreflightError, match=r"dl19-passage .*http://127"):
        named_inputs(load_config(str(collection.path)), progress)
    assert TopicsConfig(path="prebuilt:dl19-passage").path == "prebuilt:dl19-passage"
