"""The benchmark of many topics: its collection, its backend and its targets."""

import importlib.metadata
import inspect
from pathlib import Path

import numpy as np
import pytest

from beamrank.config.run import load_config
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from beamrank.formats.topics import read_topics
from beamrank.ranking.input_layout import PaddedBatch
from benchmarks import hash_backend
from benchmarks.hash_backend import HashBackend
from benchmarks.parts import topics


def test_collection_has_100_candidates_a_topic_and_a_judged_one_among_them(tmp_path: Path, monkeypatch):
    hash_backend.install(tmp_path / "plugins")
    monkeypatch.syspath_prepend(str(tmp_path / "plugins"))
    (entry,) = importlib.metadata.entry_points(group="beamrank.backends", name=hash_backend.NAME)
    # Of its own: the project's benchmarks are not installed.
    assert Path(inspect.getfile(entry.load())) == tmp_path / "plugins/beamrank_hashes.py"
    monkeypatch.setattr(topics, "_PASSAGES", 2000)
    config = load_config(str(topics.write_config(tmp_path / "run", 5)))
    run, judged = read_run(str(tmp_path / "run/given.parquet")), read_qrels(str(tmp_path / "run/qrels.txt"))
    assert list(run.order) == [topic.query_id for topic in read_topics(config.topics)] == list(judged.relevance)
    assert {len(set(docs)) for docs in run.order.values()} == {topics.K}
    assert all(set(docs) <= set(run.order[query_id]) for query_id, docs in judged.relevance.items())


def test_score_from_hashes_depends_on_its_tokens_alone():
    rng = np.random.default_rng(0)
    inputs = [rng.integers(30_000, size=length, dtype=np.int32) for length in (5, 9, 9, 2)]

    def scores(rows, width):
        ids = np.zeros((len(rows), width), np.int32)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
        return HashBackend().forward(PaddedBatch(ids, ids, np.array([len(row) for row in rows]))).tolist()

    together = scores(inputs, 16)
    assert together == [scores([row], len(row))[0] for row in inputs]
    assert len(set(together)) == 4
    assert scores([inputs[1][::-1]], 9) != together[1:2]
    assert all(-8 <= each < 8 for each in together)


@pytest.mark.parametrize(("seconds", "met"), [(99.0, True), (120.0, False)])
def test_targets_are_linear_seconds_and_a_flat_launcher(seconds, met):
    def row(count, spent, peak):
        step = {f"{name}_seconds": spent for name in ("plan", "launch", "work", "seal")}
        step |= {"seconds": spent, "launcher_peak_mib": peak}
        return topics.Row(count, 10, {"tokenize": {**step, "launcher_peak_mib": 9 * peak}, "runs": step}, spent)

    found = topics.targets("local", [row(1000, 1, 500), row(100_000, 10.0, 600), row(1_000_000, seconds, 1500)])
    assert len(found) == 7
    assert found[0].met
    assert {each.met for each in found[1:]} == {met}
    assert len(topics.targets("local", [row(1000, 1, 500), row(10_000, 2, 2000)])) == 1
    assert not topics.targets("flink", [row(1000, 1, 500), row(10_000, 2, 700)])[0].met
