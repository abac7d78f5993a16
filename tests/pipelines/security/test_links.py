"""Links inside an output: no command lists, replaces or removes what is behind one."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.runs.run_files import write_runs
from tests.support.outputs import commit, make_plan
from tests.support.processes import refused, succeed
from tests.support.scored_outputs import ScoredOutput
from tests.support.small_collection import small_cascade
from tests.support.tiers import slow_but

# A temporary file of a process that was killed years ago.
_KILLED = ".part-00000-aaaaaaaaaaaa.parquet.01234567-0123456789ab.tmp"
_TARGETS = ("folder", "file", "gone")


class Elsewhere:
    """What links lead to: a folder and a file of the user, and nothing.

    The folder holds files of the names that beamrank writes, another unfinished output, and what a
    killed process left.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        plan = make_plan(str(folder / "folder"))
        plan.publish()
        commit(plan, "retrieve", [0, 1])
        shutil.copytree(folder / "folder/retrieve", folder / "folder", dirs_exist_ok=True)
        names = (
            *("mono.trec", "duo-min.trec", "measures.json", "report.html", "curves.csv"),
            *("_SUCCESS", "_negatives.json", "part-00000.parquet", "notes.txt", "below/notes.txt"),
            *(_KILLED, f"receipts/{_KILLED}", f"mono.parquet/{_KILLED}", "old.tmp"),
        )
        for name in names:
            path = folder / "folder" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"mine: {name}")
        (folder / "file").write_text("mine")
        for path in folder.rglob("*"):
            os.utime(path, (0, 0))
        self._before = self._state()

    def _state(self) -> dict[str, tuple[bytes, float]]:
        return {
            str(path.relative_to(self.folder)): (path.read_bytes(), path.stat().st_mtime)
            for path in self.folder.rglob("*")
            if path.is_file()
        }

    def link(self, path: Path, target: str) -> None:
        """Puts a link in the place of a file or folder."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(self.folder / target)

    def move(self, path: Path) -> None:
        """Moves a folder into the target folder, as to a larger disk, and leaves a link."""
        shutil.copytree(path, self.folder / "folder", dirs_exist_ok=True, symlinks=True)
        self._before = self._state()
        self.link(path, "folder")

    def check(self, *, grown: bool = False) -> None:
        """All is as it was, but for new files where it may have `grown`."""
        state = self._state()
        assert {name: state.get(name) for name in self._before} == self._before
        assert grown or state.keys() == self._before.keys()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    return Elsewhere(tmp_path / "elsewhere")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> ScoredOutput:
    scored = ScoredOutput(tmp_path_factory.mktemp("made"), run_formats=["trec", "parquet"]).run()
    scored.write_corpus()
    write_runs(scored.plan, scored.runs().config)
    return scored


@pytest.fixture
def output(finished: ScoredOutput, tmp_path: Path) -> Path:
    """A copy to change."""
    for file in filter(Path.is_file, Path(finished.plan.output).parent.iterdir()):
        shutil.copy(file, tmp_path)
    return Path(shutil.copytree(finished.plan.output, tmp_path / "out", symlinks=True))


def _tree(folder: Path) -> dict[str, bytes]:
    """The content of all files that no link leads to."""
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def _runs(output: Path) -> dict[str, bytes]:
    return {
        name: content
        for name, content in _tree(output / "runs").items()
        if not name.endswith(".yaml")
    }


def _run(folder: Path) -> list[str | Path]:
    """The command of a run in texts and tables, without an engine."""
    collection = small_cascade(folder)
    collection.keys["run_formats"] = ["trec", "parquet"]
    return ["run", collection.path, "--only", "0/1"]


@pytest.mark.parametrize("target", slow_but(("folder",), _TARGETS))
def test_run_replaces_links_in_runs(tmp_path, elsewhere, target):
    command = _run(tmp_path)
    output = tmp_path / "out"
    succeed(*command)
    expected = _runs(output)
    for name in ("mono.trec", "mono.parquet", "duo-sum.parquet", "bm25.trec.metadata.yaml"):
        elsewhere.link(output / "runs" / name, target)
    elsewhere.link(output / "runs/candidates.parquet/part-00001.parquet", target)
    succeed(*command)
    assert _runs(output) == expected
    elsewhere.check()
    elsewhere.link(output / "runs", target)
    succeed(*command)
    assert _runs(output) == expected
    succeed("verify", output)
    elsewhere.check()


def test_run_goes_on_in_folders_that_were_moved(tmp_path, elsewhere):
    """Parts and receipts are read and written there, and nothing is removed or replaced."""
    command = _run(tmp_path)
    output = tmp_path / "out"
    succeed(*command)
    expected = _runs(output)
    for receipt in [*output.glob("mono/receipts/*"), *output.glob("mono/manifest-*")]:
        receipt.unlink()
    # Runs that one process starts in the same second have one log.
    for log in output.glob("logs/*"):
        log.rename(log.with_name("earlier.log"))
    for name in ("machines", "mono", "logs"):
        elsewhere.move(output / name)
    succeed(*command)
    assert _runs(output) == expected
    elsewhere.check(grown=True)
    assert len(list((elsewhere.folder / "folder").glob("manifest-*"))) > 0
    assert all((output / name).is_symlink() for name in ("machines", "mono", "logs"))


@pytest.mark.parametrize("name", ["mono", "mono/receipts", "rejects", "machines"])
def test_run_refuses_a_link_that_leads_to_no_folder(tmp_path, elsewhere, name):
    command = _run(tmp_path)
    elsewhere.link(tmp_path / "out" / name, "gone")
    assert f"{tmp_path}/out/{name} is a link" in refused(*command, code=3)
    assert not list((tmp_path / "out").glob("retrieve*"))
    elsewhere.check()


@pytest.mark.parametrize("name", ["mono.parquet", "mono.trec"])
def test_run_refuses_a_folder_with_a_file_of_the_user_before_it_starts(tmp_path, name):
    command = _run(tmp_path)
    notes = tmp_path / "out/runs" / name / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    assert str(notes) in refused(*command, code=3)
    assert not list((tmp_path / "out").glob("*/receipts"))
    assert notes.read_text() == "mine"


@pytest.mark.parametrize("target", _TARGETS)
def test_aggregate_replaces_links(finished, output, elsewhere, target):
    for name in ("duo-min.trec", "duo-min.parquet", "duo-min.trec.metadata.yaml"):
        elsewhere.link(output / "runs" / name, target)
    succeed("aggregate", output, "--aggregation", "min")
    written = {name: each for name, each in _runs(output).items() if name.startswith("duo-min")}
    assert len(written) == 1 + 1 + len(finished.shards)
    elsewhere.check()
    elsewhere.link(output / "runs", target)
    succeed("aggregate", output, "--aggregation", "min")
    assert _runs(output) == written
    elsewhere.check()


@pytest.mark.parametrize("target", slow_but(("folder",), _TARGETS))
def test_score_replaces_links(tmp_path, checkpoints, elsewhere, target):
    pairs = pa.table({"id": ["1", "2"], "query": ["a", "b"], "doc": ["c", "d"]})
    pq.write_table(pairs, tmp_path / "pairs.parquet")
    command = ["score", tmp_path / "pairs.parquet", "--checkpoint", checkpoints.mono]
    command += ["--shard-rows", "1", "--output", tmp_path / "out"]
    succeed(*command)
    expected = _runs(tmp_path / "out")
    for name in ("runs/scores.parquet", "runs"):
        elsewhere.link(tmp_path / "out" / name, target)
        succeed(*command)
        assert _runs(tmp_path / "out") == expected
        elsewhere.check()


def test_score_refuses_a_folder_with_a_file_of_the_user_before_it_starts(tmp_path, checkpoints):
    pairs = pa.table({"id": ["1"], "query": ["a"], "doc": ["c"]})
    pq.write_table(pairs, tmp_path / "pairs.parquet")
    notes = tmp_path / "out/runs/scores.parquet/notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    command = ["score", tmp_path / "pairs.parquet", "--checkpoint", checkpoints.mono]
    assert str(notes) in refused(*command, "--output", tmp_path / "out", code=3)
    assert not (tmp_path / "out/scores").exists()
    assert notes.read_text() == "mine"


@pytest.mark.parametrize("target", ["earlier", "empty", "gone"])
def test_negatives_replace_a_link(output, tmp_path, elsewhere, target):
    """To a folder of earlier negatives with a file of the user, to an empty one, to nothing."""
    earlier = elsewhere.folder / "earlier"
    (elsewhere.folder / "empty").mkdir()
    succeed("negatives", output, "--output", earlier, "--num-negatives", "1")
    (earlier / "notes.txt").write_text("mine")
    before, expected = _tree(elsewhere.folder), tmp_path / "expected"
    for rules in (["--num-negatives", "1"], ["--num-negatives", "2"]):
        shutil.rmtree(expected, ignore_errors=True)
        succeed("negatives", output, "--output", expected, *rules)
        elsewhere.link(tmp_path / "link", target)
        succeed("negatives", output, "--output", tmp_path / "link", *rules)
        assert not (tmp_path / "link").is_symlink()
        assert _tree(tmp_path / "link") == _tree(expected)
        assert _tree(elsewhere.folder) == before


@pytest.mark.parametrize("target", ["file", "gone"])
def test_negatives_replace_a_link_to_a_file(output, tmp_path, elsewhere, target):
    elsewhere.link(tmp_path / "rows.parquet", target)
    succeed("negatives", output, "--output", tmp_path / "rows.parquet")
    assert pq.read_table(tmp_path / "rows.parquet").num_rows
    elsewhere.check()


def test_negatives_refuse_a_file_of_the_user(output, tmp_path):
    """Where other rules would have the folder made again, and where it is sealed."""
    folder = tmp_path / "parts"
    succeed("negatives", output, "--output", folder)
    (folder / "notes.txt").write_text("mine")
    before = _tree(folder)
    for rules in ([], ["--num-negatives", "1"]):
        assert "notes.txt" in refused("negatives", output, "--output", folder, *rules, code=3)
        assert _tree(folder) == before


@pytest.mark.parametrize("name", ["mono", "mono/receipts", "rejects", "machines", "runs"])
@pytest.mark.parametrize("target", ["folder", "gone"])
def test_gc_leaves_links_and_what_is_behind_them(output, elsewhere, name, target):
    if target == "folder" and (output / name).exists():
        elsewhere.move(output / name)
    else:
        elsewhere.link(output / name, target)
    for file in ("retrieve/part-00000-bbbbbbbbbbbb.parquet", f"retrieve/{_KILLED}"):
        elsewhere.link(output / file, target)
    litter = output / "retrieve/part-00000-aaaaaaaaaaaa.parquet"
    litter.write_bytes(b"PAR1")
    done = succeed("gc", output, "--yes", "--min-age-hours", "0")
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [str(litter)]
    assert (output / name).is_symlink()
    assert (output / "retrieve" / _KILLED).is_symlink()
    elsewhere.check()


def test_gc_keeps_temporary_files_of_the_user(output):
    paths = [
        output / folder / name
        for folder in ("runs", "runs/mono.parquet", "mono", "machines", "rejects", "")
        for name in ("mine.tmp", ".mine.0.tmp")
    ]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    killed = output / "runs" / ".mono.trec.01234567-0123456789ab.tmp"
    killed.touch()
    done = succeed("gc", output, "--yes", "--min-age-hours", "0")
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [str(killed)]
    assert {path.read_text() for path in paths} == {"mine"}


@pytest.mark.slow
def test_report_replaces_links(output, elsewhere):
    command = ["report", output, "--no-texts", "--queries", "0"]
    command += ["--k0", "4", "--k1", "3", "--opponents", "1", "--trials", "1"]
    elsewhere.link(output / "report", "folder")
    succeed(*command)
    names = set(_tree(output / "report"))
    assert {"report.html", "curves.csv", "tables.md"} <= names
    elsewhere.check()
    for name, target in zip(("report.html", "curves.csv", "tables.md"), _TARGETS, strict=True):
        elsewhere.link(output / "report" / name, target)
    succeed(*command)
    assert set(_tree(output / "report")) == names
    elsewhere.check()


@pytest.mark.parametrize("target", _TARGETS)
def test_card_writes_to_no_target_of_a_link(output, elsewhere, target):
    """What is there already is not changed."""
    elsewhere.link(output / "README.md", target)
    if target == "gone":
        assert succeed("card", output).stdout == f"{output}/README.md\n"
        assert not (output / "README.md").is_symlink()
    else:
        refused("card", output, code=3)
    elsewhere.check()
