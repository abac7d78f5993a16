"""Run by Airflow's own Python: imports a DAG as Airflow does, renders its tasks, and prints them as
JSON.
"""

import json
import sys
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import jinja2
from airflow.dag_processing.dagbag import DagBag

_VALUES = {
    "beamrank_project": "some-project",
    "beamrank_region": "europe-west4",
    "beamrank_bucket": "some-bucket",
}
_CONTEXT = {
    "var": {"value": _VALUES},
    "params": {"config": "gs://some-bucket/config.yaml", "max_workers": 4},
    # As Airflow 3 gives it without a logical date: then there is no `ts_nodash` and no `ds`.
    "dag_run": SimpleNamespace(
        run_id="manual__1", run_after=datetime(2026, 1, 1, 3, 5), logical_date=None
    ),
}


def _render(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _render(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_render(each) for each in value]
    if not isinstance(value, str):
        return value
    return jinja2.Template(value, undefined=jinja2.StrictUndefined).render(_CONTEXT)


def main() -> None:
    bag = DagBag(dag_folder=sys.argv[1])
    dag = bag.dags.get("beamrank")
    tasks = {
        task.task_id: {
            "operator": type(task).__name__,
            "deferrable": task.deferrable,
            "after": sorted(task.upstream_task_ids),
            "fields": {name: _render(getattr(task, name)) for name in task.template_fields},
        }
        for task in (dag.tasks if dag else [])
    }
    print(json.dumps({"errors": bag.import_errors, "tasks": tasks}, default=str))


main()
