"""A cascade on clusters of two hosts, each with its own network and file system, and a store
between them.
"""

import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from beamrank.commit.plan import read_plan
from beamrank.storage import files as storage
from benchmarks.hosts import LAUNCHER, POOL_PORT, Host, NoHostsError, Place, Pools, two_hosts
from tests.pipelines.runners.test_engines import get_engine
from tests.stores.conftest import reach
from tests.support.outputs import files_below
from tests.support.processes import BEAMRANK
from tests.support.services.clusters import Cluster, class_path, flink_cluster, spark_cluster
from tests.support.services.stores import Store, s3
from tests.support.small_collection import SmallCollection

# One waits for the other.
pytestmark = [pytest.mark.maven, pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(1500)]
# The first report of a scan: rows of a unit are in the shuffle of the join. The first receipt: a
# shard is scored.
_MOMENTS = (r"PUT /\S*/tokenize-\w+/scans/", r"PUT /\S*/mono/receipts/")


class Losses(Pools):
    """Crashes the host that first asks the store for something, at each of some moments, and starts
    it again.
    """

    def __init__(
        self, hosts: tuple[Host, Host], store: Store, folder: Path, stack: ExitStack
    ) -> None:
        super().__init__(hosts, folder, store.environment, stack)
        self._hosts, self._left = {host.address: host for host in hosts}, list(_MOMENTS)
        self.cluster: Cluster | None = None
        store.before = self._look

    def _look(self, request: str, asking: str) -> None:
        if self._left and asking in self._hosts and re.match(self._left[0], request):
            self._left.pop(0)
            assert self.cluster is not None
            self.lose(self._hosts[asking], self.cluster.join)


def _files(output: str) -> dict[str, bytes]:
    """The runs and the parts below an output."""
    kept = re.compile(r"(runs/[\w-]+\.trec|[\w-]+/part-[\w-]+\.parquet)$")
    found = {url.removeprefix(f"{output}/"): url for url in files_below(output)}
    return {name: storage.read_bytes(url) for name, url in found.items() if kept.fullmatch(name)}


@pytest.mark.parametrize("engine", ["flink", "spark"])
def test_cascade_on_two_hosts_survives_the_loss_of_each_host(
    engine, tmp_path, tmp_path_factory, monkeypatch
):
    get_engine(engine)
    collection = SmallCollection(tmp_path, shards=8).with_index(8).with_models()
    expected = _files(collection.run().plan.output)
    jars = class_path(engine)
    with ExitStack() as stack:
        try:
            hosts = stack.enter_context(two_hosts(tmp_path_factory.getbasetemp()))
        except NoHostsError as error:
            pytest.skip(str(error))
        store = reach(stack.enter_context(s3(LAUNCHER)), monkeypatch)
        # The store of a process keeps what its tests before have left.
        config = collection.upload(f"{store.url}/{engine}")
        losses = Losses(hosts, store, tmp_path, stack)
        places = [host.place for host in hosts]
        if engine == "flink":
            cluster = losses.cluster = stack.enter_context(
                flink_cluster(tmp_path / "cluster", jars, Place(LAUNCHER), places)
            )
            flags = [f"--flink_master={cluster.address}"]
        else:
            cluster = losses.cluster = stack.enter_context(
                spark_cluster(tmp_path / "cluster", Place(LAUNCHER), places, jars)
            )
            flags = [f"--spark_master_url={cluster.address}"]
        pool = ["--environment_type=EXTERNAL", f"--environment_config=localhost:{POOL_PORT}"]
        command = [
            BEAMRANK,
            "run",
            config,
            "--runner",
            engine,
            "--retries",
            "4",
            "--",
            *flags,
            *pool,
            *cluster.flags,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert len(losses.lost) == len(_MOMENTS)
        assert _files(f"{store.url}/{engine}/out") == expected
        plan = read_plan(f"{store.url}/{engine}/out")
        assert {receipt.host for receipt in plan.seal("mono").receipts} == {
            host.name for host in hosts
        }
