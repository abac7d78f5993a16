"""A re-ranking run as an Airflow DAG: one deferred task a stage, each a job of the flex template.

While a job runs, its task waits in the triggerer and holds no worker. A retried task repeats only
shards without a receipt; every failed one is tried again, since Dataflow hands on no exit code
(75, another attempt may succeed; 2 and 3, it would not). Airflow variables: beamrank_project,
beamrank_region, beamrank_bucket (infra/terraform's names).
"""

from datetime import datetime, timedelta
from typing import Any

from airflow.providers.google.cloud.operators.cloud_run import CloudRunExecuteJobOperator
from airflow.providers.google.cloud.operators.dataflow import DataflowStartFlexTemplateOperator
from airflow.sdk import DAG, Param

PROJECT = "{{ var.value.beamrank_project }}"
REGION = "{{ var.value.beamrank_region }}"
BUCKET = "{{ var.value.beamrank_bucket }}"
WORKERS = f"beamrank-worker@{PROJECT}.iam.gserviceaccount.com"
# Remove the stages that the configuration leaves out: duo, or mono, duo and tokenize; retrieve if a
# run is given.
STAGES = ("retrieve", "tokenize", "mono", "duo")


def launch(stage: str) -> dict[str, Any]:
    """The request that starts a stage's job."""
    return {
        "launchParameter": {
            # Equal for every attempt of a task: Dataflow refuses a second active job of this name.
            # A run that was triggered may have no logical date.
            "jobName": f"beamrank-{stage}-{{{{ dag_run.run_after.strftime('%Y%m%dt%H%M%S') }}}}",
            "containerSpecGcsPath": f"gs://{BUCKET}/templates/beamrank.json",
            "parameters": {"config": "{{ params.config }}", "stage": stage},
            "environment": {
                "tempLocation": f"gs://{BUCKET}-temporary/dataflow",
                "stagingLocation": f"gs://{BUCKET}-temporary/dataflow",
                "serviceAccountEmail": WORKERS,
                "maxWorkers": "{{ params.max_workers }}",
                "launcherMachineType": "n2-standard-4",
            },
        }
    }


with DAG(
    dag_id="beamrank",
    description="BM25, monoBERT, duoBERT, runs and their measures",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    render_template_as_native_obj=True,
    params={
        "config": Param(
            "gs://BUCKET/config.yaml",
            type="string",
            pattern="^gs://.+$",
            description="the configuration",
        ),
        "max_workers": Param(
            8,
            type="integer",
            minimum=1,
            description="machines of a job; one GPU each for mono, duo",
        ),
    },
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
    tags=["beamrank"],
) as dag:
    # The runs need no workers: the launcher writes and evaluates them.
    last = CloudRunExecuteJobOperator(
        task_id="runs",
        project_id=PROJECT,
        region=REGION,
        job_name="beamrank",
        overrides={
            "container_overrides": [
                {"args": ["run", "{{ params.config }}", "--runner", "dataflow", "--stage", "runs"]}
            ]
        },
        deferrable=True,
    )
    previous = None
    for name in STAGES:
        task = DataflowStartFlexTemplateOperator(
            task_id=name,
            project_id=PROJECT,
            location=REGION,
            body=launch(name),
            append_job_name=False,
            deferrable=True,
        )
        if previous is not None:
            previous >> task
        previous = task
    previous >> last
