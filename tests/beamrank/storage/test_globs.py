"""What paths, folders and globs name."""

import os
import subprocess
import sys
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.globs import absolute_glob, find, relative_to, resolved_in
from tests.support.refusals import refuses

_AS_NOBODY = """
import os, sys
from beamrank.errors import PreflightError
from beamrank.storage.globs import find
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
for path in sys.argv[1:]:
    try:
        print(find(path))
    except PreflightError as error:
        print(error)
"""


def _write(folder: Path, *names: str) -> None:
    for name in names:
        storage.publish(str(folder / name), b"x")


def _found(folder: Path, path: str) -> list[str]:
    return [os.path.relpath(each, folder) for each in find(str(folder / path))]


def test_find_takes_a_file_a_folder_or_a_glob(tmp_path):
    _write(tmp_path, "b.tsv", "a.tsv", "sub/c.tsv")
    for path, found in {
        "a.tsv": ["a.tsv"],
        "": ["a.tsv", "b.tsv", "sub/c.tsv"],
        "*.tsv": ["a.tsv", "b.tsv"],
        "**/*.tsv": ["a.tsv", "b.tsv", "sub/c.tsv"],
        "**": ["a.tsv", "b.tsv", "sub/c.tsv"],
        "?.ts[v-z]": ["a.tsv", "b.tsv"],
        "[!a].tsv": ["b.tsv"],
        "none": [],
        "none/*": [],
        "a.tsv/*": [],
    }.items():
        assert _found(tmp_path, path) == found, path


def test_find_refuses_folders_that_hold_data(tmp_path):
    _write(tmp_path, "a.tsv", "sub/c.tsv", "sub-2/_c.tsv")
    for path in ("s*", "*"):
        with pytest.raises(PreflightError, match=r"/sub .*`/\*`"):
            find(f"{tmp_path}/{path}")


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_find_leaves_out_names_that_are_no_data(tmp_path, kind):
    root = str(tmp_path) if kind == "local" else f"memory://{tmp_path.name}"
    for name in (
        "a.jsonl",
        "_SUCCESS",
        "_temporary/0/part.jsonl",
        ".git/x.jsonl",
        ".a.jsonl.crc",
        "sub_$folder$",
    ):
        storage.publish(f"{root}/docs/{name}", b"")
    storage.publish(f"{root}/docs/sub/_b.jsonl", b"")
    whole = [f"{root.replace('memory://', 'memory:///')}/docs/a.jsonl"]
    for path in ("docs", "docs/*", "docs/**", "docs/**/*.jsonl", "*/*.jsonl"):
        assert find(f"{root}/{path}") == whole
    assert len(find(f"{root}/docs/_temporary/**/*.jsonl")) == 1
    assert len(find(f"{root}/docs/sub/_*.jsonl")) == 1
    assert len(find(f"{root}/docs/.git")) == 1


def test_find_follows_links_to_folders_once(tmp_path):
    _write(
        tmp_path,
        "docs/2025.jsonl",
        "docs/deep/er/x.jsonl",
        "archive/2024.jsonl",
        "archive/below/2023.jsonl",
    )
    (tmp_path / "docs" / "2024").symlink_to("../archive")
    (tmp_path / "docs" / "again").symlink_to("../archive")
    (tmp_path / "docs" / "a-link").symlink_to("deep")
    (tmp_path / "archive" / "loop").symlink_to("../docs")
    (tmp_path / "docs" / "itself").symlink_to(".")
    whole = [
        "docs/2024/2024.jsonl",
        "docs/2024/below/2023.jsonl",
        "docs/2025.jsonl",
        "docs/deep/er/x.jsonl",
    ]
    assert _found(tmp_path, "docs") == _found(tmp_path, "docs/**/*.jsonl") == whole
    assert _found(tmp_path, "docs/20*/*.jsonl") == ["docs/2024/2024.jsonl"]
    assert _found(tmp_path, "docs/a-*/er/*") == ["docs/a-link/er/x.jsonl"]


@pytest.mark.parametrize("path", ["docs", "docs/**/*.jsonl", "docs/*/a.jsonl"])
def test_find_refuses_a_link_that_leads_nowhere(tmp_path, path):
    _write(tmp_path, "docs/a.jsonl")
    (tmp_path / "docs" / "2024").symlink_to("../gone")
    assert _found(tmp_path, "docs/*.jsonl") == ["docs/a.jsonl"]
    with pytest.raises(PreflightError, match="docs/2024 "):
        find(str(tmp_path / path))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_find_refuses_a_folder_that_may_not_be_listed(tmp_path):
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o777 == 0o700:
            folder.chmod(0o755)
    _write(tmp_path, "docs/open.jsonl", "docs/private/more.jsonl")
    (tmp_path / "docs" / "private").chmod(0o700)
    paths = [
        str(tmp_path / path)
        for path in ("docs", "docs/**/*.jsonl", "docs/*/more.jsonl", "docs/*.jsonl")
    ]
    done = subprocess.run(
        [sys.executable, "-c", _AS_NOBODY, *paths], capture_output=True, text=True, check=True
    )
    *refused, given = done.stdout.splitlines()
    assert len(refused) == 3
    assert all(
        f"cannot list {tmp_path}/docs/private: Permission denied" in each for each in refused
    )
    assert given == str([f"{tmp_path}/docs/open.jsonl"])


@pytest.mark.parametrize("name", ["exp[1]", "exp*", "exp?", "[a-z]x"])
def test_folder_of_a_relative_glob_is_literal(tmp_path, monkeypatch, name):
    _write(
        tmp_path,
        f"{name}/docs/mine.jsonl",
        "exp1/docs/other.jsonl",
        "exp1/docs/a1.jsonl",
        "bx/docs/other.jsonl",
    )
    folder = tmp_path / name
    mine = [f"{folder}/docs/mine.jsonl"]
    for path in (
        "docs/*.jsonl",
        "./docs/mine.jsonl",
        "docs",
        "docs/**",
        "d?cs/m*",
        f"../{name}/docs",
    ):
        assert find(absolute_glob(path, str(folder))) == mine, path
    assert find(absolute_glob("docs/other.jsonl", str(folder))) == []
    _write(folder, "docs/a[1].jsonl")
    assert find(absolute_glob("docs/a[1].jsonl", str(folder))) == [f"{folder}/docs/a[1].jsonl"]
    monkeypatch.chdir(folder)
    assert find("docs/mine*") == find("docs/mine.jsonl") == mine
    monkeypatch.setenv("HOME", str(folder))
    assert find("~/docs/mine*") == mine


def test_folder_without_a_pattern_stays_as_it_is(tmp_path):
    assert absolute_glob("a/*.tsv", str(tmp_path)) == f"{tmp_path}/a/*.tsv"
    assert absolute_glob("gs://bucket/*.tsv", "/exp[1]") == "gs://bucket/*.tsv"


@pytest.mark.parametrize(
    "log",
    [
        "_delta_log/00000000000000000000.json",
        ".hoodie/hoodie.properties",
        "metadata/v1.metadata.json",
    ],
)
def test_find_refuses_the_files_of_a_table(tmp_path, log):
    for name in ("table/data/lang=en/part-0.parquet", "plain/part-0.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": ["d"]}), tmp_path / name)
    _write(tmp_path, f"table/{log}")
    for path in (
        "table",
        "",
        "**/*.parquet",
        "table/data",
        "table/data/lang=en",
        "table/data/lang=en/*.parquet",
    ):
        with refuses(PreflightError, "table", file=f"table/{log.partition('/')[0]}"):
            find(str(tmp_path / path))
    assert _found(tmp_path, "plain") == ["plain/part-0.parquet"]
    assert _found(tmp_path, "p*/*.parquet") == ["plain/part-0.parquet"]
    assert len(find(str(tmp_path / "table/data/lang=en/part-0.parquet"))) == 1


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_tables_are_looked_for_above_the_matches_only(tmp_path, kind):
    root = str(tmp_path) if kind == "local" else f"memory:///{tmp_path.name}"
    for name in (
        "d/a.parquet",
        "d/table/b.parquet",
        "d/table/_delta_log/0.json",
        "d/metadata/x.txt",
    ):
        storage.publish(f"{root}/{name}", b"x")
    if kind == "local":
        (tmp_path / "d/other").mkdir()
        (tmp_path / "d/other/link").symlink_to("gone")
        (tmp_path / "d/other/metadata").symlink_to("gone")
    assert find(f"{root}/d/*.parquet") == [f"{root}/d/a.parquet"]
    for path in ("d/table/*.parquet", "d/t*/b.parquet", "*/table/*"):
        with refuses(PreflightError, "table", file="table/_delta_log"):
            find(f"{root}/{path}")
    storage.publish(f"{root}/d/metadata/v1.metadata.json", b"{}")
    with refuses(PreflightError, "table", file="metadata"):
        find(f"{root}/d/*.parquet")


@pytest.mark.parametrize("chain", ["filecache", "simplecache", "blockcache", "cached"])
def test_chain_that_keeps_copies_is_refused(chain):
    fsspec.filesystem("memory").pipe("/chain/a", b"1")
    with pytest.raises(PreflightError, match=f"{chain}::"):
        storage.exists(f"{chain}::memory://chain/a")
    with pytest.raises(PreflightError, match=f"{chain}::"):
        storage.read_bytes(f"zip://a::{chain}::memory://chain/a")


@pytest.mark.parametrize("output", ["memory://out", "dir::memory://out"])
def test_output_that_ends_with_the_process_is_refused(output):
    with pytest.raises(PreflightError, match=output):
        storage.check_lasting(output)
    storage.check_lasting("/memory:/out")


@pytest.mark.parametrize(
    ("output", "path", "stored", "moved"),
    [
        ("/a/out", "/a/qrels.txt", "../qrels.txt", "/b/c/qrels.txt"),
        ("/a/out", "/a/in/*.txt", "../in/*.txt", "/b/c/in/*.txt"),
        ("/a/out", "/a/x/../qrels.txt", "../qrels.txt", "/b/c/qrels.txt"),
        ("/a/x/../out", "/a/qrels.txt", "../qrels.txt", "/b/c/qrels.txt"),
        ("/a/out", "/a/out", "./", "/b/c/out"),
        ("/a/out", "/a/out/sub/index", "./sub/index", "/b/c/out/sub/index"),
        ("gs://a/exp/out", "gs://a/exp/q.txt", "../q.txt", "/b/c/q.txt"),
        ("s3://a/out", "s3://a/q.txt", "../q.txt", "/b/c/q.txt"),
        *(
            (output, path, path, path)
            for output, path in (
                ("/a/out", "/q.txt"),
                ("/a/out", "/aa/q.txt"),
                ("/a/x/out", "/a/q.txt"),
                ("/a/x/out", "/a/x/../q.txt"),
                ("/out", "/q.txt"),
                ("s3://a/out", "s3://ab/q.txt"),
                ("s3://a", "s3://b/q.txt"),
                ("/a/out", "gs://a/q.txt"),
                ("/a/out", "embedded:mono"),
                ("/a/out", "org/model@main"),
            )
        ),
    ],
)
def test_path_below_an_output_or_its_parent_follows_it(output, path, stored, moved) -> None:
    assert relative_to(output, path) == stored
    there = "/b/c/out"
    assert resolved_in(there, stored) == moved
    here = resolved_in(output, stored)
    assert storage.absolute(here) == storage.absolute(path)


def test_path_follows_an_output_through_links(tmp_path) -> None:
    """The folder of the experiment has two names, and its output is on another disk."""
    exp, disk, other = tmp_path / "exp", tmp_path / "disk/out", tmp_path / "other"
    exp.mkdir()
    disk.mkdir(parents=True)
    other.symlink_to(exp)
    output = exp / "out"
    output.symlink_to(disk)
    (exp / "shared.txt").symlink_to("/dev/null")
    for path in (exp / "shared.txt", other / "shared.txt"):
        assert relative_to(str(output), str(path)) == "../shared.txt"
    beside = str(tmp_path / "disk/qrels.txt")
    assert relative_to(str(output), beside) == beside
    assert relative_to(str(output), f"{disk}/index") == "./index"


@pytest.mark.parametrize("name", ["exp[1]", "exp*"])
def test_glob_follows_an_output_whose_folder_looks_like_one(tmp_path, name) -> None:
    before, after = tmp_path / name, tmp_path / f"{name}-2"
    after.mkdir()
    path = absolute_glob("in/*.txt", str(before))
    assert relative_to(f"{before}/out", path) == "../in/*.txt"
    _write(after, "in/a.txt")
    assert _found(after, resolved_in(f"{after}/out", "../in/*.txt")) == ["in/a.txt"]
