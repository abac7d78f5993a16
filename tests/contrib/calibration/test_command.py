"""`beamrank calibrate`: probabilities beside the scores of a run, their reliability, and
refusals.
"""

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.special import expit

from tests.support.processes import beamrank_here, refused, succeed
from tests.support.scored_outputs import ScoredOutput

_SLOPE = 2.0


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> ScoredOutput:
    """Topics whose docs are relevant the more often, the higher mono's score."""
    folder = tmp_path_factory.mktemp("made")
    made_output = ScoredOutput(folder, topics=60, depths=(20, 15, 4)).run()
    random, lines = np.random.default_rng(4), []
    for row in made_output.stored("mono").to_pylist():
        if random.random() < 0.8:
            label = 2 * int(random.random() < expit(_SLOPE * row["score"] - 1))
            lines.append(f"{row['query_id']} 0 {row['doc_id']} {label}\n")
    (folder / "qrels.txt").write_text("".join(lines))
    return made_output


def _output(made: ScoredOutput) -> Path:
    return Path(made.plan.output)


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_calibrate_writes_probabilities_beside_all_scores(made, method, tmp_path):
    arguments = [
        "calibrate",
        _output(made),
        "--method",
        method,
        "--precision",
        "0.6",
        "--output",
        tmp_path / method,
    ]
    done = succeed(*arguments, "--format", "json")
    result = json.loads(done.stdout)
    assert result == json.loads((tmp_path / method / "calibration.json").read_text())
    assert (result["stage"], result["method"], result["judged_only"]) == ("mono", method, False)
    table = pq.read_table(tmp_path / method / "probabilities.parquet")
    stored = made.stored("mono")
    assert table.num_rows == stored.num_rows
    rows = {(row["query_id"], row["doc_id"]): row for row in table.to_pylist()}
    assert all(
        rows[row["query_id"], row["doc_id"]]["score"] == row["score"] for row in stored.to_pylist()
    )
    by_score = sorted((row["score"], row["probability"]) for row in rows.values())
    assert all(0 <= one[1] <= other[1] <= 1 for one, other in pairwise(by_score))
    if method == "platt":
        map_of = result["map"]
        assert map_of["slope"] == pytest.approx(_SLOPE, abs=0.4)
        score, probability = by_score[0]
        assert probability == pytest.approx(
            float(expit(map_of["slope"] * score + map_of["intercept"]))
        )
    reliability = result["reliability"]
    assert list(reliability) == ["sigmoid of the score", "share of relevant docs", "calibrated"]
    briers = {kind: figures["brier"]["value"] for kind, figures in reliability.items()}
    assert briers["calibrated"] < min(
        briers["sigmoid of the score"], briers["share of relevant docs"]
    )
    threshold = result["threshold"]
    assert threshold["wanted"] == 0.6
    assert threshold["probability"] > result["relevant"] / result["docs"]
    assert (
        f"scores from {threshold['score']:.4f} (probability {threshold['probability']:.4f})"
        in done.stderr
    )
    assert b"<svg" in (tmp_path / method / "reliability.svg").read_bytes()


def test_docs_without_judgment_count_as_not_relevant_or_are_left_out(made, tmp_path):
    both = [
        json.loads(
            succeed(
                "calibrate", _output(made), "--output", tmp_path, "--format", "json", *flags
            ).stdout
        )
        for flags in ([], ["--judged-only"], ["--rel", "2"])
    ]
    everything, judged, higher = both
    assert everything["docs"] == made.stored("mono").num_rows
    assert judged["docs"] < everything["docs"]
    assert judged["relevant"] == everything["relevant"] == higher["relevant"]


def test_calibrate_writes_into_the_output_and_prints_a_table(made):
    done = succeed("calibrate", _output(made))
    header, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert header == [
        "probability",
        "Brier score",
        "low",
        "high",
        "calibration error",
        "low",
        "high",
    ]
    assert [row[0] for row in rows] == [
        "sigmoid of the score",
        "share of relevant docs",
        "calibrated",
    ]
    names = sorted(path.name for path in (_output(made) / "calibration/mono").iterdir())
    assert names == ["calibration.json", "probabilities.parquet", "reliability.svg"]
    succeed("verify", _output(made))


def test_precision_that_no_threshold_reaches_fails_after_the_rest_is_written(made, tmp_path):
    done = beamrank_here("calibrate", _output(made), "--precision", "0.9999", "--output", tmp_path)
    assert done.returncode == 1
    assert "a precision of 0.9999" in done.stderr
    assert json.loads((tmp_path / "calibration.json").read_text())["threshold"]["score"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--precision", "1.5"], 2, "--precision 1.5 must be a share between 0 and 1"),
        (["--stage", "unknown"], 2, "--stage 'unknown' is not a finished stage that ranks: "),
        (["--rel", "3"], 3, r"platt needs 10 topics with a relevant doc .* this run has 0, 0 and "),
        (
            ["--qrels", "few"],
            3,
            r"30 relevant docs and 30 others, and this run has 3, 3 and \d+\. Judge more topics",
        ),
        (
            ["--qrels", "positive", "--judged-only"],
            3,
            "Without --judged-only, docs without a judgment count as not",
        ),
        (
            ["--qrels", "positive", "--method", "isotonic"],
            3,
            "needs .* 200 relevant docs .* or take --method platt",
        ),
    ],
)
def test_calibrate_refuses(made, tmp_path, monkeypatch, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    rows = made.stored("mono").to_pylist()
    firsts = [row for row in rows if row["rank"] == 1]
    Path("few").write_text(
        "".join(f"{row['query_id']} 0 {row['doc_id']} 1\n" for row in firsts[:3])
    )
    best = [row for row in rows if row["score"] > 1]
    Path("positive").write_text("".join(f"{row['query_id']} 0 {row['doc_id']} 1\n" for row in best))
    error = refused("calibrate", _output(made), *arguments, code=code)
    assert re.search(message, error), error


def test_run_without_a_stage_that_scores_docs_is_refused(tmp_path):
    output = ScoredOutput(tmp_path, topics=4).run(stages=1)
    assert "no finished stage" in refused("calibrate", output.plan.output, code=3)


@pytest.mark.parametrize(
    "name", ["calibration", "calibration/mono", "calibration/mono/calibration.json"]
)
def test_calibrate_replaces_a_link_and_its_target_stays(made, tmp_path, name):
    shutil.copytree(
        _output(made), output := tmp_path / "out", ignore=shutil.ignore_patterns("calibration")
    )
    shutil.copy(_output(made).parent / "qrels.txt", tmp_path)
    canaries = [tmp_path / "elsewhere" / each for each in ("mono", "calibration.json")]
    for canary in canaries:
        canary.parent.mkdir(exist_ok=True)
        canary.write_text("mine")
    (output / name).parent.mkdir(parents=True, exist_ok=True)
    (output / name).symlink_to(tmp_path / "elsewhere")
    succeed("calibrate", output)
    assert not (output / name).is_symlink()
    assert json.loads((output / "calibration/mono/calibration.json").read_text())["map"]
    assert {canary.read_text() for canary in canaries} == {"mine"}
