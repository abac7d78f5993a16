"""The cascade on clusters that are processes of their own: the same bytes, and both workers of a cluster at work."""

from pathlib import Path

import pytest

from pipelines.runners import Runner, server_command
from tests.pipelines.cascades import beamrank, run_bytes
from tests.pipelines.clusters import flink_cluster, spark_cluster
from tests.pipelines.processes import parts, undisturbed_run
from tests.pipelines.test_engines import get_engine

_CLUSTERS = {"spark": spark_cluster, "flink": flink_cluster}


def _class_path(engine: str) -> str:
    """The job server's."""
    command = server_command(Runner(engine), [])
    assert command is not None
    words = command(0, "")
    return words[words.index("-cp") + 1]


@pytest.mark.maven
@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.parametrize(("engine", "workers"), [("spark", "in a pool"), ("flink", "in the launcher")])
def test_clusters_write_the_same_bytes(
    config_path: Path, tmp_path: Path, engine: str, workers: str, request: pytest.FixtureRequest
) -> None:
    get_engine(engine)
    flags = ["--"]
    if workers == "in a pool":
        flags += ["--environment_type=EXTERNAL", f"--environment_config={request.getfixturevalue('worker_pool')}"]
    with _CLUSTERS[engine](tmp_path / "cluster", _class_path(engine)) as cluster:
        done = beamrank("run", config_path, "--output", tmp_path / "out", "--runner", engine, *flags, *cluster.flags)
        assert done.returncode == 0, done.stderr
        did = cluster.done()
    assert len(did) == 2
    assert min(did.values()) > 0
    expected = undisturbed_run(config_path)
    assert run_bytes(tmp_path / "out") == run_bytes(expected)
    assert parts(tmp_path / "out") == parts(expected)
