"""`beamrank run --max-inferences N --deepen`: who goes deeper, the same everywhere, and what a
later run reuses.
"""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import beamrank
from beamrank.commit.plan import read_plan
from beamrank.errors import ConfigError
from contrib.deepen.stages import GAPS, Cut
from tests.pipelines.runners.test_engines import get_engine
from tests.support.processes import (
    TWO_PROCESSES,
    beamrank_here,
    receipts_exist,
    started,
    succeed,
    wait_until,
)
from tests.support.runs import assert_same_bytes, committed, read_trec, run_bytes
from tests.support.small_collection import TOPICS, SmallCollection

# Ten topics with nine candidates: with mono.k = 9 and duo.k = 3, 90 inferences of mono and 60 of
# duo.
_WHOLE, _DUO = 90, 60
_STAGES = ("mono", "mono-deeper-gaps", "mono-deeper-depths", "mono-deeper", "duo")


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
    plan = read_plan(str(output))
    manifest = plan.gather(stage)
    assert manifest is not None
    return [
        row for each in manifest.receipts for row in plan.folder(stage).read_part(each).to_pylist()
    ]


def _status(output: Path) -> dict[str, dict]:
    return {
        each["stage"]: each
        for each in json.loads(succeed("status", output, "--json").stdout)["stages"]
    }


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
    status = _status(output)
    assert [status[name]["inferences"] for name in ("mono", "mono-deeper", "duo")] == [30, 31, _DUO]
    found = read_trec(output / "runs/mono-deeper.trec")
    for depth in set(depths.values()):
        fixed = beamrank.run(
            str(collection.path), output=collection.folder / f"k{depth}", set={"mono.k": depth}
        )
        expected = read_trec(Path(fixed.runs["mono"]))
        duo = read_trec(Path(fixed.runs["duo-sum"]))
        for query_id in (each for each in depths if depths[each] == depth):
            assert found[query_id] == expected[query_id]
            assert read_trec(output / "runs/duo-sum.trec")[query_id] == duo[query_id]


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
def test_later_run_with_more_scores_only_new_pairs(collection):
    scores, new = [], []
    for limit in (61, 75):
        reuse = [str(collection.folder / "61")] * (limit == 75)
        output = _deepen(collection, _DUO + limit, str(limit), reuse=reuse)
        scores.append(
            {(row["query_id"], row["doc_id"]): row["score"] for row in _rows(output, "mono-deeper")}
        )
        new.append(sum(_status(output)[name]["inferences"] for name in ("mono", "mono-deeper")))
    assert list(map(len, scores)) == [61, 75]
    assert new == [61, len(scores[1].keys() - scores[0].keys())]
    assert all(scores[1][pair] == scores[0][pair] for pair in scores[0].keys() & scores[1].keys())
    _deepen(collection, _DUO + 75, "61")
    _deepen(collection, _DUO + 75, "fresh")
    assert run_bytes(collection.folder / "75") == run_bytes(collection.folder / "61")
    assert_same_bytes(collection.folder / "75", collection.folder / "fresh")
    # Without a limit the whole depth is scored: only what neither stage did.
    whole = beamrank.run(
        str(collection.path), output=collection.folder / "whole", reuse=[str(output)]
    )
    assert _status(Path(whole.output))["mono"]["inferences"] == _WHOLE - 75


def test_deepened_run_resumes_where_it_was_killed(collection):
    whole = _deepen(collection, _DUO + 61, "whole")
    for place, last in enumerate(_STAGES[:-1], 1):
        output = collection.folder / f"{last}-cut"
        shutil.copytree(whole, output, ignore=shutil.ignore_patterns(*_STAGES[place:], "runs"))
        (manifest,) = (output / last).glob("manifest-*.json")
        manifest.unlink()
        sorted((output / last / "receipts").iterdir())[1].unlink()
        before = committed(output)
        _deepen(collection, _DUO + 61, output.name)
        assert_same_bytes(output, whole)
        assert {
            name: state for name, state in committed(output).items() if name in before
        } == before
    commands = (
        ["verify"],
        ["audit"],
        ["gc", "--dry-run"],
        ["inspect", "--query", "q0"],
        ["inspect", "--shard", "1"],
    )
    for command in commands:
        succeed(*command, whole)
    succeed("report", whole, "--output", collection.folder / "report")


@pytest.mark.slow
def test_deepened_run_resumes_after_a_kill_between_the_depths(collection, tmp_path):
    limit = ("--max-inferences", str(_DUO + 61), "--deepen")
    output = tmp_path / "killed"
    with started(collection.path, output, *limit, *TWO_PROCESSES) as process:
        wait_until(receipts_exist("mono-deeper-gaps", 1), output, process)
        process.kill()
    assert not (output / "runs").exists()
    succeed("run", collection.path, "--output", output, *limit)
    assert_same_bytes(output, _deepen(collection, _DUO + 61, "whole"))


@pytest.mark.slow
def test_changed_topic_changes_who_goes_deeper_in_other_shards(collection):
    output = _deepen(collection, _DUO + 61, "out")
    depths = _depths(output)
    topics = {**TOPICS, **dict.fromkeys(("q0", "q1", "q2"), "amber basil")}
    changed = [f"{query_id}\t{text}" for query_id, text in topics.items()]
    collection.write("topics.tsv", changed)
    _deepen(collection, _DUO + 61, "out")
    after = _depths(output)
    assert any(
        after[query_id] != depths[query_id]
        for query_id in depths
        if topics[query_id] == TOPICS[query_id]
    )
    assert run_bytes(output) == run_bytes(_deepen(collection, _DUO + 61, "fresh"))


def test_limit_that_is_enough_deepens_nothing(collection):
    output = _deepen(collection, _DUO + _WHOLE, "out")
    assert run_bytes(output) == run_bytes(Path(beamrank.run(str(collection.path)).output))


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
