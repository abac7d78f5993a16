"""A pool of workers for several Java processes: `python -m pipelines.runners.worker_pool --service_port=PORT`.

Every executor of Spark and every task manager of Flink numbers its workers from 1. Beam's own pool knows a worker by
that number alone: one Java process that ends would stop the worker of another, whose shards would be repeated.
"""

import sys
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.worker import worker_pool_main

from pipelines.runners.subprocesses import prepare_environment


class SharedPool(worker_pool_main.BeamFnExternalWorkerPoolServicer):
    """Beam's pool; a worker whose number is used twice ends when its own Java process disconnects."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._given_twice: set[str] = set()

    def StartWorker(self, start_worker_request: Any, unused_context: Any) -> Any:
        number = start_worker_request.worker_id
        if number in self._worker_processes or number in self._worker_threads:
            self._given_twice.add(number)
        return super().StartWorker(start_worker_request, unused_context)

    def StopWorker(self, stop_worker_request: Any, unused_context: Any) -> Any:
        """Stops a worker, if its number is unique."""
        if stop_worker_request.worker_id in self._given_twice:
            return beam_fn_api_pb2.StopWorkerResponse()
        return super().StopWorker(stop_worker_request, unused_context)


def share() -> None:
    """Makes Beam use this pool instead of its own, in this process."""
    worker_pool_main.BeamFnExternalWorkerPoolServicer = SharedPool


if __name__ == "__main__":
    prepare_environment()
    share()
    worker_pool_main.main(sys.argv)
