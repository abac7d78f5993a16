"""Beam metrics of scoring have the names and the values that users of RunInference expect."""

import apache_beam as beam
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.ml.inference.base import _MetricsCollector

from models.stages import scoring
from pipelines.launcher import Launcher
from tests.support.small_collection import small_cascade
from transforms.shards import NAMESPACE, InferenceMetrics


@pytest.fixture
def metrics_of_jobs(monkeypatch):
    """The committed metrics of each Beam job that ran, `{name: value}`."""
    found = []
    run = beam.Pipeline.run

    def recording(self, *arguments, **options):
        result = run(self, *arguments, **options)
        result.wait_until_finish()
        queried = result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))
        found.append(
            {
                each.key.metric.name: each.committed
                for kind in ("counters", "distributions")
                for each in queried[kind]
            }
        )
        return result

    monkeypatch.setattr(beam.Pipeline, "run", recording)
    return found


def test_metrics_of_scoring_are_those_of_run_inference(tmp_path, metrics_of_jobs):
    # What earlier tests of this process loaded does not count.
    scoring._engines.clear()
    scoring.new_loads()
    plan = small_cascade(tmp_path).run(launcher=Launcher).plan
    *_, mono, duo = metrics_of_jobs
    for name, metrics in (("mono", mono), ("duo", duo)):
        receipts = plan.seal(name).receipts
        inferences = [receipt.counts["inferences"] for receipt in receipts]
        assert metrics["num_inferences"] == sum(inferences)
        sizes = metrics["inference_request_batch_size"]
        assert (sizes.count, sizes.sum, sizes.max) == (
            len(receipts),
            sum(inferences),
            max(inferences),
        )
        seconds = sum(receipt.seconds for receipt in receipts)
        assert metrics["inference_batch_latency_micro_secs"].sum == pytest.approx(
            seconds * 1e6, abs=len(receipts)
        )
        assert metrics["load_model_latency_milli_secs"].count == 1
        assert (
            metrics["model_byte_size"].sum == (tmp_path / name / "model.safetensors").stat().st_size
        )


def test_metric_names_are_those_of_run_inference():
    ours, theirs = (
        {getattr(metric, "metric_name", None) for metric in vars(metrics).values()}
        for metrics in (InferenceMetrics(), _MetricsCollector(NAMESPACE))
    )
    assert len(ours) == 6
    assert ours <= theirs
