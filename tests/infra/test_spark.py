"""The Spark submission script, run by bash with a `beamrank` that writes its arguments down.

tests/pipelines/runners/test_clusters.py runs it on a cluster.
"""

import subprocess

import pytest

from tests import ROOT

_SCRIPT = ROOT / "infra/spark/submit.sh"


@pytest.fixture
def folder(tmp_path):
    program = tmp_path / "beamrank"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    return tmp_path


def _run(folder, *arguments, **variables):
    environment = {"PATH": f"{folder}:/usr/bin:/bin", **variables}
    return subprocess.run(
        [str(_SCRIPT), *arguments], capture_output=True, text=True, env=environment, check=False
    )


def test_spark_submit_arguments(folder):
    done = _run(
        folder,
        "a config.yaml",
        "spark://master:7077",
        "--set",
        "mono.k=100",
        "--output",
        "gs://b/out",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *(
            "run",
            "a config.yaml",
            "--runner",
            "spark",
            "--set",
            "mono.k=100",
            "--output",
            "gs://b/out",
            "--",
        ),
        "--spark_master_url=spark://master:7077",
        "--environment_type=EXTERNAL",
        "--environment_config=localhost:50000",
    ]


def test_jars_that_every_machine_has_are_not_sent(folder):
    given = {"BEAMRANK_SPARK_CLASSPATH": "/jars/a b.jar:/jars/c.jar", "BEAMRANK_WORKER_PORT": "7"}
    done = _run(folder, "config.yaml", "spark://master:7077", "--", "--parallelism=2", **given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *("run", "config.yaml", "--runner", "spark", "--"),
        "--spark_master_url=spark://master:7077",
        "--environment_type=EXTERNAL",
        "--environment_config=localhost:7",
        "--job_server_jvm_properties=-Dspark.executor.extraClassPath=/jars/a b.jar:/jars/c.jar",
        "--files_to_stage=/jars/a b.jar",
        "--parallelism=2",
    ]


@pytest.mark.parametrize("arguments", [(), ("config.yaml",), ("config.yaml", "--set", "mono.k=1")])
def test_spark_submit_needs_a_master(folder, arguments):
    done = _run(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage" in done.stderr
