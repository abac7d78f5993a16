"""Runs as Parquet tables and in parts: what is in them, what a folder holds, and who reads them."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from beamrank.commit.check import Verification
from beamrank.commit.plan import Plan
from beamrank.commit.shards import cut_shards
from beamrank.config.load import stored_config
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, PreflightError, ReceiptError
from beamrank.formats.run_writer import RUN_TABLE
from beamrank.storage import files as storage
from beamrank.storage.digested import file_states
from beamrank.storage.local_files import temporary_name
from models.stages.core import open_stages
from pipelines.console.progress import ConsoleProgress
from pipelines.launcher import Launcher
from pipelines.runs.run_file import SUCCESS, PartFolder, ShardWriter
from pipelines.runs.run_files import write_runs
from pipelines.runs.verify_runs import verify_runs
from tests.support.outputs import files_below
from tests.support.processes import succeed
from tests.support.runs import table_bytes
from tests.support.scored_outputs import ScoredOutput
from tests.support.services.clusters import spark_sql

NAMES = ("candidates", "mono", "duo-sum")
SHARDS = 3
PARTS = [f"part-{shard:05d}.parquet" for shard in range(SHARDS)]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> ScoredOutput:
    scored = ScoredOutput(tmp_path_factory.mktemp("tables")).run()
    _write(scored.plan, "trec", "parquet")
    return scored


@pytest.fixture
def plan(original: ScoredOutput, tmp_path: Path) -> Plan:
    """A copy of the output to change; its inputs are those of the original."""
    output = shutil.copytree(original.plan.output, str(tmp_path / "out"))
    copy = replace(original.plan, output=output)
    copy.make_current()
    return copy


@pytest.fixture
def runs(plan: Plan) -> Path:
    return Path(plan.output) / "runs"


def _config(plan: Plan, formats: tuple[str, ...], run_files: str | None) -> RunConfig:
    return stored_config(plan.config, "").model_copy(
        update={"run_formats": formats, "run_files": run_files}
    )


def _write(plan: Plan, *formats: str, run_files: str | None = None) -> None:
    """Writes the runs again, as `--stage runs` does after a change of the configuration."""
    write_runs(plan, _config(plan, formats, run_files))


def _verified(plan: Plan, *formats: str, run_files: str | None = None) -> Verification:
    found = Verification()
    verify_runs(plan, open_stages(plan.stages), _config(plan, formats, run_files), found)
    return found


def _in_other_shards(original: ScoredOutput, output: Path, shards: int) -> Plan:
    """A sealed plan of the same topics, candidates and scores."""
    cut = cut_shards(original.plan.topics, shards)
    plan = replace(original.plan, shards=cut, output=str(output))
    plan.publish()
    for record in plan.stages:
        rows = original.stored(record.name)
        inputs = [manifest for manifest in map(plan.seal, record.inputs) if manifest is not None]
        for number, digest in enumerate(plan.shard_digests(record, inputs)):
            query_ids = [topic.query_id for topic in cut[number].topics]
            own = rows.filter(pc.is_in(rows["query_id"], pa.array(query_ids))).sort_by("query_id")
            plan.folder(record.name).commit(number, digest, own, seconds=1.0, counts={})
    return plan


def _table(folder: Path) -> pa.Table:
    return ds.dataset(folder, format="parquet").to_table()


@pytest.mark.parametrize("name", NAMES)
def test_table_holds_the_rows_of_the_text_run(runs, name):
    text = [line.split() for line in (runs / f"{name}.trec").read_text().splitlines()]
    table = _table(runs / f"{name}.parquet").sort_by(
        [("query_id", "ascending"), ("rank", "ascending")]
    )
    assert table["query_id"].to_pylist() == [row[0] for row in text]
    assert table["doc_id"].to_pylist() == [row[2] for row in text]
    assert table["rank"].to_pylist() == [int(row[3]) for row in text]
    assert (
        table["score"].to_numpy().tolist()
        == np.array([row[4] for row in text], np.float32).tolist()
    )


def test_parts_have_the_schema_of_the_format_with_its_version(runs):
    for path in runs.glob("*.parquet/part-*"):
        schema = pq.read_schema(path)
        assert schema.equals(RUN_TABLE)
        assert schema.metadata[b"beamrank.schema"] == b"run/1"
        assert pq.ParquetFile(path).metadata.metadata[b"beamrank.schema"] == b"run/1"


def test_folder_holds_exactly_the_parts_of_the_plan(original, plan, runs):
    for name in NAMES:
        assert sorted(os.listdir(runs / f"{name}.parquet")) == [SUCCESS, *PARTS]
    (runs / "mono.parquet/part-00009.parquet").write_bytes(b"of another plan")
    lost = temporary_name("part-00001.parquet")
    (runs / "mono.parquet" / lost).write_bytes(b"of a lost attempt")
    _write(_in_other_shards(original, runs.parent, 2), "parquet")
    assert sorted(os.listdir(runs / "mono.parquet")) == [SUCCESS, *PARTS[:2]]
    plan.make_current()
    _write(plan, "parquet")
    assert sorted(os.listdir(runs / "mono.parquet")) == [SUCCESS, *PARTS]


def test_workers_write_the_same_parts(plan, runs):
    expected = table_bytes(runs.parent)
    assert len(expected) == len(NAMES) * (SHARDS + 1)
    config = _config(plan, ("parquet",), None)
    write_runs(
        plan, config, write_parts=Launcher(plan, config, ConsoleProgress(quiet=True)).write_parts
    )
    assert table_bytes(runs.parent) == expected


def test_parts_that_another_process_of_the_plan_removed_are_written_again(plan, runs, monkeypatch):
    expected = table_bytes(runs.parent)

    def remove(shards: ShardWriter, _: object) -> None:
        for folder in shards.folders:
            folder.begin()

    write_runs(plan, _config(plan, ("parquet",), None), write_parts=remove)
    assert table_bytes(runs.parent) == expected
    write = PartFolder.write

    def remove_and_write(folder: PartFolder, shard: int, content: bytes) -> None:
        """After two of three shards, once."""
        if shard == SHARDS - 1 and not (runs / "removed").exists():
            (runs / "removed").touch()
            folder.begin()
        write(folder, shard, content)

    monkeypatch.setattr(PartFolder, "write", remove_and_write)
    _write(plan, "parquet")
    assert table_bytes(runs.parent) == expected


def test_mark_is_gone_while_the_folder_is_not_whole(plan, runs):
    part = sorted((runs.parent / "mono").glob("part-*"))[2]
    content = part.read_bytes()
    part.write_bytes(content[:-1] + b"x")
    with pytest.raises(ReceiptError):
        _write(plan, "parquet")
    part.write_bytes(content)
    assert not list(runs.glob(f"*.parquet/{SUCCESS}"))
    assert list(runs.glob("mono.parquet/part-*"))
    _write(plan, "parquet")
    assert len(list(runs.glob(f"*.parquet/{SUCCESS}"))) == len(NAMES)


@pytest.mark.parametrize("run_format", ["trec", "parquet", "msmarco"])
def test_file_and_folder_of_one_name_replace_each_other(plan, runs, run_format):
    ending = {"msmarco": "msmarco.tsv"}.get(run_format, run_format)
    path = runs / f"mono.{ending}"
    for run_files in ("one", "parts", "one", "parts"):
        _write(plan, run_format, run_files=run_files)
        assert path.is_dir() == (run_files == "parts")
        assert (path.with_name(f"{path.name}.metadata.yaml")).is_file()
        assert _verified(plan, run_format, run_files=run_files).findings == []


@pytest.mark.parametrize("run_files", [None, "one", "parts"])
def test_aggregate_writes_what_the_run_writes(plan, runs, run_files):
    formats = ("trec", "msmarco", "parquet")
    changed = replace(plan, config={**plan.config, "run_formats": formats, "run_files": run_files})
    changed.publish()
    _write(changed, *formats, run_files=run_files)
    expected = _bytes(runs, "duo-sum")
    for path in [*runs.glob("*.metadata.yaml"), *expected]:
        path.unlink()
    (runs / "duo-min.trec").mkdir()
    written = succeed("aggregate", plan.output, "--aggregation", "sum,min").stdout.splitlines()
    endings = ("trec", "msmarco.tsv", "parquet")
    assert written == [
        f"{runs}/duo-{name}.{ending}" for name in ("sum", "min") for ending in endings
    ]
    assert _bytes(runs, "duo-sum") == expected
    assert {str(path).replace("-sum.", "-min.") for path in expected} == set(
        map(str, _bytes(runs, "duo-min"))
    )
    _write(changed, *formats, run_files=run_files)
    found = _verified(changed, *formats, run_files=run_files)
    assert (found.findings, found.notes) == ([], [])
    path = [path for path in _bytes(runs, "duo-min") if ".parquet" in str(path)][-1]
    path.write_bytes(b"PAR1")
    (finding,) = _verified(changed, *formats, run_files=run_files).findings
    assert finding.file == str(path.relative_to(plan.output))
    assert "`beamrank aggregate` writes it again" in finding.remedy


def _bytes(runs: Path, name: str) -> dict[Path, bytes]:
    """The files of a run in all formats, without metadata."""
    found = [path for path in sorted(runs.rglob("*")) if path.is_file() and path.suffix != ".yaml"]
    return {
        path: path.read_bytes()
        for path in found
        if str(path.relative_to(runs)).startswith(f"{name}.")
    }


def test_one_file_of_a_run_has_the_same_bytes_for_any_shards(original, tmp_path):
    for shards in (1, 3):
        plan = _in_other_shards(original, tmp_path / str(shards), shards)
        _write(plan, "trec", "parquet", run_files="one")
    for name in ("mono.trec", "mono.parquet", "duo-sum.parquet"):
        assert (tmp_path / "1/runs" / name).read_bytes() == (
            tmp_path / "3/runs" / name
        ).read_bytes()
    query_ids = pq.read_table(tmp_path / "1/runs/mono.parquet")["query_id"].to_pylist()
    assert query_ids == sorted(query_ids)


def _rows(folder: Path, reader: str) -> tuple[Sequence[str], int]:
    if reader == "duckdb":
        found = duckdb.sql(f"SELECT * FROM '{folder}/*.parquet'")
        return found.columns, len(found.fetchall())
    if reader == "polars":
        frame = polars.read_parquet(folder / "*.parquet")
        return frame.columns, frame.height
    if reader == "spark":
        rows = f"SELECT * FROM parquet.`{folder}`"
        *columns, (count,) = spark_sql(
            folder.parent, f"DESCRIBE {rows}; SELECT count(*) FROM ({rows})"
        )
        return [name.strip() for name, *_ in columns], int(count)
    table = _table(folder)
    return table.schema.names, table.num_rows


_SPARK = pytest.param("spark", marks=[pytest.mark.slow, pytest.mark.jvm])


@pytest.mark.parametrize("reader", ["pyarrow", "duckdb", "polars", _SPARK])
def test_other_programs_read_the_folder_as_one_table(runs, reader):
    assert _rows(runs / "mono.parquet", reader) == (RUN_TABLE.names, 4 * 12 + 0 + 1 + 4)


@pytest.mark.parametrize(
    ("name", "damage", "problem"),
    [
        (
            "part-00001.parquet",
            lambda path: path.write_bytes(path.read_bytes()[:-1] + b"x"),
            "is not the part that",
        ),
        ("part-00002.parquet", Path.unlink, "is missing"),
        (SUCCESS, Path.unlink, "is missing"),
        ("part-00004.parquet", lambda path: path.write_bytes(b"PAR1"), "is none of its parts"),
    ],
)
def test_verify_finds_a_file_of_a_folder_that_is_wrong(plan, runs, name, damage, problem):
    whole = _verified(plan, "trec", "parquet")
    assert (whole.findings, whole.notes) == ([], [])
    assert whole.files == len([path for path in runs.rglob("*") if path.is_file()])
    damage(runs / "mono.parquet" / name)
    (finding,) = _verified(plan, "trec", "parquet").findings
    assert finding.file == f"runs/mono.parquet/{name}"
    assert finding.problem.startswith(problem)
    assert "--stage runs" in finding.remedy
    _write(plan, "trec", "parquet")
    assert _verified(plan, "trec", "parquet").findings == []


def test_verify_finds_a_missing_folder_and_a_file_in_its_place(plan, runs):
    for path in [*(runs / "mono.parquet").iterdir()]:
        path.unlink()
    (runs / "mono.parquet").rmdir()
    (runs / "mono.parquet").write_bytes(b"PAR1")
    found = _verified(plan, "trec", "parquet")
    assert [(finding.file, finding.problem) for finding in found.findings] == [
        ("runs/mono.parquet", "is missing")
    ]
    assert any("runs/mono.parquet" in note for note in found.notes)


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    url = str(tmp_path) if request.param == "local" else f"memory://{tmp_path}"
    return PartFolder(f"{url}/runs/mono.parquet", "parquet", 2)


def _names(folder: PartFolder) -> list[str]:
    return [each.rpartition("/runs/mono.parquet/")[2] for each in files_below(folder.url)]


def _fill(folder: PartFolder) -> None:
    for shard in range(folder.shards):
        folder.write(shard, b"%d" % shard)


def test_part_whose_folder_another_process_removes_is_written(folder, monkeypatch):
    rename = os.replace

    def remove_first(*paths: str) -> None:
        monkeypatch.setattr(os, "replace", rename)
        folder.begin()
        rename(*paths)

    monkeypatch.setattr(os, "replace", remove_first)
    folder.write(0, b"0")
    assert _names(folder) == [folder.part(0)]


def test_folder_is_marked_once_all_parts_are_there(folder):
    folder.begin()
    folder.write(1, b"1")
    assert folder.missing() == [0]
    with pytest.raises(BeamrankError, match=r"mono\.parquet .*part-00000\.parquet"):
        folder.seal()
    assert SUCCESS not in _names(folder)
    folder.write(0, b"0")
    folder.seal()
    assert (
        _names(folder)
        == sorted(folder.names)
        == [SUCCESS, "part-00000.parquet", "part-00001.parquet"]
    )


def test_what_another_plan_or_a_lost_attempt_left_is_removed(folder):
    larger = PartFolder(folder.url, "parquet", 5)
    _fill(larger)
    larger.seal()
    folder.begin()
    # Its own are replaced, not removed: another process of the plan may have written them.
    assert _names(folder) == [folder.part(0), folder.part(1)]
    older = file_states(folder.url)
    folder.write(0, b"new")
    assert (folder.missing(), folder.missing(older)) == ([], [1])
    _fill(folder)
    # Attempts of another job that ends late.
    larger.write(4, b"4")
    storage.replace(storage.join(folder.url, temporary_name("part-00001.parquet")), b"")
    folder.seal()
    assert _names(folder) == sorted(folder.names)


@pytest.mark.parametrize(
    "name", ["notes.txt", ".hidden", "part-1.parquet", "part-00000.trec", "part-00009.parquet/x"]
)
def test_folder_with_a_file_of_the_user_is_refused_and_stays(folder, name):
    _fill(folder)
    folder.seal()
    storage.replace(storage.join(folder.url, name), b"mine")
    before = _names(folder)
    for write in (folder.begin, folder.seal, folder.remove):
        with pytest.raises(PreflightError) as refusal:
            write()
        assert f"{folder.url}/{name.partition('/')[0]}" in str(refusal.value)
        assert _names(folder) == before


@pytest.mark.parametrize("name", [".nfs0000000000a1b2c300000004", ".fuse_hidden0000002f00000001"])
def test_folder_with_a_removed_file_that_is_still_open_is_written(folder, name):
    """As NFS and FUSE name the part of an earlier run that another process reads."""
    storage.replace(storage.join(folder.url, name), b"removed")
    folder.begin()
    _fill(folder)
    folder.seal()
    assert set(_names(folder)) - {name} == set(folder.names)


@pytest.mark.parametrize("target", ["folder", "file", "gone"])
def test_link_under_the_name_or_in_the_folder_is_replaced_and_its_target_stays(tmp_path, target):
    """Neither is emptied, and none of its files is removed."""
    canaries = PartFolder(str(tmp_path / "folder"), "parquet", 3)
    _fill(canaries)
    canaries.seal()
    (tmp_path / "file").write_bytes(b"mine")
    folder = PartFolder(str(tmp_path / "mono.parquet"), "parquet", 2)
    (tmp_path / "mono.parquet").symlink_to(target)
    folder.begin()
    _fill(folder)
    for name in ("part-00000.parquet", "part-00007.parquet", SUCCESS):
        (tmp_path / "mono.parquet" / name).unlink(missing_ok=True)
        (tmp_path / "mono.parquet" / name).symlink_to(tmp_path / target)
    folder.write(0, b"0")
    folder.seal()
    assert sorted(os.listdir(folder.url)) == sorted(folder.names)
    assert not any(path.is_symlink() for path in (tmp_path / "mono.parquet").iterdir())
    assert [(tmp_path / "mono.parquet" / folder.part(at)).read_bytes() for at in (0, 1)] == [
        b"0",
        b"1",
    ]
    assert sorted(os.listdir(canaries.url)) == sorted(canaries.names)
    assert (tmp_path / "file").read_bytes() == b"mine"
