"""`beamrank index --sweep`: the values of k1 and b, and the table of measures."""

import json

import pytest
from typer.testing import CliRunner

from beamrank.config.first_stages import Bm25Config
from beamrank.errors import ConfigError
from models.lucene.sweep import parse_sweep
from pipelines.cli import app
from tests.support.small_collection import TOPICS, SmallCollection


def test_sweep_is_every_combination():
    points = parse_sweep(["k1=0.6,0.9", "b=0.4,0.75"], Bm25Config(k=7))
    assert [(point.k1, point.b, point.k) for point in points] == [
        (0.6, 0.4, 7),
        (0.6, 0.75, 7),
        (0.9, 0.4, 7),
        (0.9, 0.75, 7),
    ]
    assert [(point.k1, point.b) for point in parse_sweep(["b=0,1"], Bm25Config(k1=2))] == [(2, 0), (2, 1)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["k2=1"], r"--sweep 'k2=1': give k1=VALUE,VALUE,\.\.\. and b=VALUE"),
        (["k1=1", "k1=2"], "each once"),
        (["k1"], "could not convert string to float"),
        (["k1=0.9,x"], "could not convert string to float: 'x'"),
        (["b=0.4,1.5"], "must be between 0 and 1, not 1.5"),
        (["k1=-1"], "must be 0 or more, not -1"),
        (["k1=nan"], "finite number"),
    ],
)
def test_sweep_refuses_wrong_values(given, message):
    with pytest.raises(ConfigError, match=message):
        parse_sweep(given, Bm25Config())


@pytest.mark.jvm
def test_index_sweep_prints_the_measures_of_each_point(tmp_path):
    collection = SmallCollection(tmp_path).with_index()
    (tmp_path / "dev.qrels").write_text("".join(f"{query_id} 0 d{i} 1\n" for i, query_id in enumerate(TOPICS)))
    arguments = ["index", str(collection.path), "--sweep", "k1=0.9,1.2", "--sweep", "b=0,0.4", "--format", "json"]
    refused = CliRunner().invoke(app, arguments)
    assert isinstance(refused.exception, ConfigError)
    assert "--sweep measures what BM25 finds: give --qrels" in str(refused.exception)
    given = ["--qrels", str(tmp_path / "dev.qrels"), "--set", "measures=[AP, RR@10]"]
    done = CliRunner().invoke(app, [*arguments, *given])
    rows = json.loads(done.stdout)
    assert [(row["k1"], row["b"]) for row in rows] == [(0.9, 0), (0.9, 0.4), (1.2, 0), (1.2, 0.4)]
    assert all(0 < row["measures"][name] <= 1 for row in rows for name in ("AP", "RR@10"))
    assert len({row["measures"]["AP"] for row in rows}) > 1
    assert "best AP: " in done.stderr
    (tmp_path / "pairs.txt").write_text("".join(f"{query_id} d{i}\n" for i, query_id in enumerate(TOPICS)))
    done = CliRunner().invoke(app, [*arguments, *given, "--set", "bm25.exclude=pairs.txt"])
    assert [row["measures"]["AP"] for row in json.loads(done.stdout)] == [0] * 4
