"""`beamrank tune`: the values of k1 and b, and the table of measures."""

import json
from pathlib import Path

import pytest

from beamrank.config.stages import Bm25Config
from beamrank.errors import ConfigError
from contrib.tuning.command import tuned_points
from tests.support.processes import refused, succeed
from tests.support.small_collection import TOPICS, SmallCollection


def test_tuned_points_are_every_combination():
    points = tuned_points(Bm25Config(k=7), "0.6,0.9", "0.4,0.75")
    assert {point.k for point in points} == {7}
    assert [(point.k1, point.b) for point in points] == [
        (0.6, 0.4),
        (0.6, 0.75),
        (0.9, 0.4),
        (0.9, 0.75),
    ]
    assert [(point.k1, point.b) for point in tuned_points(Bm25Config(k1=2), None, "0,1")] == [
        (2, 0),
        (2, 1),
    ]


@pytest.mark.parametrize(
    ("k1", "b", "message"),
    [
        ("0.9,x", None, r"--k1 '0.9,x': "),
        ("", None, r"--k1 ''"),
        (None, "0.4,1.5", r"\n  b: .* 1 "),
        ("-1", None, r"\n  k1: .* 0 "),
        ("nan", None, "--k1 "),
    ],
)
def test_tuning_refuses_wrong_values(k1, b, message):
    with pytest.raises(ConfigError, match=message):
        tuned_points(Bm25Config(), k1, b)


@pytest.mark.jvm
def test_tune_prints_the_measures_of_each_point(tmp_path):
    collection = SmallCollection(tmp_path).with_index()
    (tmp_path / "dev.qrels").write_text(
        "".join(f"{query_id} 0 d{i} 1\n" for i, query_id in enumerate(TOPICS))
    )
    arguments: list[str | Path] = [
        "tune",
        collection.path,
        "--k1",
        "0.9",
        "--b",
        "0,0.4",
        "--format",
        "json",
    ]
    assert "--qrels" in refused(*arguments, code=2)
    arguments += ["--qrels", tmp_path / "dev.qrels", "--set", "measures=[AP, RR@10]"]
    done = succeed(*arguments)
    rows = json.loads(done.stdout)
    assert [(row["k1"], row["b"]) for row in rows] == [(0.9, 0), (0.9, 0.4)]
    assert all(0 < row["measures"][name] <= 1 for row in rows for name in ("AP", "RR@10"))
    assert len({row["measures"]["AP"] for row in rows}) > 1
    assert "best AP: " in done.stderr
    (tmp_path / "pairs.txt").write_text(
        "".join(f"{query_id} d{i}\n" for i, query_id in enumerate(TOPICS))
    )
    done = succeed(*arguments, "--set", "bm25.exclude=pairs.txt")
    assert [row["measures"]["AP"] for row in json.loads(done.stdout)] == [0] * 2
