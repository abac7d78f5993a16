"""`beamrank demo`: its collection, and its figures in the README."""

import csv
import json

import pytest

from beamrank.demo.collection import write_collection
from contrib.papers.missing_pairs import count_missing, depths_plan
from pipelines.commands.arguments import open_runs
from tests import ROOT
from tests.support.processes import refused, succeed


def test_demo_searches_the_embedded_collection(tmp_path):
    # A folder that is not an index ends the demo once its collection is written, before minutes of
    # scoring.
    (tmp_path / "out/index").mkdir(parents=True)
    (tmp_path / "out/index/notes.txt").write_text("not an index")
    message = refused("demo", "--output", tmp_path / "out", code=3)
    assert str(tmp_path / "out/index") in message
    write_collection(str(tmp_path / "expected"))
    for path in (tmp_path / "expected").iterdir():
        assert (tmp_path / "out/collection" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.slow
@pytest.mark.jvm
def test_demo_has_the_figures_of_the_readme(tmp_path):
    done = succeed("demo", "--output", tmp_path, "--json")
    # What its warnings come from.
    assert " 112 tokens " in done.stderr
    figures = json.loads(done.stdout)
    assert (figures["docs"], figures["topics"]) == (8315, 89)
    bm25, mono, duo = (stage["RR@10"] for stage in figures["stages"])
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = readme.split("$ beamrank demo\n")[1].split("```")[0]
    shown = {row.split()[0]: float(row.split()[1]) for row in block.splitlines()[2:]}
    assert bm25 == pytest.approx(shown["bm25"], abs=5e-5)
    # These depend on the rounding of the processor's dtype: 0.02 is a relevant doc that moves in
    # two of 89 topics.
    assert (mono, duo) == (
        pytest.approx(shown["mono"], abs=0.02),
        pytest.approx(shown["duo"], abs=0.02),
    )
    with (tmp_path / "report/curves.csv").open() as file:
        points = [row for row in csv.DictReader(file) if row["measure"] == "RR@10"]
    by_k0 = {int(row["k0"]): float(row["value"]) for row in points if row["figure"] == "2"}
    by_aggregation = {
        row["aggregation"]: float(row["value"])
        for row in points
        if row["k1"] == "10" and not row["trial"]
    }
    assert (by_k0[0], by_k0[100], by_aggregation["sum"]) == pytest.approx(
        (bm25, mono, duo), abs=1e-12
    )
    expected = {0: 0.3353, 10: 0.4986, 20: 0.5360, 50: 0.5829, 100: 0.5612}
    assert {k0: by_k0[k0] for k0 in expected} == pytest.approx(expected, abs=0.02)
    runs = open_runs(str(tmp_path / "run"))
    missing, asked = count_missing(depths_plan(runs, (20, 50, 100), (10,)), runs)
    assert (missing, asked) == (pytest.approx(7540, rel=0.05), 24030)
    of_k1 = {"sum": 0.5743, "binary": 0.5766, "min": 0.5761, "max": 0.5526, "sym_sum": 0.5688}
    assert {name: by_aggregation[name] for name in of_k1} == pytest.approx(of_k1, abs=0.02)
