"""What a run has stored of its docs: which ones were truncated, against the counts of the engine that did it."""

import pytest

from pipelines.commands.arguments import open_runs
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
    plan, _ = run_here(collection.path)
    runs = open_runs(plan.output)
    views = [view for topic in plan.topics for view in runs.views(topic.query_id, {})]
    for model, scored in (("mono", 60), ("duo", 30)):
        of_model = [view for view in views if any(run.startswith(model) for run in view.scores)]
        found = sum(model in (view.truncated or ()) for view in of_model)
        assert len(of_model) == scored
        assert found == plan.sealed(model).total("truncated_docs")
        assert 0 < found < scored
