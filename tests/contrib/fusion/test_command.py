"""`beamrank fuse` as a user runs it."""

import json
import subprocess

import pytest

from beamrank.storage.streams import open_stream
from contrib.fusion import methods as fusion
from contrib.fusion.command import describe_fusion
from tests.pipelines.runs.test_run_metadata import checked_metadata
from tests.support.processes import BEAMRANK, refused, succeed

pytestmark = pytest.mark.usefixtures("two_runs")


def test_fuse_writes_a_run_that_eval_reads(two_runs):
    done = succeed(
        "fuse", "base.trec", "other.trec", "third.tsv", "--method", "rrf", "--output", "fused.trec"
    )
    assert done.stdout == "fused.trec\n"
    assert (
        done.stderr == "note: third.tsv lacks topics of the other runs: 1; there it adds nothing\n"
    )
    rows = [line.split() for line in (two_runs / "fused.trec").read_text().splitlines()]
    assert [row[:4] + row[5:] for row in rows] == [
        [query_id, "Q0", doc_id, str(rank), "fused-rrf"]
        for query_id, docs in (("q1", "bac"), ("q2", "cd"))
        for rank, doc_id in enumerate(docs, 1)
    ]
    assert float(rows[0][4]) == pytest.approx(1 / 62 + 2 / 61)
    again = (two_runs / "fused.trec").read_bytes()
    succeed(
        "fuse", "base.trec", "other.trec", "third.tsv", "--method", "rrf", "--output", "fused.trec"
    )
    assert (two_runs / "fused.trec").read_bytes() == again
    assert (
        json.loads(succeed("eval", "fused.trec", "--qrels", "qrels", "--json").stdout)["measures"][
            "RR@10"
        ]
        == 0.75
    )


def test_fuse_takes_weights_a_normalization_a_depth_and_a_tag(two_runs):
    options = [
        "--weights",
        "1,3",
        "--norm",
        "none",
        "--k",
        "1",
        "--tag",
        "mine",
        "--output",
        "fused.trec",
    ]
    done = succeed("fuse", "base.trec", "third.tsv", "--method", "wsum", *options)
    assert "third.tsv has no scores" in done.stderr
    assert (two_runs / "fused.trec").read_text() == "q1 Q0 a 1 3 mine\nq2 Q0 c 1 3 mine\n"


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zst"])
def test_fused_run_is_compressed_as_its_name_says(two_runs, ending):
    for output in ("fused.trec", f"fused.trec{ending}"):
        succeed("fuse", "base.trec", "other.trec", "--method", "rrf", "--output", output)
    assert (two_runs / f"fused.trec{ending}").read_bytes() != (two_runs / "fused.trec").read_bytes()
    with open_stream(str(two_runs / f"fused.trec{ending}")) as file:
        assert file.read() == (two_runs / "fused.trec").read_bytes()


def test_fused_run_on_standard_output_has_nothing_beside_it(two_runs):
    """A process of its own: pytest replaces standard output."""
    command = ["fuse", "base.trec", "other.trec", "--method", "rrf", "--output"]
    succeed(*command, "fused.trec")
    before = sorted(two_runs.iterdir())
    done = subprocess.run([BEAMRANK, *command, "/dev/stdout"], capture_output=True, check=True)
    assert done.stdout == (two_runs / "fused.trec").read_bytes()
    assert sorted(two_runs.iterdir()) == before


def test_method_defined_outside_the_package_is_used(two_runs, monkeypatch):
    monkeypatch.setitem(fusion.METHODS, "combmax", fusion.Method(max))
    succeed(
        "fuse",
        "base.trec",
        "other.trec",
        "--method",
        "combmax",
        "--norm",
        "none",
        "--output",
        "fused.trec",
    )
    fused = (two_runs / "fused.trec").read_text()
    assert fused.startswith("q1 Q0 a 1 3 fused-combmax\nq1 Q0 b 2 2.99998999 fused-combmax")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["base.trec", "--method", "rrf", "--output", "o"], 2, "two runs"),
        (
            ["base.trec", "base.trec", "--method", "rrf", "--output", "./base.trec"],
            2,
            "one of the runs",
        ),
        (
            ["base.trec", "a", "--method", "rrf", "--output", "."],
            2,
            "is a folder: give the path of a file",
        ),
        (
            ["base.trec", "a", "--method", "wsum", "--weights", "1,x", "--output", "o"],
            2,
            "must be numbers",
        ),
        (["base.trec", "a", "--method", "rrf", "--output", "o.tar"], 2, "packed with tar"),
        (["base.trec", "a", "--method", "rrf", "--output", "link"], 2, "one of the runs"),
        (
            ["base.trec", "a", "--method", "rrf", "--tag", "a b", "--output", "o"],
            2,
            "no white space",
        ),
        (["base.trec", "none", "--method", "rrf", "--output", "o"], 3, "there is no run none"),
    ],
)
def test_fuse_errors_have_their_exit_codes(two_runs, arguments, code, message):
    base = (two_runs / "base.trec").read_text()
    (two_runs / "link").symlink_to("base.trec")
    assert message in refused("fuse", *arguments, code=code)
    assert (two_runs / "base.trec").read_text() == base
    assert not (two_runs / "o").exists()


def test_metadata_of_a_fused_run_names_its_runs(tmp_path):
    for name in ("a.trec", "b.trec"):
        (tmp_path / name).write_text("q1 Q0 d1 1 2 t\n")
    runs = [str(tmp_path / name) for name in ("a.trec", "b.trec")]
    options = ["--method", "wsum", "--weights", "1,3", "--output", str(tmp_path / "fused.trec")]
    succeed("fuse", *runs, *options)
    metadata = checked_metadata(tmp_path / "fused.trec")
    expected = {
        "name": "wsum",
        "norm": "min-max",
        "weights": [1.0, 3.0],
        "interpolates": ["a.trec", "b.trec"],
    }
    assert (metadata["tag"], metadata["method"]["retrieval"][-1]) == ("fused-wsum", expected)


def test_metadata_of_a_fused_run_names_runs_of_one_file_name_by_their_paths():
    *runs, last = describe_fusion(["a/mono.trec", "b/mono.trec"], "rrf", None, [])
    assert [run["name"] for run in runs] == last["interpolates"] == ["a/mono.trec", "b/mono.trec"]
