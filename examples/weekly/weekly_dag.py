"""weekly.sh as an Airflow DAG, in place of cron: a failed run is tried again, and resumes."""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    dag_id="beamrank_weekly",
    description="Ranks this week's topics over this week's corpus, and reports what changed",
    schedule="0 3 * * 1",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    # Each run reuses scores of the one before it.
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
    params={"folder": "/srv/weekly"},
    tags=["beamrank"],
):
    BashOperator(task_id="rank", bash_command="{{ params.folder }}/weekly.sh {{ ds }} ")
