"""Folders at object stores, as Spark, Hadoop and a console leave them."""

import gzip
import os
from collections.abc import Callable

import pytest

from beamrank.config.load import load_config
from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.storage import files as storage
from beamrank.storage.globs import find
from contrib.pairs.tables import find_pairs
from models.checkpoints.sources import locate
from tests.support.refusals import refuses
from tests.support.tiers import slow_but


def _doc(number: int) -> bytes:
    return b'{"id": "d%d", "contents": "bread"}\n' % number


@pytest.fixture
def folder(any_store, tmp_path) -> str:
    """Three docs; an empty object has the name of the folder."""
    url = f"{any_store.url}/{tmp_path.name}/corpus"
    # Only a store's own library writes a name that ends in a slash.
    with storage.located(url) as (filesystem, path):
        for name in (
            "",
            "/",
            "/sub/",
            "/sub_$folder$",
            "/_SUCCESS",
            "/_committed_123",
            "/_temporary/0/part-0.json",
        ):
            filesystem.pipe_file(f"{path}{name}", b"")
        filesystem.invalidate_cache()
    for number, name in enumerate(("part-0.json", "part-1.json", "sub/part-2.json")):
        storage.publish(f"{url}/{name}", _doc(number))
    storage.publish(f"{url}/part-3.json", b"")
    return url


def _doc_ids(path: str, name: str) -> list[str]:
    return [
        each
        for unit in list_units(CorpusConfig(path=path, format=name))
        for each in next(read_unit(unit)).doc_ids
    ]


@pytest.mark.parametrize("name", slow_but(1, ["auto", "jsonl"]))
def test_folder_of_spark_is_read(folder, name):
    assert storage.is_folder(folder)
    assert not storage.is_folder(f"{folder}/part-0.json")
    assert not storage.is_folder(f"{folder}/part-3.json")
    for path in (folder, f"{folder}/", f"{folder}/**/*.json", f"{folder}/**"):
        assert _doc_ids(path, name) == ["d0", "d1", "d2"], path
    assert _doc_ids(f"{folder}/*.json", name) == _doc_ids(f"{folder}/p*", name) == ["d0", "d1"]
    assert set(storage.sizes_bytes(folder)) >= {"part-0.json", "part-1.json", "part-3.json"}
    assert not {"", "corpus"} & set(storage.sizes_bytes(folder))


def test_glob_refuses_folders_that_hold_data(folder):
    with storage.located(folder) as (filesystem, path):
        filesystem.pipe_file(f"{path}/empty/", b"")
    with pytest.raises(PreflightError, match="/sub "):
        find(f"{folder}/s*")
    assert find(f"{folder}/e*") == find(f"{folder}/none") == find(f"{folder}/none/*") == []


def test_tables_are_found_above_the_matches(any_store, tmp_path):
    folder = f"{any_store.url}/{tmp_path.name}"
    for name in ("a.parquet", "table/b.parquet", "table/_delta_log/0.json", "metadata/x.txt"):
        storage.publish(f"{folder}/{name}", b"x")
    assert find(f"{folder}/*.parquet") == [f"{folder}/a.parquet"]
    for path in ("", "/**/*.parquet", "/*/*.parquet", "/table/*.parquet"):
        with refuses(PreflightError, "table", file="table/_delta_log"):
            find(f"{folder}{path}")


def test_names_of_objects_are_kept(any_store, tmp_path):
    folder = f"{any_store.url}/{tmp_path.name}"
    names = sorted(
        ["a b.jsonl", "a#1.jsonl", "a%20b.jsonl", "a+b.jsonl", "ä.jsonl", "a[1].jsonl", "A b.jsonl"]
    )
    for number, name in enumerate(names):
        storage.publish(f"{folder}/{name}", _doc(number))
    whole = [f"{folder}/{name}" for name in names]
    for path in (folder, f"{folder}/*.jsonl"):
        assert find(path) == whole
        assert _doc_ids(path, "jsonl") == [f"d{number}" for number in range(len(names))]
    assert [_doc_ids(url, "jsonl") for url in whole] == [
        [f"d{number}"] for number in range(len(names))
    ]


def test_files_below_an_empty_name_are_read(store, tmp_path):
    folder = f"{store.url}/{tmp_path.name}"
    with storage.located(f"{folder}/docs") as (filesystem, path):
        for number, name in enumerate(("a.jsonl", "/b.jsonl")):
            filesystem.pipe_file(f"{path}/{name}", _doc(number))
    assert sorted(_doc_ids(f"{folder}/docs", "jsonl")) == ["d0", "d1"]
    assert sorted(_doc_ids(f"{folder}/docs/**/*.jsonl", "jsonl")) == ["d0", "d1"]


_READERS: dict[str, Callable[[str], object]] = {
    "corpus": lambda url: list_units(CorpusConfig(path=url)),
    "topics": lambda url: read_topics(TopicsConfig(path=url)),
    "qrels": read_qrels,
    "run": read_run,
    "pairs": lambda url: find_pairs([url]),
    "configuration": load_config,
    "checkpoint": lambda url: locate(storage.parent(url)),
    "copied": lambda url: storage.download(url, os.devnull),
}


@pytest.mark.parametrize("base", ["config.json", "config.json.gz"])
def test_object_that_its_store_unpacks_is_refused(gcs, tmp_path, monkeypatch, base):
    """gcsfs would read as many bytes of its content as the packed object has."""
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path))
    url = f"{gcs.url}/{tmp_path.name}/{base}"
    with storage.located(url) as (filesystem, path):
        packed = gzip.compress(_doc(1) * 1000)
        filesystem.pipe_file(path, packed, fixed_key_metadata={"content_encoding": "gzip"})
    readers = (
        _READERS if base == "config.json" else {name: _READERS[name] for name in ("corpus", "run")}
    )
    for read in readers.values():
        with pytest.raises(PreflightError, match=rf"{base} .*Content-Encoding: gzip.*gcloud"):
            read(url)


def test_packed_object_of_s3_is_told_by_its_content(s3, tmp_path):
    """S3 hands it out as it is stored."""
    url = f"{s3.url}/{tmp_path.name}/docs.jsonl"
    with storage.located(url) as (filesystem, path):
        for ending in ("", ".gz"):
            filesystem.pipe_file(f"{path}{ending}", gzip.compress(_doc(1)), ContentEncoding="gzip")
    assert _doc_ids(f"{url}.gz", "jsonl") == ["d1"]
    with pytest.raises(PreflightError, match=r"gzip: .*\.gz"):
        list_units(CorpusConfig(path=url, format="jsonl"))
