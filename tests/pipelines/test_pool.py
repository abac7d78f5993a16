"""A pool of workers whose clients give the same numbers."""

from collections.abc import Iterator

import grpc
import psutil
import pytest
from apache_beam.portability.api import beam_fn_api_pb2 as api
from apache_beam.portability.api import beam_fn_api_pb2_grpc, endpoints_pb2

from pipelines.pool import SharedPool
from pipelines.runners import prepare_environment


@pytest.fixture
def pool() -> Iterator[beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub]:
    prepare_environment()
    address, server = SharedPool.start(use_process=True)
    with grpc.insecure_channel(address) as channel:
        yield beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel)
    server.stop(0)
    for worker in _workers():
        worker.kill()


def _workers() -> list[psutil.Process]:
    found = [child for child in psutil.Process().children() if "SdkHarness" in " ".join(child.cmdline())]
    return [worker for worker in found if worker.status() != psutil.STATUS_ZOMBIE]


def _start(pool: beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub, number: str, port: int) -> None:
    # Nobody answers there, and a worker waits.
    endpoint = endpoints_pb2.ApiServiceDescriptor(url=f"localhost:{port}")
    assert not pool.StartWorker(api.StartWorkerRequest(worker_id=number, control_endpoint=endpoint)).error


def test_one_client_does_not_stop_the_worker_of_another(
    pool: beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub,
) -> None:
    _start(pool, "1-1", 1)
    _start(pool, "1-1", 2)
    _start(pool, "1-2", 1)
    assert len(_workers()) == 3
    pool.StopWorker(api.StopWorkerRequest(worker_id="1-1"))
    assert len(_workers()) == 3
    pool.StopWorker(api.StopWorkerRequest(worker_id="1-2"))
    assert len(_workers()) == 2
