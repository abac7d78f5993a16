"""Ids in columns: found exactly, whatever their hashes."""

import numpy as np
import pyarrow as pa
import pytest

from beamrank.storage import id_places
from beamrank.storage.id_places import IdPlaces, missing_ids, repeated_rows
from beamrank.topic_table import TopicTable

IDS = [f"q{number}" for number in range(200)]


@pytest.fixture(params=[False, True], ids=["distinct hashes", "equal hashes"])
def _hashes(request, monkeypatch):
    """64-bit hashes of real ids do not collide: here those of all ids are one of three."""
    if request.param:
        monkeypatch.setattr(id_places, "hash64", lambda text: len(text))
        monkeypatch.setattr(id_places, "hashes64", lambda texts: np.array([len(each) for each in texts], np.uint64))


@pytest.mark.usefixtures("_hashes")
def test_ids_are_found_in_any_chunks():
    for column in (pa.array(IDS), pa.chunked_array([IDS[:7], [], IDS[7:]])):
        places = IdPlaces(column)
        assert [places.find(each) for each in ("q0", "q7", "q199", "q200", "", "é")] == [0, 7, 199, None, None, None]
    assert IdPlaces(pa.array([], pa.string())).find("q") is None
    assert missing_ids(pa.array(IDS[:4]), {"q1", "q3", "q9"}) == ["q0", "q2"]


def test_rows_with_earlier_values_are_found():
    keys = pa.chunked_array([["a", "b", "a"], ["c", "b", "a"]])
    assert repeated_rows(keys) == [(2, 0), (4, 1), (5, 0)]
    assert repeated_rows(pa.chunked_array([[0, 0, 1, 1, 0, 0]]), keys) == [(4, 1), (5, 0)]
    # Python's hash of -1 is that of -2.
    assert repeated_rows(pa.array([-1, -2, -1])) == [(2, 0)]
    assert repeated_rows(keys.slice(0, 2)) == repeated_rows(keys.slice(0, 0)) == []


def test_tables_of_topics_are_compared_by_id_and_text():
    old = TopicTable.of([("a", "x"), ("b", "y"), ("c", "z")])
    new = TopicTable.of([("c", "z"), ("d", "x"), ("b", "other")])
    both, unchanged = new.in_both(old)
    assert (both.tolist(), unchanged.tolist()) == ([0, 2], [0])
    assert dict(new.texts) == {"c": "z", "d": "x", "b": "other"}
    assert new.texts.get("a") is None
