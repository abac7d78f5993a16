"""An aggregation that is defined here, outside the package: registered, used in a run, and by `beamrank aggregate`."""

import numpy as np

from beamrank.commit.check import Verification
from beamrank.ranking.aggregation import METHODS
from models.stages.core import open_stages
from pipelines.runs.run_files import verify_runs
from tests.support.processes import beamrank_here
from tests.support.runs import read_trec
from tests.support.small_collection import small_cascade


def median(z):
    return np.nanmedian(z, axis=1)


def test_registered_aggregation_ranks_a_run(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "median", median)
    collection = small_cascade(tmp_path)
    collection.keys["duo"]["aggregation"] = "median"
    cascade = collection.run()
    runs = tmp_path / "out/runs"
    ranked = read_trec(runs / "duo-median.trec")
    manifest = cascade.plan.sealed("duo")
    assert manifest is not None
    for receipt in manifest.receipts:
        for row in cascade.plan.folder("duo").read_part(receipt).to_pylist():
            count = len(row["doc_ids"])
            scores = np.nanmedian(np.array(row["scores"], dtype=np.float64).reshape(count, count), axis=1)
            best_first = [row["doc_ids"][place] for place in np.argsort(-scores, kind="stable")]
            assert ranked[row["query_id"]][:count] == best_first
    found = Verification()
    verify_runs(cascade.plan, open_stages(cascade.plan.stages), cascade.config, found)
    assert found.findings == []
    whole = (runs / "duo-median.trec").read_bytes()
    assert beamrank_here("aggregate", tmp_path / "out", "--aggregation", "median,sum").returncode == 0
    assert (runs / "duo-median.trec").read_bytes() == whole
    assert (runs / "duo-sum.trec").exists()
