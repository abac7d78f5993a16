"""Units of a corpus that need not be read: an earlier run has the tokens of all docs that are needed from them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.errors import DataError
from beamrank.join.doc_hashes import NeededDocs, cut_needed, publish_unit_docs, write_needed
from beamrank.join.unread_units import EarlierUnits, local_unit_docs
from tests.support.changed_files import flip_bit

_HASH = st.integers(0, 7).map(lambda number: number * (1 << 61) + number)
HASHES = st.lists(_HASH, max_size=8)


def _array(hashes: list[int]) -> np.ndarray:
    return np.array(hashes, np.uint64)


@settings(max_examples=50, deadline=None)
@given(
    needed=st.dictionaries(st.integers(0, 3), st.tuples(HASHES, HASHES), max_size=3),
    units=st.lists(HASHES, min_size=1, max_size=4),
    ranges=st.sampled_from([1, 3, 5]),
    remote=st.booleans(),
)
def test_unit_is_complete_where_each_shard_has_tokens_of_its_docs(
    tmp_path_factory, needed, units, ranges, remote
) -> None:
    local = tmp_path_factory.mktemp("units")
    folder = f"memory://{local.name}" if remote else str(local)
    cut = (
        each
        for shard, (docs, with_tokens) in needed.items()
        for each in cut_needed(shard, _array(docs), _array(with_tokens), ranges)
    )
    listed = write_needed(cut, ranges, str(local), "needed-")
    urls = [f"{folder}/{publish_unit_docs(folder, _array(unit))}" for unit in units]
    with local_unit_docs(urls) as paths:
        earlier = EarlierUnits(listed, paths)
        complete = earlier.find_complete()
        kept = earlier.publish_docs(complete, str(local), "kept-")
    docs_everywhere = [doc for unit in units for doc in unit]
    lacking = {doc for docs, with_tokens in needed.values() for doc in set(docs) - set(with_tokens)}
    lacking |= {doc for doc in docs_everywhere if docs_everywhere.count(doc) > 1}
    wanted = {doc for docs, _ in needed.values() for doc in docs}
    assert complete.tolist() == [not set(unit) & wanted & lacking for unit in units]
    inside = {doc for unit, whole in zip(units, complete, strict=True) if whole for doc in unit}
    expected = sorted((doc, shard) for shard, (docs, _) in needed.items() for doc in set(docs) & inside)
    opened = [NeededDocs.open(url) for url in kept.urls]
    assert [
        pair for docs in opened for pair in zip(docs.hashes.tolist(), docs.shards.tolist(), strict=True)
    ] == expected
    assert kept.entries == len(expected)


def test_changed_docs_of_a_unit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / publish_unit_docs(str(tmp_path), _array([1, 2]))
    flip_bit(path)
    with pytest.raises(DataError, match="changed after it was written"), local_unit_docs([str(path)]):
        pass
