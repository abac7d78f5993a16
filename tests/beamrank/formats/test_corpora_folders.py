"""Folders of corpora: their files, digests, and outputs that lie in them."""

from pathlib import Path

import fsspec
import pytest

from beamrank.errors import PreflightError
from beamrank.formats.corpora import (
    corpus_files,
    digest_corpus,
    find_taken,
    list_units,
    read_unit,
)
from tests.support.corpora import corpus_of
from tests.support.refusals import refuses


@pytest.mark.parametrize(
    ("name", "path", "url", "taken"),
    [
        ("jsonl", "docs", "docs/out/plan-0.json", True),
        ("jsonl", "docs", "docs/plan-0.json", True),
        ("jsonl", "docs", "docs2/out/plan-0.json", False),
        ("jsonl", "docs", "out/docs/plan-0.json", False),
        ("jsonl", "docs", "docs/out/mono.trec", False),
        ("jsonl", "docs", "docs/out/.plan-0.json", False),
        ("jsonl", "docs/corpus.jsonl", "docs/out/plan-0.json", False),
        ("tsv", "docs", "docs/out/runs/mono.msmarco.tsv", True),
        ("tsv", "docs", "docs/out/plan-0.json", False),
        ("parquet", "docs", "docs/out/mono/part-0.parquet", True),
        ("beir", "docs", "docs/out/plan-0.json", False),
        ("jsonl", "docs/*.jsonl", "docs/out/plan-0.json", False),
        ("jsonl", "docs/**/*.json", "docs/out/plan-0.json", True),
        # The folder of the output is one of the matches itself.
        ("jsonl", "docs/*", "docs/out/plan-0.json", True),
        ("jsonl", "do*/out/*.json", "docs/out/plan-0.json", True),
    ],
)
def test_find_taken_finds_a_file_of_the_corpus(tmp_path, name, path, url, taken):
    wanted = f"{tmp_path}/{url}"
    found = find_taken(corpus_of(f"{tmp_path}/{path}", name), [f"{tmp_path}/elsewhere", wanted])
    assert found == (wanted if taken else None)
    assert list(tmp_path.iterdir()) == []


def test_find_taken_follows_links(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "docs")
    wanted = f"{tmp_path}/docs/out/plan-0.json"
    assert find_taken(corpus_of(tmp_path / "link", "jsonl"), [wanted]) == wanted


def test_find_taken_keeps_buckets_and_local_folders_apart():
    """A store that answers at once: the folder is looked up."""
    corpus = corpus_of("memory://bucket/docs", "jsonl")
    assert (
        find_taken(corpus, ["memory://bucket/docs/out/plan-0.json"])
        == "memory://bucket/docs/out/plan-0.json"
    )
    assert (
        find_taken(corpus, ["/bucket/docs/out/plan-0.json", "s3://bucket/docs/out/plan-0.json"])
        is None
    )


def test_corpus_digest_ignores_the_folder(tmp_path):
    def digest(folder, name="jsonl", fields=None):
        return digest_corpus(corpus_of(tmp_path / folder, name, fields)).digest

    for folder, name, text in [("a", "c", "1"), ("b", "c", "1"), ("c", "d", "1"), ("d", "c", "2")]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.jsonl").write_text(text)
        (tmp_path / folder / "other.jsonl").write_text("same")
    assert digest("a") == digest("b")
    assert len(digest("a")) == 64
    others = [
        digest("c"),
        digest("d"),
        digest("a", fields=("x",)),
        digest("a/c.jsonl", "tsv"),
        digest("a/c.jsonl"),
    ]
    assert len({digest("a"), *others}) == 6


def test_digest_of_a_remote_file_is_its_stores_checksum():
    files = fsspec.filesystem("memory")
    corpus = corpus_of("memory://digest/c.tsv", "tsv")
    files.pipe("/digest/c.tsv", b"1\tone\n")
    first = digest_corpus(corpus).digest
    assert digest_corpus(corpus).digest == first
    files.pipe("/digest/c.tsv", b"1\ttwo\n")
    assert digest_corpus(corpus).digest != first
    files.rm("/digest", recursive=True)


@pytest.mark.parametrize("ending", ["lz4", "zip", "snappy", "deflate", "br", "lzo"])
def test_folder_with_a_file_in_another_compression_is_refused(tmp_path, ending):
    """It would be left out in silence."""
    (tmp_path / "part-0.jsonl").write_text('{"id": "a", "contents": "x"}\n')
    (tmp_path / f"z-notes.{ending}").write_bytes(b"no docs")
    assert len(corpus_files(corpus_of(tmp_path, "jsonl"))) == 1
    (tmp_path / f"part-1.JSONL.{ending}").write_bytes(b"packed")
    for name in ("jsonl", "auto"):
        with refuses(PreflightError, "packed", file=f"part-1.JSONL.{ending}"):
            corpus_files(corpus_of(tmp_path, name))


def test_corpus_format_is_guessed_from_a_file_that_is_not_empty(tmp_path):
    """Spark writes an empty file for a partition without rows."""
    (tmp_path / "part-0.json").touch()
    (tmp_path / "part-1.json").write_text('{"id": "a", "contents": "x"}\n')
    (tmp_path / "_SUCCESS").touch()
    assert [
        doc
        for unit in list_units(corpus_of(tmp_path, "auto"))
        for doc in next(read_unit(unit)).doc_ids
    ] == ["a"]


def test_folder_of_links_to_files_is_read(tmp_path):
    """As the cache of Hugging Face lays out a data set."""
    (tmp_path / "blobs").mkdir()
    for number in range(2):
        (tmp_path / "blobs" / str(number)).write_text(f'{{"_id": "d{number}", "text": "x"}}\n')
    (tmp_path / "set" / "corpus").mkdir(parents=True)
    (tmp_path / "set" / "corpus" / "0.jsonl").write_bytes((tmp_path / "blobs" / "0").read_bytes())
    (tmp_path / "set" / "corpus" / "1.jsonl").symlink_to("../../blobs/1")
    assert [Path(url).name for url in corpus_files(corpus_of(tmp_path / "set", "auto"))] == [
        "0.jsonl",
        "1.jsonl",
    ]


def test_folder_of_hugging_face_takes_every_spelling_and_compression(tmp_path):
    (tmp_path / "corpus").mkdir()
    for name in ("a.jsonl", "B.JSONL", "c.jsonl.zst", "_d.jsonl", ".e.jsonl"):
        (tmp_path / "corpus" / name).touch()
    found = corpus_files(corpus_of(tmp_path, "auto"))
    assert [Path(url).name for url in found] == ["B.JSONL", "a.jsonl", "c.jsonl.zst"]
    (tmp_path / "corpus" / "f.jsonl.lz4").touch()
    with refuses(PreflightError, "packed", file="f.jsonl.lz4"):
        corpus_files(corpus_of(tmp_path, "auto"))
