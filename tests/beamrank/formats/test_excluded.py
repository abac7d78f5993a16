"""Docs that are left out of rankings: how they are named, and what is left."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.errors import DataError, PreflightError
from beamrank.formats.excluded import excluded_of, own_facts, read_excluded
from beamrank.formats.runs import run_of
from beamrank.section import SELF
from tests.support.refusals import refuses


def test_excluded_docs_are_unpacked(write):
    plain = read_excluded(write("x.txt", "q1 a\nq2 #b\n"))
    assert (plain.pairs, plain.repeated) == ({"q1": {"a"}, "q2": {"#b"}}, 0)
    packed = read_excluded(write("x.txt.gz", gzip.compress(b"q1 a\nq2 #b\n")))
    assert (packed.pairs, packed.digest) == (plain.pairs, plain.digest)


def test_lists_of_excluded_docs_are_refused(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"query_id": ["0", "1"], "excluded_ids": [["a"], ["N/A"]]}), path)
    with refuses(PreflightError, "list-column"):
        read_excluded(str(path))


def test_digest_of_excluded_docs_is_that_of_the_pairs(write):
    one = read_excluded(write("one", "q1 a\nq1 b\nq2 c\nq1 a\n"))
    assert one.repeated == 1
    assert one.digest == read_excluded(write("two", "q2\tc\nq1\tb\nq1\ta\n")).digest
    assert one.digest != read_excluded(write("three", "q1 a\nq1 b\n")).digest
    assert read_excluded(SELF).digest == SELF


def test_excluded_docs_are_left_out_and_counted():
    run = run_of({"q1": {"a": 3, "b": 2, "q1": 1}, "q2": {"q2": 1}, "q3": {"x": 1}})
    alone = read_excluded(SELF).left_out(run, {"q2": {"q2": 1, "a": 1}})
    assert alone.order == {"q1": ["a", "b"], "q3": ["x"]}
    assert alone.scores["q1"].tolist() == [3, 2]
    assert (alone.notes.queries, alone.notes.rows) == (2, 3)
    assert {note.what.split(": ")[1]: note.found for note in alone.notes.excluded} == {
        "docs that were left out": "2",
        "queries that have no other docs": "1 ('q2')",
        "docs that are judged relevant": "1 ('q2 q2')",
    }
    given = excluded_of({"q1": ["b", "z"], "q9": ["a"]}).left_out(run, {})
    assert given.order == dict(run.order) | {"q1": ["a", "q1"]}
    assert {note.what.split(": ")[1]: note.found for note in given.notes.excluded} == {
        "docs that were left out": "1",
        "docs that are not in the ranking of their query": "1",
        "queries without a ranking": "1 of 2 ('q9')",
    }
    with pytest.raises(PreflightError):
        excluded_of({"q2": ["q2"]}).left_out(run_of({"q2": {"q2": 1}}), {})


@pytest.mark.parametrize("given", [{"q1": "doc"}, {"q1": [1]}, {1: ["a"]}, {"q1": None}])
def test_dictionary_of_excluded_docs_is_checked(given):
    with pytest.raises(DataError):
        excluded_of(given)


def test_queries_that_are_docs_are_noted():
    order = {f"q{number}": ["x", f"q{number}"] for number in range(2)} | {
        str(number): ["x"] for number in range(2)
    }
    assert "2 of 4 ('q0', 'q1')" in str(*own_facts(order))
    # By chance: topic 3 finds doc 3, or far below.
    assert own_facts(order | {"more": ["x"]}) == []
    assert own_facts({"q": [*"abcdefghij", "q"]}) == []


@pytest.fixture
def write(tmp_path):
    """A function that writes a file and returns its path."""

    def write_content(name, content):
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return str(tmp_path / name)

    return write_content
