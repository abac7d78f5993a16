"""Docs as hashes: what is looked up, and what files give back."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamrank.errors import DataError
from beamrank.join.doc_hashes import NeededDocs, open_unit_docs, publish_unit_docs
from beamrank.storage.documents import hashes64
from tests.support.changed_files import flip_bit

IDS = st.lists(st.integers(0, 30).map(str), max_size=20)


@given(st.lists(st.tuples(st.integers(0, 5), IDS), max_size=6), IDS)
def test_lookup_finds_exactly_the_wishes(wanted: list[tuple[int, list[str]]], corpus: list[str]) -> None:
    wanted = list(dict(wanted).items())
    rows, shards = NeededDocs.collect(wanted).lookup(hashes64(corpus))
    found = sorted(zip(rows.tolist(), shards.tolist(), strict=True))
    assert found == sorted((row, shard) for row, each in enumerate(corpus) for shard, ids in wanted if each in ids)


@pytest.mark.parametrize("root", ["local", "memory"])
def test_needed_docs_read_back(root: str, tmp_path: Path) -> None:
    folder = str(tmp_path) if root == "local" else f"memory://{tmp_path.name}"
    needed = NeededDocs.collect([(7, ["a", "b", "a"]), (2, ["b"])])
    opened = NeededDocs.open(needed.publish(folder))
    assert np.array_equal(opened.hashes, needed.hashes)
    assert np.array_equal(opened.shards, needed.shards)
    assert len(opened.hashes) == 3


def test_needed_docs_of_no_doc_read_back(tmp_path: Path) -> None:
    opened = NeededDocs.open(NeededDocs.collect([]).publish(str(tmp_path)))
    assert len(opened.lookup(hashes64(["a"]))[0]) == 0


def test_needed_docs_of_a_shard_are_its_own() -> None:
    needed = NeededDocs.collect([(7, ["a", "b"]), (2, ["b"])])
    assert needed.of_shard(2).tolist() == hashes64(["b"]).tolist()
    assert needed.of_shard(7).tolist() == sorted(hashes64(["a", "b"]).tolist())
    assert needed.of_shard(3).tolist() == []


@pytest.mark.parametrize("doc_ids", [[], ["b", "a", "b"]])
def test_docs_of_a_unit_read_back_sorted_and_as_often_as_they_are_there(doc_ids: list[str], tmp_path: Path) -> None:
    name = publish_unit_docs(str(tmp_path), hashes64(doc_ids))
    assert open_unit_docs(str(tmp_path / name)).tolist() == sorted(hashes64(doc_ids).tolist())


def test_changed_docs_of_a_unit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / publish_unit_docs(str(tmp_path), hashes64(["a", "b"]))
    flip_bit(path)
    with pytest.raises(DataError, match="changed after it was written"):
        open_unit_docs(str(path))
