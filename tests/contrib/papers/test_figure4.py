"""`beamrank report --score-missing`: figure 4, and the pairs that it needs beside those of the
run.
"""

import csv
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from beamrank.commit.check import find_garbage, verify_stages
from beamrank.commit.plan import read_current, read_plan
from beamrank.formats.qrels import read_qrels
from beamrank.ranking.aggregation import aggregate
from pipelines.execute import run
from tests.support.processes import beamrank_here, refused, succeed
from tests.support.runs import PlannedRun, parts
from tests.support.small_collection import SmallCollection, small_cascade

K0S, K1S = (3, 5, 6), (2, 4)


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> SmallCollection:
    return small_cascade(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def whole(
    collection,
) -> tuple[dict[str, dict[str, tuple[int, float]]], dict[str, dict[tuple[str, str], float]]]:
    """Rank and score of each candidate by mono, and the scores of all pairs of candidates, of a run
    of its own.
    """
    found: PlannedRun = collection.run("duo.k=6", output=collection.folder / "whole")
    mono: dict[str, dict[str, tuple[int, float]]] = {}
    for row in found.rows("mono"):
        mono.setdefault(row["query_id"], {})[row["doc_id"]] = row["rank"], row["score"]
    pairs: dict[str, dict[tuple[str, str], float]] = {}
    for row in found.rows("duo"):
        cells = iter(row["scores"])
        pairs[row["query_id"]] = {
            (one, two): next(cells) for one in row["doc_ids"] for two in row["doc_ids"]
        }
    return mono, pairs


@pytest.fixture(scope="module")
def finished(collection) -> Path:
    """A run whose duo compared three docs of six."""
    return Path(collection.run().plan.output)


@pytest.fixture
def output(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished.parent, tmp_path / "small")) / "out"


def _best(mono: dict[str, tuple[int, float]], k0: int, k1: int) -> list[str]:
    among = [doc_id for doc_id, (rank, _) in mono.items() if rank <= k0]
    return sorted(among, key=lambda doc_id: (-mono[doc_id][1], mono[doc_id][0]))[:k1]


def _report(output: Path, *arguments: str) -> str:
    done = succeed("report", output, "--no-texts", "--trials", "1", *arguments)
    return done.stderr


def _missing(shown: str) -> tuple[int, int]:
    counts = re.search(r"figure 4: ([\d,]+) of ([\d,]+) pairs are missing", shown)
    assert counts, shown
    return int(counts[1].replace(",", "")), int(counts[2].replace(",", ""))


def _figure(output: Path) -> dict[tuple[int, int], float]:
    with (output / "report/curves.csv").open() as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["figure"] == "4" and row["measure"] == "RR@10"
        ]
    assert all(
        int(row["inferences"]) == int(row["k0"]) + int(row["k1"]) * (int(row["k1"]) - 1)
        for row in rows
    )
    return {(int(row["k0"]), int(row["k1"])): float(row["value"]) for row in rows}


def _arguments(k0s: tuple[int, ...], k1s: tuple[int, ...]) -> list[str]:
    return ["--k0", ",".join(map(str, k0s)), "--k1", ",".join(map(str, k1s)), "--score-missing"]


@pytest.mark.slow
def test_missing_pairs_are_those_of_brute_force_and_asked_once(collection, output, whole):
    mono, _ = whole
    before, current = parts(output), read_current(str(output))
    stored = {
        (query_id, one, two)
        for query_id in mono
        for one in _best(mono[query_id], 6, 3)
        for two in _best(mono[query_id], 6, 3)
    }
    wanted = [
        (query_id, one, two)
        for query_id in mono
        for k0 in K0S
        for one in _best(mono[query_id], k0, max(K1S))
        for two in _best(mono[query_id], k0, max(K1S))
        if one != two
    ]
    shown = _report(output, *_arguments(K0S, K1S))
    assert _missing(shown) == (len(set(wanted) - stored), len(wanted))
    extra = set(parts(output)) - set(before)
    assert {Path(path).parent.name for path in extra} == {"duo-depths"}
    assert "figure 4" not in _report(output, *_arguments(K0S, K1S)).replace("figure 4 needs", "")
    assert set(parts(output)) == extra | set(before)
    assert read_current(str(output)) == current
    assert verify_stages(str(output)).findings == []
    assert find_garbage(str(output), 1e12, 0.0) == []
    # Other depths ask only what neither the run nor the first report asked.
    more = {
        (q, one, two)
        for q in mono
        for one in _best(mono[q], 4, 5)
        for two in _best(mono[q], 4, 5)
        if one != two
    }
    assert _missing(_report(output, *_arguments((4,), (5,))))[0] == len(more - set(wanted) - stored)


def test_figure_is_that_of_brute_force(collection, output, whole):
    mono, pairs = whole
    _report(output, *_arguments(K0S, K1S))
    relevance = read_qrels(str(collection.folder / "qrels.txt")).relevance
    expected = {}
    for k0 in K0S:
        for k1 in K1S:
            total = 0.0
            for query_id, judged in relevance.items():
                head = _best(mono[query_id], k0, k1)
                z = np.array(
                    [[pairs[query_id][one, two] for two in head] for one in head], np.float32
                )
                np.fill_diagonal(z, np.nan)
                order = [head[place] for place in np.argsort(-aggregate(z, "sum"), kind="stable")]
                scored = _best(mono[query_id], k0, k0)
                given = sorted(collection_candidates(collection, query_id))
                order += [doc for doc in scored if doc not in order]
                order += [doc for _, doc in given if doc not in order]
                total += max(
                    (
                        1 / place
                        for place, doc in enumerate(order[:10], 1)
                        if judged.get(doc, 0) > 0
                    ),
                    default=0,
                )
            expected[k0, k1] = total / len(relevance)
    assert _figure(output) == pytest.approx(expected, abs=1e-12)
    assert (output / "report/figure-4.svg").exists()


def collection_candidates(collection: SmallCollection, query_id: str) -> list[tuple[int, str]]:
    """Rank and doc_id of each line of the given run."""
    lines = (line.split() for line in (collection.folder / "given.trec").read_text().splitlines())
    return [(int(rank), doc_id) for query, _, doc_id, rank, *_ in lines if query == query_id]


@pytest.mark.slow
def test_next_run_reuses_the_missing_pairs(collection, output):
    _report(output, *_arguments((6,), (5,)))
    run(str(collection.path), output=output, set={"duo.k": 5})
    (manifest,) = [read_plan(str(output)).seal("duo")]
    assert manifest is not None
    assert (manifest.total("inferences"), manifest.total("reused")) == (0, 10 * 5 * 4)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--k0", "99"], 2, "figure 4 needs a k0 of 2 to 6"),
        (["--k1", "1"], 2, "figure 4 needs a k0 of 2 to 6 .* and a k1 of 2 or more"),
    ],
)
def test_depths_that_figure_4_cannot_have_are_refused(output, arguments, code, message):
    done = beamrank_here("report", output, "--score-missing", *arguments)
    assert done.returncode == code
    assert re.search(message, done.stderr)


@pytest.mark.slow
def test_score_missing_takes_one_run_with_a_duo(collection, output, tmp_path):
    done = beamrank_here("report", output, output, "--score-missing")
    assert done.returncode == 2
    assert "give one DIR" in done.stderr
    collection.run("duo=null", output=tmp_path / "mono")
    assert "has no duo" in refused("report", tmp_path / "mono", "--score-missing", code=2)
