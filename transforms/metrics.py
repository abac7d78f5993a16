"""Beam metrics of scoring, under the namespace and the names of `apache_beam.ml.inference.RunInference`.

A request batch is one shard: the engine gets it in one call, and cuts its batches by itself.
"""

from apache_beam.metrics import Metrics

from beamrank.commit.receipts import Receipt
from models.stages.scoring import new_loads

NAMESPACE = "BeamML"


class InferenceMetrics:
    """The metrics of one DoFn."""

    def __init__(self) -> None:
        self._inferences = Metrics.counter(NAMESPACE, "num_inferences")
        self._failed_batches = Metrics.counter(NAMESPACE, "failed_batches_counter")
        self._batch_size = Metrics.distribution(NAMESPACE, "inference_request_batch_size")
        self._batch_latency = Metrics.distribution(NAMESPACE, "inference_batch_latency_micro_secs")
        self._load_latency = Metrics.distribution(NAMESPACE, "load_model_latency_milli_secs")
        self._model_bytes = Metrics.distribution(NAMESPACE, "model_byte_size")

    def add(self, receipt: Receipt) -> None:
        """Counts a shard that was run, and the models that were loaded for it."""
        inferences = receipt.counts.get("inferences", 0)
        if inferences:
            self._inferences.inc(inferences)
            self._batch_size.update(inferences)
            self._batch_latency.update(round(receipt.seconds * 1e6))
        for load in new_loads():
            self._load_latency.update(round(load.seconds * 1e3))
            self._model_bytes.update(load.weights_bytes)

    def add_failure(self) -> None:
        """Counts a shard that failed."""
        self._failed_batches.inc()
