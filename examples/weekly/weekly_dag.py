"""weekly.sh as an Airflow DAG, in place of cron: a failed run is tried again, and resumes.

Exit codes that another attempt would not cure are final: wrong flags or configuration (2), a
missing file (3), and a run that the gate refused (4). 75 says that another attempt may succeed.
"""

from datetime import datetime, timedelta

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

_FINAL, _REFUSED = (2, 3), 4


# `max_active_runs` does not count the runs of a backfill.
@task(max_active_tis_per_dag=1)
def rank(folder: str, date: str) -> None:
    code = SubprocessHook().run_command([f"{folder}/weekly.sh", date]).exit_code
    if code == _REFUSED:
        raise AirflowFailException(f"the gate refused runs/{date}: look at its report")
    if code in _FINAL:
        raise AirflowFailException(f"weekly.sh ended with exit code {code}: see its message")
    if code:
        raise AirflowException(f"weekly.sh ended with exit code {code}")


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
    # A run that was triggered may have no logical date.
    rank(
        "{{ params.folder }}",
        "{{ (dag_run.logical_date or dag_run.run_after).strftime('%Y-%m-%d') }}",
    )
