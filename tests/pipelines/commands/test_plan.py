"""`beamrank plan` after earlier runs: what remains to be done, and which stages a changed key
repeats.
"""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from beamrank.commit.status import Prediction, read_status
from pipelines.plan.estimate import shard_seconds
from tests.support.checkpoints import save_tiny
from tests.support.processes import refused, succeed
from tests.support.runs import plan_run
from tests.support.small_collection import DOCS, SmallCollection, small_cascade


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
        for figure in ("inferences", "bytes", "seconds"):
            assert stage[f"remaining_{figure}"] == stage[figure]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("output", ["/dev/null", "file"])
def test_plan_refuses_an_output_that_is_not_a_folder(
    config: Path, tmp_path: Path, output: str
) -> None:
    (tmp_path / "file").touch()
    assert "is not a folder" in refused("plan", config, "--output", tmp_path / output, code=3)


def test_plan_measures_each_model_with_its_own_tokenizer(config: Path, tmp_path: Path) -> None:
    mono = save_tiny(tmp_path / "mono", vocabulary=None)
    planned = json.loads(
        _planned(
            config, "--set", f"mono.checkpoint={mono}", "--output", str(tmp_path / "o"), "--json"
        )
    )
    assert planned["stages"][-1]["inferences"] > 0


def test_plan_after_a_whole_run_has_no_work(config: Path) -> None:
    before = _files(config.parent / "out")
    for stage in _stages(config).values():
        assert stage["seconds"] >= 0
        assert [
            stage[f"remaining_{name}"] for name in ("shards", "inferences", "bytes", "seconds")
        ] == [0, 0, 0, 0]
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
    figures = [
        [found[each][f"remaining_{name}"] for name in ("inferences", "reused")]
        for each in ("mono", "duo")
    ]
    # The two docs that mono no longer scores could be among the best three.
    assert figures == [[0, 10 * 4], [10 * 3 * 2, 10 * 3 * 2]]
    assert "duo is counted in both columns" in said
    assert [found[each]["remaining_undecided"] for each in ("mono", "duo")] == [0, 60]
    assert "measures" not in _planned(config, "--set", "measures=[AP]")


def test_plan_predicts_what_is_reused_from_other_outputs(config: Path, tmp_path: Path) -> None:
    to_new = ("--output", str(tmp_path / "new"), "--reuse", str(config.parent / "out"))
    found = _stages(config, *to_new, "--set", "mono.k=9", "--set", "duo.k=6")
    # 6 of 9 candidates, and 3 * 2 of 6 * 5 pairs.
    figures = [
        [found[each][f"remaining_{name}"] for name in ("inferences", "reused")]
        for each in ("mono", "duo")
    ]
    assert figures == [[10 * 3, 10 * 6], [10 * 24, 10 * 6]]
    said = _planned(config, *to_new, "--set", "input.truncation=paper")
    assert re.search(r"mono: not reused: \S+/out/plan-\w+.json: input.truncation differs", said)
    assert not (tmp_path / "new").exists()


@pytest.mark.jvm
def test_plan_of_a_changed_corpus_has_bounds_before_and_after_its_index(tmp_path: Path) -> None:
    collection = SmallCollection(tmp_path).with_index().with_models()
    collection.keys["index"]["update"] = True
    collection.run()
    collection.write(
        "corpus.jsonl",
        (json.dumps({"id": each, "contents": f"{DOCS[each]} heron"}) for each in DOCS),
    )
    figures = ("inferences", "reused", "undecided")
    before = _stages(collection.path)
    assert [before["mono"][f"remaining_{figure}"] for figure in figures] == [60, 60, 60]
    said = _planned(collection.path)
    assert "known once the index is built" in said
    assert "those of random docs" in said
    # Planning a run updates the index.
    planned = collection.plan()
    after = _stages(collection.path)
    assert "random docs" not in _planned(collection.path)
    assert [
        [after[each][f"remaining_{figure}"] for figure in figures] for each in ("mono", "duo")
    ] == [[60] * 3] * 2
    planned.run()
    for status in read_status(planned.plan)[2:]:
        assert 0 < status.inferences <= after[status.stage]["remaining_inferences"]


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


def test_plan_shows_the_cost_on_machines_of_a_price(config: Path, tmp_path: Path) -> None:
    output = str(tmp_path / "new")
    shown = _planned(
        config, "--output", output, "--price", "3600", "--machine", "large-1", "--machines", "4"
    )
    (seconds,) = (float(line.split()[-1]) for line in shown.splitlines() if line.startswith("all "))
    cost = re.search(r"^cost: ([\d.]+) machine hours at 3600: ([\d.]+)$", shown, re.MULTILINE)
    assert cost is not None
    assert float(cost[2]) == pytest.approx(seconds, abs=0.06)
    assert "on 4 machines (large-1), with a worker as fast as one here on each" in shown
    assert not (tmp_path / "new").exists()


def test_status_shows_a_saved_prediction_beside_what_was_spent(
    config: Path, tmp_path: Path
) -> None:
    output = tmp_path / "new"
    shown = _planned(
        config,
        "--output",
        str(output),
        "--price",
        "3600",
        "--machine",
        "large-1",
        "--save",
        "--json",
    )
    predicted = {stage["stage"]: stage["seconds"] for stage in json.loads(shown)["stages"]}
    plan_run(config, output=output).run()
    found = json.loads(succeed("status", output, "--json").stdout)
    steps = {stage["stage"].split("-")[0]: stage for stage in found["stages"]}
    assert {step: steps[step]["predicted_seconds"] for step in predicted} == predicted
    spent = sum(stage["seconds"] for stage in found["stages"])
    assert found["cost"] == {
        "machine": "large-1", "per_hour": 3600.0, "machines": 1,
        "predicted": pytest.approx(sum(predicted.values())), "spent": pytest.approx(spent),
    }  # fmt: skip
    assert "cost on large-1 at 3600 an hour" in succeed("status", output).stdout


def test_shard_is_expected_to_take_what_was_predicted_or_is_measured(
    config: Path, tmp_path: Path
) -> None:
    planned = plan_run(config, output=str(tmp_path / "out"))
    of_shard = partial(shard_seconds, planned.config, planned.plan)
    assert of_shard(planned.plan.stage("mono"), measures=False) == 0
    assert of_shard(planned.plan.stage("retrieve"), measures=True) == 0
    assert 0 < of_shard(planned.plan.stage("mono"), measures=True) < 60
    Prediction(seconds={"mono": 88.0}).save(planned.plan.output)
    assert of_shard(planned.plan.stage("mono"), measures=True) == 88 / len(planned.plan.shards)


def test_damaged_prediction_is_named(config: Path, tmp_path: Path) -> None:
    output = tmp_path / "new"
    plan_run(config, output=output).run()
    (output / "prediction.json").write_text("{}")
    assert "prediction.json is damaged: remove it" in refused("status", output, code=3)


@pytest.mark.parametrize(
    ("flags", "predicted"),
    [
        (("--max-inferences", 59), "120"),
        (("--max-hours", 0), "hours"),
        (("--max-inferences", 59, "--stage", "mono"), "60"),
    ],
)
def test_run_that_would_exceed_a_limit_is_not_started(tmp_path, flags, predicted):
    small = small_cascade(tmp_path).path
    message = refused("run", small, *flags, code=1)
    assert predicted in message
    assert flags[0] in message
    assert not list(tmp_path.glob("out/*"))


def test_run_within_its_limits_is_started(tmp_path):
    small = small_cascade(tmp_path).path
    succeed("run", small, "--max-inferences", "120", "--max-hours", "9")
    assert "already complete" in succeed("run", small, "--max-inferences", "0").stderr
