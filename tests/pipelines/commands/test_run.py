"""`beamrank run` and `beamrank status`: stages alone, changed configurations, exit codes."""

import json
import re
import shutil
from pathlib import Path

import pytest

from pipelines.runners import options
from tests.support.processes import beamrank_here, refused, succeed
from tests.support.runs import assert_same_bytes, committed, run_bytes, undisturbed_run
from tests.support.small_collection import small_cascade


@pytest.fixture(scope="module")
def config_path(tmp_path_factory) -> Path:
    return small_cascade(tmp_path_factory.mktemp("small")).path


def test_stages_run_one_by_one_give_the_same_bytes(config_path, tmp_path):
    expected = undisturbed_run(config_path)
    command: list[str | Path] = ["run", config_path, "--output", tmp_path / "out", "--stage"]
    succeed(*command, "retrieve")
    assert re.search("mono .*tokenize-.*--stage tokenize", refused(*command, "mono", code=3))
    succeed(*command, "tokenize")
    succeed(*command, "mono")
    message = refused(*command, "runs", code=3)
    assert re.search("duo .*--stage duo.*--set duo=null", message)
    succeed(*command, "duo")
    assert not (tmp_path / "out/runs/duo-sum.trec").exists()
    *said, last = succeed(*command, "runs").stderr.splitlines()
    assert last == f"to see what the run did: beamrank report {tmp_path / 'out'}"
    *costs, _ = (
        succeed("status", tmp_path / "out")
        .stdout.replace("4 of 4 shards, finished, ", "")
        .splitlines()
    )
    assert set(costs) <= set(said)
    assert_same_bytes(tmp_path / "out", expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stage", "duo", "--set", "duo=null"], "no stage duo"),
        (
            ["--stage", "mono", "--set", "duo=null", "--set", "mono=null"],
            "no stage mono",
        ),
        (["--no-wait"], "--no-wait"),
        (["--", "--no_such_flag"], "'--no_such_flag'"),
        (["--", "--runner=FnApiRunner"], "before `--`"),
        (["word"], "'word'"),
        (["--set", "mono.k"], "mono.k=100"),
    ],
)
def test_flags_that_are_wrong_are_refused_before_anything_starts(
    config_path, tmp_path, arguments, message
):
    said = refused("run", config_path, "--output", tmp_path / "out", *arguments, code=2)
    assert message in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [["--stage", "later"], ["--runner", "dask"], ["--direct_num_workers=2"]],
    ids=lambda each: each[0],
)
def test_flags_with_unknown_values_have_exit_code_2(config_path, arguments):
    assert beamrank_here("run", config_path, *arguments).returncode == 2


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("plan", "corpus.path=http://127.0.0.1:9/c"),
        ("run", "corpus.path=http://127.0.0.1:9/c"),
        ("plan", "output=http://127.0.0.1:9/out"),
        ("run", "output=http://127.0.0.1:9/out"),
        *((command, "http://127.0.0.1:9/out") for command in ("status", "verify", "gc")),
    ],
)
def test_places_that_do_not_answer_have_exit_code_75(config_path, command, place):
    arguments = [config_path, "--set", place] if "=" in place else [place]
    said = refused(command, *arguments, code=75)
    assert f"cannot reach {place.rpartition('=')[2]}" in said


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (f"output={'a' * 4000}", "File name too long"),
        ("mono.checkpoint=embedded:duo", "embedded:duo"),
    ],
    ids=lambda each: each[:30],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_places_that_cannot_be_used_have_exit_code_3(config_path, command, override, message):
    said = refused(command, config_path, "--set", override, code=3)
    assert message in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "none.yaml"], "cannot read the configuration"),
        (["status", "none"], "holds no beamrank run"),
        (["status", "current-plan.json"], "holds no beamrank run"),
        (["status", "."], "plan-0123456789ab.json"),
    ],
)
def test_files_that_cannot_be_read_have_exit_code_3(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("current-plan.json").write_text('{"plan": "plan-0123456789ab.json", "config": ""}')
    Path("plan-0123456789ab.json").write_text('{"engine_ver')
    assert message in refused(*arguments, code=3)


def test_changed_config_redoes_only_what_it_decides(config_path, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(undisturbed_run(config_path), output)
    before = committed(output)
    succeed(
        "run", config_path, "--output", output, "--set", "measures=[AP]", "--set", "run_tag=other"
    )
    assert committed(output) == before
    said = succeed("run", config_path, "--output", output, "--set", "duo.k=2").stderr
    after = committed(output)
    assert {name: after[name] for name in before} == before
    assert {name.split("/")[0] for name in after.keys() - before.keys()} == {"duo"}
    assert "mono: all 4 shards are already complete" in said
    # And back: what the first configuration left is still there.
    succeed("run", config_path, "--output", output)
    assert committed(output) == after
    assert run_bytes(output) == run_bytes(undisturbed_run(config_path))


def test_join_in_several_passes_gives_the_same_bytes(config_path, tmp_path, monkeypatch):
    expected = undisturbed_run(config_path)
    shutil.copytree(expected / "retrieve", tmp_path / "out/retrieve")
    monkeypatch.setattr(options, "_IN_MEMORY_SHARE", 1e-12)
    said = succeed("run", config_path, "--output", tmp_path / "out").stderr
    assert "one job cannot send all rows; 4 passes over the corpus" in said
    assert "tokenize reads the corpus in 4 passes" in succeed("plan", config_path).stdout
    assert_same_bytes(tmp_path / "out", expected)
    assert not list((tmp_path / "out").glob("*/needed-*"))


def test_status_reads_receipts_only(config_path, tmp_path):
    shutil.copytree(undisturbed_run(config_path), tmp_path / "out")
    for path in (tmp_path / "out").glob("*/manifest-*"):
        path.unlink()
    before = sorted(path for path in (tmp_path / "out").rglob("*"))
    status = json.loads(succeed("status", tmp_path / "out", "--json").stdout)
    stages = status["stages"]
    assert status["eta_seconds"] == 0
    assert [stage["stage"].split("-")[0] for stage in stages] == [
        "retrieve",
        "tokenize",
        "mono",
        "duo",
    ]
    documented = {
        "stage",
        "shards",
        "done",
        "bad_rows",
        "eta_seconds",
        "inferences",
        "reused",
        "at_work",
        "kept_answers",
        "left_open",
    }
    scoring = {"inferences_per_second", "inferences_per_query", "tokens", "padding_share"}
    for stage in stages:
        assert set(stage) == documented | {"elapsed_seconds", "seconds", "retries"} | scoring
        assert (stage["shards"], stage["done"], stage["bad_rows"], stage["eta_seconds"]) == (
            4,
            4,
            0,
            0.0,
        )
        assert stage["elapsed_seconds"] is None
        assert stage["seconds"] > 0
    assert [stage["inferences"] > 0 for stage in stages] == [False, False, True, True]
    for name in scoring:
        assert [stage[name] is not None for stage in stages] == [False, False, True, True]
    # Reading is not sealing.
    assert sorted((tmp_path / "out").rglob("*")) == before
    *lines, run = succeed("status", tmp_path / "out").stdout.splitlines()
    assert [line.split("-")[0].split(":")[0] for line in lines] == [
        "retrieve",
        "tokenize",
        "mono",
        "duo",
    ]
    assert all("4 of 4 shards, finished, " in line for line in lines)
    assert "inferences (" in lines[2]
    assert run == "run: all stages finished"


def test_qrels_that_judge_no_topic_are_refused_at_once(config_path, tmp_path):
    qrels = tmp_path / "other.txt"
    qrels.write_text("q99 0 d1 1\n")
    message = refused(
        "run", config_path, "--output", tmp_path / "out", "--set", f"qrels={qrels}", code=3
    )
    assert "'q99'" in message
    assert [path.name[:6] for path in (tmp_path / "out").glob("*")] == ["probe-"]
