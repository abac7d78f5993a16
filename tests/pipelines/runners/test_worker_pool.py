"""A pool of workers whose clients give the same numbers."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import psutil
import pytest
from apache_beam.portability.api import beam_fn_api_pb2 as api
from apache_beam.portability.api import beam_fn_api_pb2_grpc as services
from apache_beam.portability.api import endpoints_pb2

from pipelines.runners.subprocesses import prepare_environment
from pipelines.runners.worker_pool import SharedPool
from tests.support.processes import with_argument

_PATIENCE_SECONDS = 60


class _Client(services.BeamFnControlServicer):
    """A Java process that has a worker and nothing for it to do."""

    def __init__(self):
        self.has_worker = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(2))
        services.add_BeamFnControlServicer_to_server(self, self._server)
        self.endpoint = endpoints_pb2.ApiServiceDescriptor(
            url=f"localhost:{self._server.add_insecure_port('localhost:0')}"
        )
        self._server.start()

    def Control(self, request_iterator, context):
        self.has_worker.set()
        hung_up = threading.Event()
        context.add_callback(hung_up.set)
        hung_up.wait()
        yield from ()

    def hang_up(self):
        self._server.stop(0)


@pytest.fixture
def pool():
    prepare_environment()
    address, server = SharedPool.start(use_process=True)
    with grpc.insecure_channel(address) as channel:
        yield services.BeamFnExternalWorkerPoolStub(channel)
    server.stop(0)
    for worker in _workers():
        worker.kill()


def _workers():
    return with_argument(psutil.Process().children(), "SdkHarness")


def _start(pool, number, client):
    before = _workers()
    assert not pool.StartWorker(api.StartWorkerRequest(worker_id=number, control_endpoint=client.endpoint)).error
    deadline = time.monotonic() + _PATIENCE_SECONDS
    # Linux lets the parent of a new program continue before the program's command line can be read.
    while not (new := set(_workers()) - set(before)):
        assert time.monotonic() < deadline, "the pool started no worker"
        time.sleep(0.01)
    (worker,) = new
    return worker


def _stop(pool, number):
    pool.StopWorker(api.StopWorkerRequest(worker_id=number))


def test_worker_pool_clients_are_independent(pool):
    first, second = _Client(), _Client()
    one, same, other = _start(pool, "1-1", first), _start(pool, "1-1", second), _start(pool, "1-2", first)
    _stop(pool, "1-1")
    assert set(_workers()) == {one, same, other}
    _stop(pool, "1-2")
    assert set(_workers()) == {one, same}
    assert first.has_worker.wait(_PATIENCE_SECONDS)
    first.hang_up()
    psutil.wait_procs([one], timeout=_PATIENCE_SECONDS)
    assert _workers() == [same]
    second.hang_up()
