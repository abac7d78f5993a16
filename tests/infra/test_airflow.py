"""The Airflow DAG, imported by Airflow itself."""

import json
import re
import subprocess
from typing import Any

import pytest

from infra.flex_template.generate import metadata
from tests import ROOT
from tests.support.services.environments import airflow_python, environ

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dag(tmp_path_factory):
    python = airflow_python()
    done = subprocess.run(
        [
            python,
            ROOT / "tests/support/services/read_dag.py",
            ROOT / "infra/airflow/beamrank_dag.py",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env=environ(AIRFLOW_HOME=str(tmp_path_factory.mktemp("airflow"))),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_dag_can_be_imported(dag):
    assert dag["errors"] == {}


def test_dag_has_one_deferred_task_per_stage_in_order(dag):
    assert {name: task["after"] for name, task in dag["tasks"].items()} == {
        "retrieve": [],
        "tokenize": ["retrieve"],
        "mono": ["tokenize"],
        "duo": ["mono"],
        "runs": ["duo"],
    }
    assert all(task["deferrable"] for task in dag["tasks"].values())


@pytest.mark.parametrize("stage", ["retrieve", "tokenize", "mono", "duo"])
def test_dag_task_launches_the_template(dag, stage):
    launch = dag["tasks"][stage]["fields"]["body"]["launchParameter"]
    assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", launch["jobName"])
    known = {each["name"]: each for each in metadata()["parameters"]}
    required = {name for name, each in known.items() if not each.get("isOptional")}
    assert required <= set(launch["parameters"]) <= set(known)
    for name, value in launch["parameters"].items():
        assert re.search(known[name]["regexes"][0], value)
    assert launch["parameters"]["stage"] == stage


def test_dag_requests_are_messages_of_googles_api(dag):
    dataflow = pytest.importorskip(
        "google.cloud.dataflow_v1beta3",
        reason="apache-beam[gcp] is not installed: pip install '.[gcp]'",
    )
    for stage in ("retrieve", "tokenize", "mono", "duo"):
        body = dag["tasks"][stage]["fields"]["body"]["launchParameter"]
        message = dataflow.LaunchFlexTemplateParameter.from_json(json.dumps(body))
        assert (message.parameters["stage"], message.environment.max_workers) == (stage, 4)


def test_dag_ends_with_writing_the_runs(dag):
    fields = dag["tasks"]["runs"]["fields"]
    (overrides,) = fields["overrides"]["container_overrides"]
    assert overrides["args"] == [
        "run",
        "gs://some-bucket/config.yaml",
        "--runner",
        "dataflow",
        "--stage",
        "runs",
    ]
    terraform = (ROOT / "infra/terraform/schedule.tf").read_text()
    assert re.search(
        rf'"google_cloud_run_v2_job" "launcher" {{\s+name += "{fields["job_name"]}"', terraform
    )
