"""`beamrank demo`: its collection, and its figures in the README."""

import csv
import json

import pytest

from beamrank.demo.collection import write_collection
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
    bm25, mono = (stage["RR@10"] for stage in figures["stages"])
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = readme.split("$ beamrank demo\n")[1].split("```")[0]
    shown = {row.split()[0]: float(row.split()[1]) for row in block.splitlines()[2:]}
    assert bm25 == pytest.approx(shown["bm25"], abs=5e-5)
    # These depend on the rounding of the processor's dtype: 0.02 is a relevant doc that moves in
    # two of 89 topics.
    assert mono == pytest.approx(shown["mono"], abs=0.02)
    with (tmp_path / "report/curves.csv").open() as file:
        points = [row for row in csv.DictReader(file) if row["measure"] == "RR@10"]
    by_k0 = {int(row["k0"]): float(row["value"]) for row in points if row["figure"] == "2"}
    assert (by_k0[0], by_k0[100]) == pytest.approx((bm25, mono), abs=1e-12)
    expected = {0: 0.3353, 10: 0.5415, 20: 0.5755, 50: 0.6197, 100: 0.6157}
    assert {k0: by_k0[k0] for k0 in expected} == pytest.approx(expected, abs=0.02)
