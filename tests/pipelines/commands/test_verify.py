"""`beamrank verify` and `beamrank gc` on the output of a real run."""

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from beamrank.commit.check import Verification
from beamrank.commit.owner import launched, made_current
from beamrank.commit.plan import read_plan
from beamrank.commit.receipts import StageFolder
from beamrank.config.cascade import ConfiguredStage
from beamrank.config.stages import Bm25Config, IndexConfig
from beamrank.errors import PreflightError, TemporaryError
from beamrank.formats.corpora import digest_corpus
from beamrank.storage import files as storage
from beamrank.storage.digested import file_version
from beamrank.storage.documents import checked_json, checked_values, digest
from models.lucene.index import INFO_NAME, IndexInfo, describe_files, files_digest
from models.stages.core import open_stages
from pipelines.console.progress import ConsoleProgress
from pipelines.plan.make_plan import make_plan
from pipelines.runs.run_files import write_runs
from pipelines.runs.verify_runs import verify_runs
from tests.support.processes import beamrank_here, succeed
from tests.support.refusals import refuses
from tests.support.runs import PlannedRun, plan_run
from tests.support.services.faulty_store import snapshot
from tests.support.small_collection import small_cascade


@pytest.fixture(scope="module")
def cascade(tmp_path_factory: pytest.TempPathFactory) -> PlannedRun:
    return plan_run(small_cascade(tmp_path_factory.mktemp("small")).path)


@pytest.fixture(scope="module")
def finished(cascade: PlannedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("finished") / "out"
    cascade.at(str(output)).run()
    succeed("aggregate", output, "--aggregation", "min")
    return output


@pytest.fixture
def output(finished: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(finished, tmp_path / "out"))


def _flip(path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    content = bytearray(path.read_bytes())
    content[drawn.randrange(len(content))] ^= 1 << drawn.randrange(8)
    path.write_bytes(content)


def test_verify_accepts_a_finished_run(output):
    result = succeed("verify", output)
    assert result.stdout == ""
    files = sum(1 for path in output.rglob("*") if path.is_file())
    assert f"files read: {files} (" in result.stderr
    assert "all files verified" in result.stderr
    as_json = json.loads(beamrank_here("verify", output, "--json").stdout)
    assert (as_json["files"], as_json["findings"], as_json["notes"], as_json["stray"]) == (
        files,
        [],
        [],
        0,
    )


def test_verify_prints_one_line_for_a_corrupt_part(finished, tmp_path):
    names = [
        str(path.relative_to(finished)) for path in sorted(finished.rglob("*")) if path.is_file()
    ]
    kinds = {name.split("/")[0] + Path(name).suffix: name for name in names}
    assert len(kinds) >= 10
    for seed, name in enumerate(kinds.values()):
        output = Path(shutil.copytree(finished, tmp_path / str(seed)))
        _flip(output / name, seed)
        result = beamrank_here("verify", output)
        assert result.returncode == 1
        lines = [line for line in result.stdout.splitlines() if line.startswith(f"{name}: ")]
        assert len(lines) == 1, (name, result.stdout)
        assert any(remedy in lines[0] for remedy in ("run again", "writes it again", "delete it"))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("runs/mono.trec", "is missing: `beamrank run CONFIG --stage runs` writes it again"),
        (
            "runs/mono.trec.metadata.yaml",
            "is missing: `beamrank run CONFIG --stage runs` writes it again",
        ),
        ("runs/duo-min.trec.metadata.yaml", "is missing: `beamrank aggregate` writes it again"),
        ("runs/duo-min.trec", None),
        (
            "runs/measures.json",
            "is missing: `beamrank run CONFIG --stage runs` writes it again",
        ),
    ],
)
def test_verify_finds_a_missing_run(output, name, problem):
    (output / name).unlink()
    result = beamrank_here("verify", output)
    assert result.stdout == (f"{name}: {problem}\n" if problem else "")
    assert result.returncode == (1 if problem else 0)


def test_verify_finds_the_metadata_of_another_run(output):
    own, other = (output / f"runs/{name}.trec.metadata.yaml" for name in ("mono", "candidates"))
    own.write_bytes(other.read_bytes())
    assert "runs/mono.trec.metadata.yaml: was changed" in beamrank_here("verify", output).stdout


def test_run_reads_each_part_once(cascade, output, monkeypatch):
    read: list[str] = []
    read_part = StageFolder.read_part

    def counting(self, receipt, columns=None):
        read.append(receipt.part)
        return read_part(self, receipt, columns)

    monkeypatch.setattr(StageFolder, "read_part", counting)
    here = cascade.at(str(output))
    config = here.config.model_copy(update={"run_formats": ("trec", "msmarco")})
    parts = [
        f"{stage}/{path.name}"
        for stage in ("retrieve", "mono", "duo")
        for path in output.glob(f"{stage}/part-*")
    ]
    assert len(parts) == 3 * len(here.plan.shards)
    paths, evaluations, _ = write_runs(here.plan, config, ConsoleProgress(quiet=True))
    assert len(paths) == 6
    assert list(evaluations) == ["candidates", "mono", "duo-sum"]
    # The lengths of docs, which tell how many are cut.
    tokens = [path.name for path in output.glob("tokenize*/part-*")]
    assert len(tokens) == len(here.plan.shards)
    assert sorted(read) == sorted([*tokens, *(Path(part).name for part in parts)])
    read.clear()
    found = Verification()
    verify_runs(here.plan, open_stages(here.plan.stages), config, found)
    assert (found.findings, found.notes, found.files) == ([], [], 15)
    assert sorted(read) == sorted(Path(part).name for part in parts)


def test_verify_finds_a_stale_aggregated_run(output):
    (output / "runs/duo-min.trec").write_bytes(
        (output / "runs/duo-sum.trec").read_bytes().replace(b" test", b" tiny")
    )
    shutil.copy(output / "runs/mono.trec", output / "runs/mine.trec")
    result = beamrank_here("verify", output)
    (line,) = result.stdout.splitlines()
    assert line.startswith(
        "runs/duo-min.trec: is not the run that the sealed stages of the current plan give: "
    )
    assert "`beamrank aggregate` writes it again" in line
    assert "not checked: runs/mine.trec" in result.stderr


def test_verify_accepts_an_unfinished_run(output):
    shutil.rmtree(output / "runs")
    result = succeed("verify", output)
    assert result.stdout == ""
    assert "runs are not written yet" in result.stderr
    next(output.glob("duo/manifest-*")).unlink()
    next(output.glob("duo/receipts/*")).unlink()
    result = succeed("verify", output)
    assert result.stdout == ""
    assert "not finished (duo)" in result.stderr
    assert not list(output.glob("duo/manifest-*")), "verify writes nothing"


def _damage_runs(output: Path) -> set[str]:
    names = {"runs/candidates.trec", "runs/duo-sum.trec", "runs/mono.trec"}
    for name in names:
        with (output / name).open("a") as file:
            file.write("x")
    return names


@pytest.mark.parametrize(
    ("damaged", "lost", "reason"),
    [
        ("tokenize-*/part-*", set(), None),
        ("topics-*", set(), None),
        ("machines/*", set(), None),
        ("mono/manifest-*", set(), None),
        ("mono/receipts/*", set(), None),
        (
            "duo/part-*",
            {"runs/duo-sum.trec"},
            "runs/duo-sum.trec",
        ),
        (
            "mono/part-*",
            {"runs/duo-sum.trec", "runs/mono.trec"},
            "runs/mono.trec",
        ),
    ],
)
@pytest.mark.parametrize("how", ["flip", "delete"])
def test_verify_checks_every_run_that_can_be_made(output, damaged, lost, reason, how):
    expected = _damage_runs(output) - lost
    path = min(output.glob(damaged))
    if how == "flip":
        _flip(path, 1)
    else:
        path.unlink()
    result = beamrank_here("verify", output)
    assert result.returncode == 1
    found = {line.partition(":")[0] for line in result.stdout.splitlines()}
    if damaged == "topics-*":
        assert "were not checked: the plan" in result.stderr
        assert not found & expected
        return
    assert {
        name for name in found if name.startswith("runs/") and name.endswith("trec")
    } == expected
    if reason:
        assert reason in result.stderr
        assert "not checked: runs/measures.json" in result.stderr
    assert "not finished" not in result.stderr


def test_verify_tells_that_no_run_can_be_made(output):
    """Neither the receipt nor the manifest tells which part is the shard's."""
    _flip(min(output.glob("retrieve/manifest-*")), 1)
    _flip(min(output.glob("retrieve/receipts/*")), 1)
    result = beamrank_here("verify", output)
    assert result.returncode == 1
    assert "(retrieve, " in result.stderr


def test_verify_remedy_redoes_one_shard(cascade, finished, output):
    part = sorted(output.glob("mono/part-*"))[1]
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    (line,) = beamrank_here("verify", output).stdout.splitlines()
    assert line.startswith(
        f"mono/{part.name}: does not hold the bytes that its receipt names: delete it and run again"
    )
    before = {path: path.stat().st_mtime_ns for path in output.glob("*/receipts/*")}
    part.unlink()
    cascade.at(str(output)).run()
    changed = [path for path, time in before.items() if path.stat().st_mtime_ns != time]
    assert len(changed) == 1
    assert changed[0].name.startswith("00001-")
    assert part.read_bytes() == (finished / "mono" / part.name).read_bytes()
    succeed("verify", output)


def test_verify_and_gc_work_by_url(cascade):
    url = "faulty://bucket/verified"
    cascade.at(url).run()
    succeed("verify", url)
    part = next(name for name in snapshot(url) if name.startswith("duo/part-"))
    storage.replace(f"{url}/{part}", b"PAR1")
    storage.publish(f"{url}/duo/part-00000-aaaaaaaaaaaa.parquet", b"PAR1")
    result = beamrank_here("verify", url)
    assert result.returncode == 1
    assert result.stdout.startswith(f"{part}: ")
    result = succeed("gc", url, "--yes", "--min-age-hours", "0")
    assert result.stdout.startswith(f"{url}/duo/part-00000-aaaaaaaaaaaa.parquet\t4\t")
    assert len(result.stdout.splitlines()) == 1
    assert "duo/part-00000-aaaaaaaaaaaa.parquet" not in snapshot(url)


def test_gc_lists_asks_and_removes(output):
    litter = output / "mono/part-00000-aaaaaaaaaaaa.parquet"
    litter.write_bytes(b"PAR1")
    result = succeed("gc", output)
    assert result.stdout == ""
    assert "remove: 0 (" in result.stderr
    os.utime(litter, (0, 0))
    line = f"{litter}\t4\tno receipt that is kept names this part\n"
    dry = beamrank_here("gc", output, "--dry-run")
    assert (dry.returncode, dry.stdout) == (0, line)
    assert "remove: 1 (4 bytes)" in dry.stderr
    assert beamrank_here("gc", output).returncode == 2
    assert litter.exists()
    done = beamrank_here("gc", output, "--yes")
    assert (done.returncode, done.stdout) == (0, line)
    assert "removed: 1 (4 bytes)" in done.stderr
    assert not litter.exists()
    succeed("verify", output)


def test_gc_removes_nothing_while_a_run_uses_the_output(output):
    """A run that begins while gc looks may count on an old part, or on receipts of its plan."""
    litter = output / "mono/part-00000-aaaaaaaaaaaa.parquet"
    litter.write_bytes(b"PAR1")
    os.utime(litter, (0, 0))
    plan = read_plan(str(output))
    with launched(plan.output, plan.digest, plan.config_digest):
        assert beamrank_here("gc", output, "--yes").returncode == 75
    assert litter.exists()
    succeed("gc", output, "--yes")
    assert not litter.exists()
    assert not list(output.glob("launcher-*"))


def test_run_is_refused_while_gc_removes(output):
    plan, removal = read_plan(str(output)), digest("gc")
    with (
        launched(plan.output, removal, removal),
        pytest.raises(TemporaryError),
        made_current(plan),
    ):
        pytest.fail("it may not start")


# The index that a run searches.


@pytest.fixture
def indexed(cascade: PlannedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan over files that look like an index of beamrank's; nothing of it has run."""
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "cache"))
    index = tmp_path / "index"
    index.mkdir()
    (index / "segments_1").write_bytes(bytes.fromhex("3fd76c17") + b"segments")
    (index / "_0.cfs").write_bytes(random.Random(1).randbytes(2000))
    files = describe_files(str(index))
    info = IndexInfo(
        digest=files_digest(files),
        files=files,
        docs=30,
        corpus_digest=digest_corpus(cascade.config.corpus).digest,
    )
    (index / INFO_NAME).write_bytes(info.to_json())
    _plan_indexed(cascade, tmp_path)
    return tmp_path


def _plan_indexed(cascade: PlannedRun, folder: Path) -> None:
    changes: dict[str, Any] = {"cascade": (ConfiguredStage("bm25", "bm25", Bm25Config()),)}
    changes |= {"index": IndexConfig(path=str(folder / "index")), "output": str(folder / "out")}
    config = cascade.config.model_copy(update=changes)
    make_plan(config, ConsoleProgress(quiet=True)).publish()


@pytest.mark.parametrize("name", ["segments_1", "_0.cfs", INFO_NAME])
def test_corrupt_index_is_found_by_run_and_verify(cascade, indexed, name):
    succeed("verify", indexed / "out")
    path = indexed / "index" / name
    before = path.stat()
    for seed in range(5):
        whole = path.read_bytes()
        _flip(path, seed)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        with refuses(PreflightError, "damaged", file=name):
            _plan_indexed(cascade, indexed)
        result = beamrank_here("verify", indexed / "out")
        assert result.returncode == 1
        assert result.stdout.startswith(f"{path}: ")
        assert "remove the folder" in result.stdout
        path.write_bytes(whole)
    _plan_indexed(cascade, indexed)
    succeed("verify", indexed / "out")


def test_verify_reads_the_index_despite_remembered_hashes(cascade, indexed):
    path = indexed / "index/_0.cfs"
    (memory,) = (indexed / "cache/hashed").iterdir()
    values = checked_values(memory.read_bytes())
    _flip(path, 1)
    # As if the disk had lost the bit, which no time tells.
    values["files"]["_0.cfs"][0] = file_version(str(path))
    memory.write_bytes(checked_json(values))
    _plan_indexed(cascade, indexed)
    assert beamrank_here("verify", indexed / "out").stdout.startswith(
        f"{path}: does not hold the bytes that were written: "
    )


def test_verify_compares_a_foreign_index_with_the_plan(cascade, indexed):
    (indexed / "index" / INFO_NAME).unlink()
    _plan_indexed(cascade, indexed)
    succeed("verify", indexed / "out")
    _flip(indexed / "index/_0.cfs", 1)
    result = beamrank_here("verify", indexed / "out")
    assert result.returncode == 1
    assert result.stdout.startswith(
        f"{indexed / 'index'}: is not the index that the run was made from: "
    )


def test_verify_notes_a_missing_or_replaced_index(indexed):
    index = indexed / "index"
    (index / "_0.cfs").write_bytes(b"built again from another corpus")
    files = describe_files(str(index))
    (index / INFO_NAME).write_bytes(IndexInfo(digest=files_digest(files), files=files).to_json())
    result = succeed("verify", indexed / "out")
    assert result.stdout == ""
    assert "not the one" in result.stderr
    shutil.rmtree(index)
    result = succeed("verify", indexed / "out")
    assert result.stdout == ""
    assert f"{index} no longer exists" in result.stderr
