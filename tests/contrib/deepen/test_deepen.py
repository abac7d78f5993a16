"""`beamrank run --max-inferences N --deepen`: who goes deeper, and the same everywhere."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beamrank
from beamrank.errors import ConfigError
from contrib.deepen.stages import GAPS, Cut
from tests.pipelines.runners.test_engines import get_engine
from tests.support.processes import beamrank_here, succeed
from tests.support.runs import assert_same_bytes, read_trec, run_bytes, scored_and_reused
from tests.support.small_collection import TOPICS, SmallCollection

# Ten topics with nine candidates: with mono.k = 9 and duo.k = 3, 90 inferences of mono and 60 of
# duo.
_WHOLE, _DUO = 90, 60


@pytest.fixture
def collection(tmp_path) -> SmallCollection:
    return SmallCollection(tmp_path).given_run().with_models(mono_k=9).with_qrels()


def _deepen(collection: SmallCollection, limit: int, name: str, **settings) -> Path:
    found = beamrank.run(
        str(collection.path),
        output=collection.folder / name,
        limits={"max_inferences": limit},
        options={"deepen": True},
        **settings,
    )
    return Path(found.output)


def _rows(output: Path, stage: str) -> list[dict]:
    return pq.read_table(sorted(output.glob(f"{stage}/part-*"))).to_pylist()


def _depths(output: Path) -> dict[str, int]:
    scored = {row["query_id"]: row["scored"] for row in _rows(output, "mono-deeper-gaps")}
    return {
        row["query_id"]: scored[row["query_id"]] + row["docs"]
        for row in _rows(output, "mono-deeper-depths")
    }


def test_deeper_ranking_is_that_of_a_mono_of_the_same_depth(collection):
    output = _deepen(collection, _DUO + 61, "out")
    depths = _depths(output)
    # Half of 61 inferences are three docs of ten topics; the other 31 are five topics' six docs,
    # and one.
    gaps = {row["query_id"]: row["gap"] for row in _rows(output, "mono-deeper-gaps")}
    assert [depths[query_id] for query_id in sorted(gaps, key=lambda each: (gaps[each], each))] == [
        9
    ] * 5 + [4] + [3] * 4
    counts = scored_and_reused(output)
    assert [counts[name][0] for name in ("mono", "mono-deeper", "duo")] == [30, 31, _DUO]
    found = read_trec(output / "runs/mono-deeper.trec")
    for depth in set(depths.values()):
        fixed = collection.folder / f"k{depth}"
        collection.run(f"mono.k={depth}", output=fixed)
        expected, duo = (read_trec(fixed / f"runs/{name}.trec") for name in ("mono", "duo-sum"))
        for query_id in (each for each in depths if depths[each] == depth):
            assert found[query_id] == expected[query_id]
            assert read_trec(output / "runs/duo-sum.trec")[query_id] == duo[query_id]
    for command in (
        ["verify"],
        ["audit"],
        ["gc", "--dry-run"],
        ["inspect", "--query", "q0"],
        ["inspect", "--shard", "1"],
    ):
        succeed(*command, output)


@pytest.mark.slow
def test_deepened_run_is_the_same_for_any_shards_and_process(collection):
    output = _deepen(collection, _DUO + 61, "out")
    collection.keys["shards"] = 1
    assert run_bytes(_deepen(collection, _DUO + 61, "one")) == run_bytes(output)
    collection.keys["shards"] = 4
    shared = collection.folder / "shared"
    command = (
        "run",
        collection.path,
        "--output",
        shared,
        "--max-inferences",
        _DUO + 61,
        "--deepen",
        "--only",
    )
    said = succeed(*map(str, (*command, "0/2"))).stderr
    assert "mono-deeper-depths needs all shards of mono-deeper-gaps: run --only again" in said
    for share in ("1/2", "0/2"):
        succeed(*map(str, (*command, share)))
    assert_same_bytes(shared, output)


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["embed", pytest.param("flink", marks=pytest.mark.maven)])
def test_deepened_run_has_the_same_bytes_on_an_engine(collection, runner):
    if runner == "flink":
        get_engine(runner)
    output = _deepen(collection, _DUO + 61, "out")
    assert_same_bytes(_deepen(collection, _DUO + 61, runner, runner=runner), output)


@pytest.mark.slow
def test_changed_topic_changes_who_goes_deeper_in_other_shards(collection):
    output = _deepen(collection, _DUO + 61, "out")
    before = _depths(output)
    topics = {**TOPICS, **dict.fromkeys(("q0", "q1", "q2"), "amber basil")}
    collection.write("topics.tsv", map("\t".join, topics.items()))
    _deepen(collection, _DUO + 61, "out")
    fresh = _deepen(collection, _DUO + 61, "fresh")
    after = _depths(fresh)
    unchanged = [query_id for query_id in before if topics[query_id] == TOPICS[query_id]]
    assert any(after[query_id] != before[query_id] for query_id in unchanged)
    assert run_bytes(output) == run_bytes(fresh)


@pytest.mark.slow
def test_limit_that_is_enough_deepens_nothing(collection):
    output = _deepen(collection, _DUO + _WHOLE, "out")
    assert run_bytes(output) == run_bytes(Path(collection.run().plan.output))


@pytest.mark.parametrize(
    ("keys", "limits", "message"),
    [
        ({}, {}, "--deepen .*--max-inferences"),
        ({}, {"max_inferences": _DUO + 29}, "90"),
        ({"mono": None, "duo": None}, {"max_inferences": 50}, "`mono`"),
    ],
)
def test_deepening_that_cannot_be_is_refused(collection, keys, limits, message):
    with pytest.raises(ConfigError, match=message):
        beamrank.run(str(collection.path), set=keys, limits=limits, options={"deepen": True})
    assert not collection.output.exists()


def test_limit_without_deepen_still_refuses(collection):
    done = beamrank_here("run", collection.path, "--max-inferences", "100")
    assert (done.returncode, "150 inferences" in done.stderr) == (1, True), done.stderr
    assert "--deepen" in succeed("run", "--help").stdout


@pytest.mark.parametrize("docs", [0, 1, 50, 333, 10**6])
def test_cut_spends_exactly_the_docs_on_the_smallest_gaps(docs):
    drawn = random.Random(4)
    rows: list[dict[str, Any]] = [
        {
            "query_id": f"q{number}",
            "gap": drawn.choice([-1.5, 0.25, 3.0]),
            "scored": 5,
            "left": drawn.randrange(20),
        }
        for number in range(60)
    ]
    drawn.shuffle(rows)
    cut = Cut.of(pa.Table.from_pylist(rows, GAPS).select(["query_id", "gap", "left"]), docs)
    ordered = sorted(rows, key=lambda row: (row["gap"], row["query_id"]))
    found = [cut.docs_of(row["gap"], row["query_id"], row["left"]) for row in ordered]
    left = [row["left"] for row in ordered]
    assert sum(found) == min(docs, sum(left))
    spent = np.minimum(np.cumsum(left), docs)
    assert found == np.diff(spent, prepend=0).tolist()
