"""The cascade on clusters that are processes of their own: the same bytes, and both workers of a
cluster at work.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests import ROOT
from tests.pipelines.runners.test_engines import get_engine
from tests.support.processes import BEAMRANK, beamrank
from tests.support.runs import assert_same_bytes, undisturbed_run
from tests.support.services.clusters import class_path, flink_cluster, spark_cluster

_SUBMIT = ROOT / "infra/spark/submit.sh"

pytestmark = [pytest.mark.maven, pytest.mark.jvm, pytest.mark.slow]


def _check(done, cluster, config_path, output):
    assert done.returncode == 0, done.stderr
    did = cluster.done()
    assert len(did) == 2
    assert min(did.values()) > 0
    assert_same_bytes(output, undisturbed_run(config_path))


def test_spark_with_workers_in_a_pool(config_path, tmp_path, worker_pool):
    get_engine("spark")
    output = tmp_path / "out"
    environment = {
        "PATH": f"{Path(BEAMRANK).parent}:{os.environ['PATH']}",
        "BEAMRANK_WORKER_PORT": worker_pool.rpartition(":")[2],
        "BEAMRANK_SPARK_CLASSPATH": class_path("spark"),
    }
    with spark_cluster(tmp_path / "cluster") as cluster:
        command: list[str | Path] = [
            _SUBMIT,
            config_path,
            cluster.address,
            "--output",
            output,
            "--",
            *cluster.flags,
        ]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=500,
            env=os.environ | environment,
            check=False,
        )
        _check(done, cluster, config_path, output)


def test_flink_with_workers_in_the_launcher(config_path, tmp_path):
    get_engine("flink")
    output = tmp_path / "out"
    with flink_cluster(tmp_path / "cluster", class_path("flink")) as cluster:
        flags = ["--", f"--flink_master={cluster.address}", *cluster.flags]
        done = beamrank("run", config_path, "--output", output, "--runner", "flink", *flags)
        _check(done, cluster, config_path, output)
