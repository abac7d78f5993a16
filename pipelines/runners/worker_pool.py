"""A pool of workers for several Java processes: `python -m pipelines.runners.worker_pool --service_port=PORT`.

Every executor of Spark and every task manager of Flink counts its workers from 1 on. Beam's own pool knows a worker by
that number alone, so that one Java process that is done stops the worker of another, and its shards are done again.
"""

import sys
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.worker import worker_pool_main


class SharedPool(worker_pool_main.BeamFnExternalWorkerPoolServicer):
    """Beam's pool, but for the workers whose number was given twice: these end when their own Java process hangs up."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._given_twice: set[str] = set()

    def StartWorker(self, start_worker_request: Any, unused_context: Any) -> Any:
        """Starts a worker."""
        number = start_worker_request.worker_id
        if number in self._worker_processes or number in self._worker_threads:
            self._given_twice.add(number)
        return super().StartWorker(start_worker_request, unused_context)

    def StopWorker(self, stop_worker_request: Any, unused_context: Any) -> Any:
        """Stops a worker if there is no doubt which."""
        if stop_worker_request.worker_id in self._given_twice:
            return beam_fn_api_pb2.StopWorkerResponse()
        return super().StopWorker(stop_worker_request, unused_context)


def share() -> None:
    """Makes Beam start this pool in place of its own, in this process."""
    worker_pool_main.BeamFnExternalWorkerPoolServicer = SharedPool


if __name__ == "__main__":
    # It imports this module.
    from pipelines.runners.subprocesses import prepare_environment

    prepare_environment()
    share()
    worker_pool_main.main(sys.argv)
