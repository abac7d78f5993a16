"""Tests of building, checking and copying indexes."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import pytest

from beamrank.errors import BeamrankError, DataError, PreflightError
from beamrank.formats.corpora import digest_corpus
from beamrank.storage import digested
from beamrank.storage import files as storage
from models.lucene.build import build_index
from models.lucene.index import check_index, local_index, read_index_info
from tests.support.changed_files import flip_bit
from tests.support.corpora import save_corpus
from tests.support.progress import RecordedProgress
from tests.support.refusals import refuses
from tests.support.tiers import slow_but

pytestmark = pytest.mark.jvm

DOCS = {"d1": "a red fox", "d2": "a brown bear", "d3": "", "d4": "the fox and the bear"}
BUILD = """
import sys
from beamrank.formats.corpora import CorpusConfig
from models.lucene.build import build_index
print(build_index(CorpusConfig(path=sys.argv[1], format="jsonl"), sys.argv[2], 1).digest)
"""


def _start_build(corpus, index):
    command = [sys.executable, "-c", BUILD, corpus.path, str(index)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    corpus = save_corpus(folder, DOCS, extra='{"id": "d5"}\n')
    progress = RecordedProgress()
    info = build_index(corpus, str(folder / "index"), threads=2, progress=progress)
    assert progress.updates == [(4, None, "docs")]
    return folder, corpus, info


@pytest.fixture
def copy(built, tmp_path):
    """A copy of the index that a test may damage."""
    folder = tmp_path / "index"
    folder.mkdir()
    for file in (built[0] / "index").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_index_info_describes_a_built_index(built):
    folder, corpus, info = built
    assert (info.docs, info.empty_docs, info.bad_rows, info.warnings) == (3, 1, 1, ())
    assert "corpus.jsonl" in info.bad_examples[0].place
    assert info.corpus_digest == digest_corpus(corpus).digest
    assert (
        read_index_info(str(folder / "index"))
        == check_index(str(folder / "index"), info.corpus_digest)
        == info
    )
    assert sorted(file.name for file in folder.iterdir()) == [
        ".index.lock",
        "corpus.jsonl",
        "index",
    ]


def test_index_of_the_same_corpus_is_kept(built):
    folder, corpus, info = built
    before = (folder / "index" / "beamrank.json").stat().st_mtime_ns
    assert build_index(corpus, str(folder / "index"), threads=1) == info
    assert (folder / "index" / "beamrank.json").stat().st_mtime_ns == before


def test_index_of_another_corpus_is_refused_with_both_digests(built, tmp_path):
    folder, _, info = built
    other = save_corpus(tmp_path, {"d1": "something else"})
    with pytest.raises(PreflightError, match=info.corpus_digest[:12]) as raised:
        build_index(other, str(folder / "index"), threads=1)
    assert digest_corpus(other).digest[:12] in str(raised.value)


def test_index_of_texts_by_other_rules_is_said_to_be_old(built, copy):
    _, corpus, info = built
    older = info.model_copy(update={"corpus_digest": "0" * 64, "text_rules": 1})
    (copy / "beamrank.json").write_bytes(older.to_json())
    with pytest.raises(PreflightError, match=r"rules 1, here 2; .*CHANGELOG\.md"):
        build_index(corpus, str(copy), threads=1)
    updated = build_index(corpus, str(copy), threads=1, update=True)
    assert (updated.corpus_digest, updated.text_rules) == (info.corpus_digest, 2)


def test_foreign_index_is_accepted_with_a_warning(built, copy):
    (copy / "beamrank.json").unlink()
    (copy / "README").write_text("an index of somebody else")
    info = check_index(str(copy), "0" * 64)
    assert info.digest == built[2].digest
    assert (info.corpus_digest, info.docs, len(info.warnings)) == (None, None, 1)
    assert build_index(built[1], str(copy), threads=1) == info


def test_corrupt_index_is_refused(copy):
    largest = max(copy.iterdir(), key=lambda file: file.stat().st_size * file.name.startswith("_"))
    largest.write_bytes(largest.read_bytes()[:-1])
    with refuses(PreflightError, "damaged", file=largest.name):
        read_index_info(str(copy))
    largest.unlink()
    with refuses(PreflightError, "damaged", file=largest.name):
        read_index_info(str(copy))


@pytest.fixture
def hashed(hashed, tmp_path, monkeypatch):
    """Those of a machine that has hashed none before."""
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "cache"))
    return hashed


def _in_a_new_process():
    """Forgets what this process has hashed."""
    digested._hashes.clear()


def test_corrupt_index_file_is_refused_by_name(built, copy, hashed):
    _, corpus, info = built
    drawn = random.Random(5)
    assert len(info.files) > 5
    for path in (copy / name for name in [*info.files, "beamrank.json"]):
        whole = path.read_bytes()
        for _ in range(3):
            flip_bit(path, drawn.randrange(len(whole)), drawn.randrange(8))
            with refuses(PreflightError, "damaged", file=path.name):
                check_index(str(copy), info.corpus_digest)
            path.write_bytes(whole)
    assert build_index(corpus, str(copy), threads=1) == info


def test_unchanged_index_is_hashed_once_on_a_machine(built, copy, hashed):
    info = built[2]
    for _ in range(3):
        _in_a_new_process()
        assert read_index_info(str(copy)) == info
        assert local_index(str(copy), info.digest).folder == str(copy)
    assert sorted(map(storage.name, hashed)) == sorted(info.files)
    touched = sorted(info.files)[0]
    (copy / touched).touch()
    for _ in range(2):
        _in_a_new_process()
        assert read_index_info(str(copy)) == info
    assert len(hashed) == len(info.files) + 1
    assert hashed[-1] == str(copy / touched)


def test_foreign_index_digest_changes_when_corrupt(built, copy, hashed):
    (copy / "beamrank.json").unlink()
    for _ in range(2):
        _in_a_new_process()
        assert read_index_info(str(copy)).digest == built[2].digest
    assert len(hashed) == len(built[2].files)
    flip_bit(Path(hashed[0]), 0, 0)
    assert read_index_info(str(copy)).digest != built[2].digest
    with refuses(PreflightError, "changed"):
        local_index(str(copy), built[2].digest)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"files": {"_0.si": 5}}', b"\xff"])
def test_corrupt_hash_cache_is_ignored(built, copy, hashed, tmp_path, content):
    for _ in range(2):
        _in_a_new_process()
        assert read_index_info(str(copy)) == built[2]
        (memory,) = (tmp_path / "cache" / "hashed").iterdir()
        memory.write_bytes(content)
    assert len(hashed) == 2 * len(built[2].files)


def test_unwritable_hash_cache_hashes_each_time(built, copy, hashed, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        _in_a_new_process()
        assert read_index_info(str(copy)) == built[2]
    assert len(hashed) == 2 * len(built[2].files)


def test_index_with_an_added_file_is_refused(copy, hashed):
    (copy / "segments_9").write_bytes(next(copy.glob("segments_*")).read_bytes())
    with pytest.raises(PreflightError, match="segments_9"):
        read_index_info(str(copy))


def test_open_index_detects_a_change(built, copy, hashed):
    index = local_index(str(copy), built[2].digest)
    hashed.clear()
    with index.unchanged():
        pass
    assert hashed == []
    name = sorted(built[2].files)[0]
    with pytest.raises(DataError, match=name), index.unchanged():
        flip_bit(copy / name, 0, 0)
    flip_bit(copy / name, 0, 0)
    with local_index(str(copy), built[2].digest).unchanged():
        pass


@pytest.mark.parametrize("content", ["", "not json", '{"digest": "abc"}'])
def test_broken_beamrank_json_is_refused(copy, content):
    (copy / "beamrank.json").write_text(content)
    with pytest.raises(PreflightError, match=r"beamrank\.json"):
        read_index_info(str(copy))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "Lucene"),
        (["notes.txt"], "segments"),
        (["segments_1"], "segments_1"),
    ],
)
def test_folder_without_index_is_refused(tmp_path, files, message):
    corpus = save_corpus(tmp_path, DOCS)
    folder = tmp_path / "index"
    folder.mkdir()
    for name in files:
        (folder / name).write_text("text")
    with pytest.raises(PreflightError, match=message):
        read_index_info(str(folder))
    if files:
        with pytest.raises(PreflightError, match=message):
            build_index(corpus, str(folder), threads=1)
        assert sorted(file.name for file in folder.iterdir()) == files


def test_unwritable_folder_is_refused(tmp_path):
    corpus = save_corpus(tmp_path, DOCS)
    with pytest.raises(PreflightError, match=corpus.path):
        build_index(corpus, f"{corpus.path}/index", threads=1)


def test_duplicate_doc_ids_are_named_with_both_places(tmp_path):
    line = json.dumps({"id": "d2", "contents": "again"}) + "\n"
    corpus = save_corpus(tmp_path, DOCS, extra=line)
    first = Path(corpus.path).read_text().index('{"id": "d2"')
    second = Path(corpus.path).stat().st_size - len(line)
    with pytest.raises(DataError, match="'d2'") as raised:
        build_index(corpus, str(tmp_path / "index"), threads=1)
    assert f"byte {first} " in str(raised.value)
    assert f"byte {second}." in str(raised.value)
    assert sorted(file.name for file in tmp_path.iterdir()) == [".index.lock", "corpus.jsonl"]


def test_too_many_bad_rows_end_the_build(tmp_path):
    corpus = save_corpus(tmp_path, DOCS, extra="{broken\n" * 3)
    with pytest.raises(DataError, match=r"3 .*max_bad_rows .*2 "):
        build_index(corpus, str(tmp_path / "index"), threads=1, max_bad_rows=2)
    assert not (tmp_path / "index").exists()


def test_corpus_without_text_is_an_error(tmp_path):
    corpus = save_corpus(tmp_path, {"d1": "", "d2": " "})
    with pytest.raises(DataError, match=corpus.path):
        build_index(corpus, str(tmp_path / "index"), threads=1)
    assert not (tmp_path / "index").exists()


@pytest.mark.slow
def test_doc_that_anserini_cannot_take_ends_the_build(tmp_path):
    corpus = save_corpus(
        tmp_path, {"d" * 40_000: "an id that is longer than a term of Lucene may be", "d2": "text"}
    )
    with pytest.raises(BeamrankError, match="2 docs"):
        build_index(corpus, str(tmp_path / "index"), threads=1)
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("moment", slow_but(1, ["docs", "log"]))
def test_killed_index_build_is_cleaned_up_by_the_next(tmp_path, moment):
    corpus, index = save_corpus(tmp_path, DOCS), tmp_path / "index"
    process = _start_build(corpus, index)
    while not list(tmp_path.glob(f".index.building-*/{moment}")):
        assert process.poll() is None
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not index.exists()
    assert list(tmp_path.glob(".index.building-*"))
    build_index(corpus, str(index), threads=1)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        ".index.lock",
        "corpus.jsonl",
        "index",
    ]


@pytest.mark.slow
def test_concurrent_index_builds_make_one_index(tmp_path):
    corpus, index = save_corpus(tmp_path, DOCS), tmp_path / "index"
    builds = [_start_build(corpus, index) for _ in range(2)]
    digests = {build.communicate(timeout=120)[0].strip() for build in builds}
    assert [build.returncode for build in builds] == [0, 0]
    assert digests == {read_index_info(str(index)).digest}


@pytest.mark.slow
def test_remote_index_is_uploaded_and_copied_once(tmp_path, monkeypatch):
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "cache"))
    corpus, url = save_corpus(tmp_path, DOCS), "memory://test_index/remote/index"
    info = build_index(corpus, url, threads=1)
    assert check_index(url, digest_corpus(corpus).digest) == info

    folder = local_index(url, info.digest).folder
    assert folder == str(tmp_path / "cache" / "indexes" / info.digest)
    assert read_index_info(folder) == info
    before = Path(folder).stat().st_mtime_ns
    assert local_index(url, info.digest).folder == folder
    assert Path(folder).stat().st_mtime_ns == before
    with refuses(PreflightError, "changed"):
        local_index(url, "0" * 64)

    damaged = Path(folder) / sorted(info.files)[0]
    flip_bit(damaged, 0, 0)
    assert local_index(url, info.digest).folder == folder
    assert read_index_info(folder) == info

    memory = fsspec.filesystem("memory")
    memory.rm("/test_index/remote/index/beamrank.json")
    memory.pipe("/test_index/remote/index/beamrank.uploading", b"")
    with refuses(PreflightError, "unfinished"):
        read_index_info(url)
    again = build_index(corpus, url, threads=1)
    assert {Path(name).name for name in memory.ls("/test_index/remote/index", detail=False)} == {
        *again.files,
        "beamrank.docs.parquet",
        "beamrank.json",
    }


def test_local_index_stays_where_it_is(built):
    folder, _, info = built
    assert local_index(str(folder / "index"), info.digest).folder == str(folder / "index")


@pytest.mark.slow
def test_jvm_needs_no_installed_java_or_utf8_locale(tmp_path):
    folder = tmp_path / "índice 索引"
    folder.mkdir()
    corpus = save_corpus(folder, DOCS)
    script = """
from models.lucene.bm25 import Bm25Searcher
from beamrank.records import Topic
with Bm25Searcher(sys.argv[2], 0.9, 0.4, 1) as searcher:
    print(searcher.search([Topic("q", "fox")], 10)["doc_id"].to_pylist())
"""
    done = subprocess.run(
        [sys.executable, "-c", BUILD + script, corpus.path, str(folder / "index")],
        env={"LC_ALL": "C", "PATH": "/nowhere", "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == ["['d1', 'd4']"]
    assert done.stderr == ""
