"""The name of a stage is its folder and its run: none that beamrank uses, and none too long."""

from pathlib import Path

import pytest

from beamrank.commit.listing import FOLDERS
from beamrank.commit.owner import made_current
from beamrank.config.cascade import RESERVED
from beamrank.config.load import load_config
from beamrank.errors import ConfigError
from beamrank.formats.rejects import Rejects
from beamrank.records import BadRow
from pipelines.runs.run_files import write_runs
from tests.support.processes import refused, succeed
from tests.support.scored_outputs import ScoredOutput
from tests.support.small_collection import SmallCollection, small_cascade


def _named(folder: Path, name: str) -> SmallCollection:
    """A cascade whose last stage, a duo, has this name."""
    collection = small_cascade(folder)
    mono, duo = collection.keys.pop("mono"), collection.keys.pop("duo")
    collection.keys["cascade"] = [{"mono": mono}, {"duo": {**duo, "name": name}}]
    return collection


@pytest.mark.parametrize(
    "name", ["per_query", "per-query", "scores", "measures", "texts", "retrieve", *FOLDERS]
)
def test_name_that_beamrank_uses_is_refused_before_anything_starts(tmp_path, name):
    config = _named(tmp_path, name).path
    with pytest.raises(ConfigError, match=rf"'{name}'"):
        load_config(str(config))
    assert f"'{name}'" in refused("run", config, code=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_every_folder_that_commands_write_is_reserved(tmp_path):
    """Below an output and below its stages."""
    made = ScoredOutput(tmp_path, topics=40, depths=(20, 15, 4)).run()
    rows = made.stored("mono").to_pylist()
    judged = [f"{row['query_id']} 0 {row['doc_id']} {int(row['score'] > 0)}\n" for row in rows]
    (tmp_path / "qrels.txt").write_text("".join(judged))
    rejects = Rejects("topics", 1)
    rejects.add("file", [BadRow("file:1", "is bad")])
    rejects.publish(made.plan.output)
    with made_current(made.plan):
        write_runs(made.plan, made.runs().config)
    succeed("calibrate", made.plan.output)
    succeed("report", made.plan.output, "--no-texts", "--trials", "1", "--queries", "0")
    output, stages = Path(made.plan.output), {stage.name for stage in made.records}
    folders = {path.name for path in output.iterdir() if path.is_dir()} - stages
    below = {path.name for stage in stages for path in (output / stage).iterdir() if path.is_dir()}
    assert folders == {"calibration", "machines", "rejects", "report", "runs"}
    assert below == {"receipts"}
    assert folders | below <= RESERVED
    beside = {path.name.partition(".")[0] for path in (output / "runs").iterdir()}
    assert beside - {"candidates", "mono", "duo-sum"} == {"measures"}


def test_name_of_a_hundred_bytes_is_a_run_and_a_longer_one_is_refused(tmp_path):
    name = "n" * 98 + "é"
    succeed("run", _named(tmp_path, name).path, "--only", "0/1")
    arguments = ["--aggregation", "sym_log_sum", "--k1", "2"]
    succeed("aggregate", tmp_path / "out", *arguments)
    assert len(list(tmp_path.glob(f"out/runs/{name}-sym_log_sum-*.trec"))) == 1
    (tmp_path / "longer").mkdir()
    config = _named(tmp_path / "longer", f"{name}é").path
    assert "102 bytes" in refused("run", config, code=2)
    assert not (tmp_path / "longer/out").exists()
