"""What Airflow fills in for a run without a logical date, which has no `ds` and no `ts_nodash`."""

import re
from datetime import datetime
from types import SimpleNamespace

import jinja2
import pytest

from tests import ROOT

_START = datetime(2026, 11, 29, 3, 5, 7)


@pytest.mark.parametrize(
    ("path", "logical_date", "wanted"),
    [
        ("infra/airflow/beamrank_dag.py", None, ["20261129t030507"]),
        ("examples/weekly/weekly_dag.py", None, ["2026-11-29"]),
        ("examples/weekly/weekly_dag.py", datetime(2026, 11, 23), ["2026-11-23"]),
    ],
)
def test_dag_needs_no_logical_date(path, logical_date, wanted):
    text = (ROOT / path).read_text().replace("{{{{", "{{").replace("}}}}", "}}")
    templates = [
        each for each in re.findall(r"\{\{.*?\}\}", text) if not re.search("params|var", each)
    ]
    run = SimpleNamespace(run_id="manual__1", run_after=_START, logical_date=logical_date)
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    assert [environment.from_string(each).render(dag_run=run) for each in templates] == wanted
