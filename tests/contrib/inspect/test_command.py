"""`beamrank inspect`."""

import json

import pytest

from beamrank.formats import corpora
from tests.support.processes import beamrank_here, refused
from tests.support.scored_outputs import ScoredOutput


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    made = ScoredOutput(tmp_path_factory.mktemp("made")).run()
    made.write_corpus()
    return made


def test_inspect_lists_the_queries_by_difference(output):
    found = json.loads(
        beamrank_here("inspect", output.plan.output, "--json", "--baseline", "mono").stdout
    )
    assert (found["measure"], found["baseline"], found["run"]) == ("RR@10", "mono", "duo-sum")
    differences = [each["difference"] for each in found["queries"]]
    assert differences == sorted(differences)
    assert [
        each["measures"]["duo-sum"] - each["measures"]["mono"] for each in found["queries"]
    ] == differences
    lines = beamrank_here("inspect", output.plan.output).stdout.splitlines()
    assert lines[0] == "query_id\ttext\tcandidates\tmono\tduo-sum\tdifference"
    assert len(lines) == len(differences) + 1


def test_inspect_shows_a_query_at_every_stage(output):
    done = beamrank_here("inspect", output.plan.output, "--query", "q1", "--json", "--depth", "100")
    found = json.loads(done.stdout)
    assert found["text"] == "text of q1 "
    assert len(found["candidates"]) == 12
    assert [each["ranks"]["duo-sum"] for each in found["candidates"]] == list(range(1, 13))
    assert [each["text"] for each in found["candidates"]] == [
        f"the text of {each['doc_id']} " for each in found["candidates"]
    ]
    # Twelve are retrieved, eight are scored, five are compared.
    assert [
        run in each["scores"] for each in found["candidates"] for run in ("mono", "duo-sum")
    ] == ([True, True] * 5 + [True, False] * 3 + [False, False] * 4)
    first = found["candidates"][0]
    text = beamrank_here("inspect", output.plan.output, "--query", "q1").stdout
    assert f"{first['doc_id']}  label " in text
    assert f"strongest opponent: {first['strongest']['doc_id']} " in text


def test_inspect_shows_the_largest_changes(output):
    found = json.loads(
        beamrank_here("inspect", output.plan.output, "--changes", "3", "--json").stdout
    )["changes"]
    assert [each["after"] for each in found] == ["mono"] * 3 + ["duo-sum"] * 3
    for step in (found[:3], found[3:]):
        assert sorted(step, key=lambda each: -abs(each["places"])) == step
    assert all(each["label"] is not None and each["text"] for each in found)
    text = beamrank_here("inspect", output.plan.output, "--changes", "1").stdout
    assert f"for {found[0]['query_id']}: {found[0]['query']}" in text


def test_inspect_scans_the_corpus_at_most_once(output, monkeypatch):
    scans = []

    def count_scan(corpus):
        scans.append(corpus)
        return []

    monkeypatch.setattr(corpora, "list_units", count_scan)
    for arguments, count in (
        (["--query", "q1"], 1),
        (["--changes", "2"], 1),
        ([], 0),
        (["--query", "q1", "--no-texts"], 0),
    ):
        scans.clear()
        assert beamrank_here("inspect", output.plan.output, *arguments).returncode == 0
        assert len(scans) == count


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--query", "nobody"], "--query 'nobody'"),
        (["--query", "q1", "--changes", "2"], "give one of them"),
    ],
)
def test_inspect_refuses_wrong_options(output, arguments, message):
    assert message in refused("inspect", output.plan.output, *arguments, code=2)


def test_inspect_without_qrels_or_finished_stages(tmp_path):
    output = ScoredOutput(tmp_path, qrels=None).run(0)
    done = beamrank_here("inspect", output.plan.output, "--json")
    assert [each["difference"] for each in json.loads(done.stdout)["queries"]] == [None] * 7
    assert "no qrels" in done.stderr
    assert (
        "no candidates"
        in beamrank_here("inspect", output.plan.output, "--query", "q1", "--no-texts").stdout
    )
