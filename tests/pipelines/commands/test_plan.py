"""`beamrank plan` after earlier runs: what remains to be done, and which stages a changed key
repeats.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from beamrank.commit.plan import read_plan
from beamrank.commit.status import read_receipts
from tests.support.processes import refused, succeed
from tests.support.runs import plan_run
from tests.support.small_collection import small_cascade


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cascade of four shards that was run into `out` beside it."""
    path = small_cascade(tmp_path_factory.mktemp("small")).path
    plan_run(path).run()
    return path


def _planned(config: Path, *arguments: str) -> str:
    return succeed("plan", config, *arguments).stdout


def _stages(config: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    return {
        stage["stage"]: stage
        for stage in json.loads(_planned(config, *arguments, "--json"))["stages"]
    }


def _files(folder: Path) -> list[tuple[Path, int]]:
    return [(path, path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))]


def test_plan_without_earlier_runs_has_all_work(config: Path, tmp_path: Path) -> None:
    planned = json.loads(_planned(config, "--output", str(tmp_path / "new"), "--json"))
    assert (planned["changed"], planned["note"]) == ([], None)
    for stage in planned["stages"]:
        assert stage["remaining_shards"] == 4
        assert stage["remaining_inferences"] == stage["inferences"]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("output", ["/dev/null", "file"])
def test_plan_refuses_an_output_that_is_not_a_folder(
    config: Path, tmp_path: Path, output: str
) -> None:
    (tmp_path / "file").touch()
    assert str(tmp_path / output) in refused("plan", config, "--output", tmp_path / output, code=3)


def test_plan_after_a_whole_run_has_no_work(config: Path) -> None:
    before = _files(config.parent / "out")
    for stage in _stages(config).values():
        assert [stage[f"remaining_{name}"] for name in ("shards", "inferences", "seconds")] == [
            0,
            0,
            0,
        ]
    assert "all stages finished" in _planned(config)
    assert _files(config.parent / "out") == before


def test_plan_names_a_changed_key_and_its_stages(config: Path) -> None:
    said = _planned(config, "--set", "mono.k=4")
    assert "mono.k 6 -> 4: tokenize, mono and duo are redone" in said
    assert (
        "mono and duo are counted whole: which of their shards still count is known once tokenize "
        "is finished" in said
    )
    found = _stages(config, "--set", "mono.k=4")
    assert [stage["remaining_shards"] for stage in found.values()] == [0, 4, 4, 4]
    assert [found[name]["remaining_inferences"] for name in ("mono", "duo")] == [
        10 * 4,
        10 * 3 * 2,
    ]
    assert "10 of 10 topics known from earlier outputs" in said
    assert "measures" not in _planned(config, "--set", "measures=[AP]")


def test_plan_counts_the_topics_that_other_outputs_have(config: Path, tmp_path: Path) -> None:
    to_new = ("--output", str(tmp_path / "new"), "--reuse", str(config.parent / "out"))
    topics = tmp_path / "topics.tsv"
    lines = (config.parent / "topics.tsv").read_text().splitlines()
    topics.write_text("\n".join([*lines[1:], f"{lines[0]} other words", "q99\tamber heron"]) + "\n")
    planned = json.loads(_planned(config, *to_new, "--set", f"topics.path={topics}", "--json"))
    assert (planned["topics"], planned["topics_known"]) == (11, 9)
    said = _planned(config, *to_new[:2], "--reuse", str(tmp_path))
    assert f"not reused: {tmp_path}: it holds no beamrank run" in said
    assert not (tmp_path / "new").exists()


def test_plan_counts_missing_shards_by_topics(config: Path, tmp_path: Path) -> None:
    """As an interrupted run leaves them."""
    output = tmp_path / "out"
    small = plan_run(config).at(str(output))
    small.run()
    for pattern in ("duo/manifest-*", "duo/receipts/00001-*"):
        next(output.glob(pattern)).unlink()
    topics = len(small.plan.shards[1].topics)
    found = _stages(config, "--output", str(output))
    assert found["duo"]["remaining_shards"] == 1
    assert found["duo"]["remaining_inferences"] == topics * 3 * 2
    said = _planned(config, "--output", str(output))
    assert "remaining work, after earlier runs into this output:" in said
    assert "1 of 4" in said
    assert "counted whole" not in said


def test_plan_ignores_a_corrupt_earlier_plan(config: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    plan_run(config).at(str(output)).plan.publish()
    next(output.glob("plan-*")).write_text("{")
    planned = json.loads(_planned(config, "--output", str(output), "--json"))
    assert planned["note"].startswith("the changes since the last run are unknown: the plan ")


def test_plan_has_seconds_by_receipts_of_this_output_or_of_others(
    config: Path, tmp_path: Path
) -> None:
    out, new = config.parent / "out", ("--output", str(tmp_path / "new"))
    assert "topics.limit" in _planned(config, *new)
    spent = {stage.step: stage for stage in read_plan(str(out)).stages}
    for flags in (("--set", "run_tag=x", "--set", "duo.k=2"), (*new, "--reuse", str(out))):
        stages = _stages(config, *flags)
        for name, stage in stages.items():
            if not stage["remaining_shards"]:
                assert stage["remaining_seconds"] == 0
                continue
            assert (stage["receipts"], stage["output"]) == (4, str(out))
            receipts = read_receipts(read_plan(str(out)))[spent[name].name].values()
            seconds, done = (
                sum(each.seconds for each in receipts),
                sum(each.counts.get("inferences", 0) for each in receipts),
            )
            if done:
                expected = seconds / done * stage["remaining_inferences"]
                assert stage["remaining_seconds"] == pytest.approx(expected)
    assert "mono: seconds by 4 receipts" in _planned(config, *new, "--reuse", str(out))
    # A different dtype takes another time.
    found = _stages(config, *new, "--reuse", str(out), "--set", "dtype=bfloat16")
    assert (found["mono"]["remaining_seconds"], found["mono"]["receipts"]) == (None, 0)
    assert found["tokenize"]["receipts"] == 4


def test_receipts_with_reused_scores_tell_no_seconds(config: Path, tmp_path: Path) -> None:
    reused = plan_run(config, [f"reuse=[{config.parent / 'out'}]"], output=tmp_path / "reused")
    reused.run()
    found = _stages(config, "--output", str(tmp_path / "new"), "--reuse", str(tmp_path / "reused"))
    assert [found[name]["receipts"] for name in ("retrieve", "tokenize", "mono")] == [4, 4, 0]


@pytest.mark.parametrize("flag", ["--price=1", "--machine", "--machines", "--save"])
def test_option_of_an_earlier_version_is_refused_with_what_replaces_it(flag: str) -> None:
    assert "`plan --json`" in refused("plan", "config.yaml", flag, code=2)


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (("--max-inferences", 59), 1, "120"),
        (("--max-hours", 9), 3, "receipts"),
        (("--max-inferences", 59, "--stage", "mono"), 1, "60"),
    ],
)
def test_run_that_would_exceed_a_limit_is_not_started(tmp_path, flags, code, said):
    small = small_cascade(tmp_path).path
    message = refused("run", small, *flags, code=code)
    assert said in message
    assert flags[0] in message
    assert not list(tmp_path.glob("out/*"))


def test_run_within_its_limits_is_started(tmp_path):
    small = small_cascade(tmp_path).path
    succeed("run", small, "--only", "0/1", "--max-inferences", "120")
    again = ("--max-inferences", "0", "--max-hours", "0")
    assert "already complete" in succeed("run", small, *again).stderr


@pytest.mark.slow
def test_limits_of_a_run_that_reuses_count_what_is_left(config: Path, tmp_path: Path) -> None:
    reuse = ("--output", tmp_path / "new", "--reuse", config.parent / "out", "--set", "mono.k=7")
    said = refused("run", config, *reuse, "--max-inferences", "9", code=1)
    assert "mono was not started" in said
    assert "10 inferences" in said
    assert "hours of one worker" in refused("run", config, *reuse, "--max-hours", "0", code=1)
    stages = _stages(config, *map(str, reuse)).values()
    assert sum(stage["remaining_inferences"] for stage in stages) > 70
    succeed("run", config, *reuse, "--max-inferences", "70", "--max-hours", "9")
