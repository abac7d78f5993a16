"""Which docs are truncated, against the counts of the engine that truncated them."""

import pyarrow as pa
import pytest

from beamrank.commit.stage_record import StageRecord
from beamrank.join.schemas import tokenized
from beamrank.report.run_report import query_candidates
from beamrank.report.stored import truncation
from tests.support.runs import run_here
from tests.support.small_collection import SmallCollection


@pytest.mark.parametrize(
    ("rule", "segments"),
    [("original", None), ("paper", None), ("paper", {"length_tokens": 20, "stride_tokens": 15, "limit": 3})],
)
def test_truncated_candidates_are_those_that_the_models_counted(tmp_path, checkpoints, rule, segments):
    collection = SmallCollection(tmp_path).given_run().with_models(checkpoints, 6, 3)
    collection.keys["input"] = {"truncation": rule, "max_query_length": 16, "max_length": 120}
    if segments:
        collection.keys["mono"]["segments"] = segments
    plan, config = run_here(collection.path)
    views = [view for topic in plan.topics for view in query_candidates(plan, config, topic.query_id)]
    for model, scored in (("mono", 60), ("duo", 30)):
        of_model = [view for view in views if any(run.startswith(model) for run in view.scores)]
        found = sum(model in (view.truncated or ()) for view in of_model)
        assert len(of_model) == scored
        assert found == plan.sealed(model).total("truncated_docs")
        assert 0 < found < scored


def test_doc_that_fills_what_is_stored_counts_as_truncated():
    keys = {"truncation": "paper", "max_query_length": 16, "max_length": 64, "segments": None}
    settings = {"start_tokens": 1, "end_tokens": [1, 1], "doc_parts": 1}
    model = StageRecord("mono", "mono", "mono", (), keys=keys, settings=settings)
    # Beside three special tokens and two of the query there is room for 59.
    lengths = {"fits": 58, "full": 59, "cut": 60}
    columns = [["q"], [[7, 8]], [list(lengths)], [[1, 2, 3]], [[[5] * length for length in lengths.values()]]]
    part = pa.table([pa.array(column) for column in columns], names=tokenized(100).names)
    assert dict(truncation._of_part(part, model, 512)) == {
        ("q", "fits"): False,
        ("q", "full"): False,
        ("q", "cut"): True,
    }
    assert dict(truncation._of_part(part, model, 59))["q", "full"]
