"""The metadata of runs against the schema that https://www.ir-metadata.org publishes (version
0.1).
"""

import dataclasses
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from beamrank.config.run import RunConfig
from beamrank.machine import describe_machine
from pipelines.runs.run_file import RunFile
from pipelines.runs.run_metadata import describe_data, describe_retrieval, write_metadata
from tests.support.models.stages import a_stage
from tests.support.processes import succeed
from tests.support.runs import undisturbed_run

# What we write of the checklists; of a list, the type of its items. One checklist has
# `reported_measures`, and its example `reported measures`.
_PUBLISHED: dict[tuple[str, ...], type] = {
    ("platform", "hardware", "cpu", "model"): str,
    ("platform", "hardware", "cpu", "number of cores"): int,
    ("platform", "hardware", "gpu", "model"): str,
    ("platform", "hardware", "ram"): str,
    ("platform", "operating system", "kernel"): str,
    ("platform", "software", "libraries", "python"): str,
    ("platform", "software", "retrieval toolkit"): str,
    ("research goal", "evaluation", "reported measures"): str,
    ("implementation", "executable", "cmd"): str,
    ("implementation", "source", "lang"): str,
    ("method", "automatic"): bool,
    ("method", "score ties"): str,
    ("data", "test collection", "name"): str,
    ("data", "test collection", "source"): str,
    ("data", "test collection", "qrels"): str,
    ("data", "test collection", "topics"): str,
}
_COMPONENTS = ["platform", "research goal", "implementation", "method", "actor", "data"]


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(each, (*path, key))
    else:
        yield from ((path, each) for each in (value if isinstance(value, list) else [value]))


def checked_metadata(run: Path) -> dict[str, Any]:
    """The metadata of a run file."""
    found: dict[str, Any] = yaml.safe_load(Path(f"{run}.metadata.yaml").read_text())
    assert list(found) == ["schema-version", "run-version", "tag", *_COMPONENTS]
    assert (found["schema-version"], found["run-version"]) == (0.1, 1.0)
    retrieval = found["method"]["retrieval"]
    for path, value in _leaves(found | {"method": {**found["method"], "retrieval": []}}):
        if path[0] in _COMPONENTS:
            assert type(value) is _PUBLISHED[path], path
    names = [each["name"] for each in retrieval]
    for position, each in enumerate(retrieval):
        assert {each.get("reranks"), *each.get("interpolates", [])} <= {None, *names[:position]}
    return found


@pytest.mark.jvm
def test_every_run_of_a_run_and_of_aggregate_has_metadata(config_path, tmp_path):
    output = shutil.copytree(undisturbed_run(config_path), tmp_path / "out")
    succeed("aggregate", output, "--aggregation", "min", "--k1", "3")
    runs = sorted((output / "runs").glob("*.trec"))
    assert [run.name for run in runs] == [
        "bm25.trec",
        "duo-min-k3.trec",
        "duo-sum.trec",
        "mono.trec",
    ]
    found = {run.name: checked_metadata(run) for run in runs}
    duo = found["duo-min-k3.trec"]["method"]["retrieval"]
    assert [each["name"] for each in duo] == ["bm25", "monobert", "duobert"]
    assert (duo[2]["aggregation"], duo[2]["k"], duo[2]["reranks"]) == ("min", 3, "monobert")
    assert [len(found[name]["method"]["retrieval"]) for name in ("bm25.trec", "mono.trec")] == [
        1,
        2,
    ]
    assert "metadata" not in succeed("verify", output).stderr


@pytest.mark.jvm
def test_metadata_at_the_head_of_its_run_passes_lint(config_path, tmp_path):
    run = undisturbed_run(config_path) / "runs/mono.trec"
    lines = Path(f"{run}.metadata.yaml").read_text().splitlines()
    head = ["# ir_metadata.start", *(f"# {line}" for line in lines), "# ir_metadata.end"]
    (tmp_path / "run").write_text("".join(f"{line}\n" for line in head) + run.read_text())
    succeed("lint", tmp_path / "run")


def test_metadata_gives_the_memory_in_its_unit(tmp_path):
    machine = dataclasses.replace(describe_machine(), memory_gib=23.5)
    write_metadata(str(tmp_path / "run"), "tag", machine, [{"name": "bm25"}])
    assert checked_metadata(tmp_path / "run")["platform"]["hardware"]["ram"] == "23.5 GiB"


def test_metadata_names_the_opponents_of_a_sampled_run():
    sampled = (("aggregation", "sample"), ("drawn", (2, 4)))
    for stage, file, expected in (
        (a_stage("duo"), RunFile("duo-sample-m2-s4", "duo", variant=sampled), (10, 2, 4)),
        (
            a_stage("duo", aggregation="sample", opponents=3, seed=7),
            RunFile("duo-sample", "duo"),
            (10, 3, 7),
        ),
        (
            a_stage("duo"),
            RunFile("duo-min-k3", "duo", k=3, variant=(("aggregation", "min"),)),
            (3, None, None),
        ),
    ):
        *_, last = describe_retrieval([a_stage("mono"), stage], file)
        assert (last["k"], last.get("opponents"), last.get("seed")) == expected


def test_metadata_of_data_lacks_qrels_that_are_not_given():
    values = {
        "corpus": {"path": "/data/c.tsv", "format": "tsv"},
        "topics": {"path": "/data/t.tsv", "format": "tsv"},
    }
    config = RunConfig.model_validate(
        {**values, "candidates": {"run": "/data/run"}, "output": "out"}
    )
    expected = {"name": "c.tsv", "source": "/data/c.tsv", "topics": "/data/t.tsv"}
    assert describe_data(config) == {"test collection": expected}


def test_metadata_holds_the_command_without_flags_of_beam(tmp_path, monkeypatch):
    command = [
        "/bin/beamrank",
        "run",
        "a b.yaml",
        "--runner",
        "spark",
        "--",
        "--s3_secret_access_key=hidden",
    ]
    monkeypatch.setattr(sys, "argv", command)
    write_metadata(str(tmp_path / "run"), "tag", describe_machine(), [{"name": "bm25"}])
    assert checked_metadata(tmp_path / "run")["implementation"]["executable"] == {
        "cmd": "beamrank run 'a b.yaml' --runner spark"
    }
    monkeypatch.setattr(sys, "argv", ["script.py", "--token", "hidden"])
    write_metadata(str(tmp_path / "run"), "tag", describe_machine(), [{"name": "bm25"}])
    assert "executable" not in checked_metadata(tmp_path / "run")["implementation"]
