"""Run by Airflow's own Python: imports a DAG as Airflow does, renders its tasks, and prints them as
JSON.
"""

import json
import sys
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
    "ts_nodash": "20260101T000000",
}


def _render(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _render(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_render(each) for each in value]
    return jinja2.Template(value).render(_CONTEXT) if isinstance(value, str) else value


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
