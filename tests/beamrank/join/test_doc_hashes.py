"""Docs as hashes: what is looked up, and what files give back."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.commit.listing import NEEDED, list_folder, list_ranges, needed_prefix
from beamrank.errors import DataError
from beamrank.join.doc_hashes import (
    NeededDocs,
    OpenedList,
    count_ranges,
    cut_needed,
    listed,
    write_needed,
)
from beamrank.storage.documents import hashes64
from tests.support.changed_files import flip_bit
from tests.support.outputs import list_docs

# The lowest and the highest hash, and those on both sides of the borders of 2, 3 and 4 ranges.
_BORDERS = [each << 32 for each in (0x55555556, 0xAAAAAAAB, 0x40000000, 0x80000000, 0xC0000000)]
EDGES = [0, (1 << 64) - 1, *_BORDERS, *(each - 1 for each in _BORDERS)]
HASHES = st.lists(
    st.sampled_from([*EDGES, *range(1, 9), *hashes64("abcdefgh").tolist()]), max_size=20
)
SHARDS = st.dictionaries(st.sampled_from([0, 1, 5, (1 << 31) - 1]), HASHES, max_size=4)


def _array(hashes: list[int]) -> np.ndarray:
    return np.array(hashes, np.uint64)


@settings(max_examples=25, deadline=None)
@given(SHARDS, HASHES, st.sampled_from([1, 2, 3, 4, 9]))
def test_lookup_finds_exactly_the_wishes_whatever_the_ranges(
    tmp_path_factory, wanted, corpus, ranges
) -> None:
    folder = tmp_path_factory.mktemp("list")
    folder = f"memory://{folder.name}" if ranges == 2 else str(folder)
    cut = [
        each
        for shard, needed in wanted.items()
        for each in cut_needed(shard, _array(needed), ranges)
    ]
    found = write_needed(iter(cut), ranges, folder, "needed-")
    assert len(found.urls) == ranges
    assert found.entries == sum(len(set(needed)) for needed in wanted.values())
    # A job's groups come in any order, and give the same files.
    for number, url in enumerate(found.urls):
        contents = [content for each, content in reversed(cut) if each == number]
        assert NeededDocs.of(contents).publish(folder, "needed-", number) == url
    opened = OpenedList(found.urls)
    rows, shards = opened.lookup(_array(corpus))
    expected = [
        (row, shard)
        for row, each in enumerate(corpus)
        for shard, ids in wanted.items()
        if each in ids
    ]
    assert sorted(zip(rows.tolist(), shards.tolist(), strict=True)) == sorted(expected)
    ordered = [NeededDocs.open(url) for url in found.urls]
    for number, docs in enumerate(ordered):
        assert all((each >> 32) * ranges >> 32 == number for each in docs.hashes.tolist())
    assert np.all(np.diff(np.concatenate([docs.hashes for docs in ordered]).astype(object)) >= 0)


def test_files_of_a_list_are_found_by_range(tmp_path: Path) -> None:
    written = list_docs([(3, list("abcdefgh"))], str(tmp_path), ranges=3)
    list_docs([(3, ["a"])], str(tmp_path / "other"), ranges=3)
    found = list_ranges(str(tmp_path), needed_prefix(("a",), ("b",)))
    assert listed([found[number] for number in range(3)]) == written
    assert [entry.kind for entry in list_folder(str(tmp_path))] == [NEEDED] * 3
    assert list_ranges(str(tmp_path), needed_prefix(("a",), ("c",))) == {}


def test_file_of_a_range_stays_below_64_megabytes() -> None:
    for entries in (0, 1, 4_000_000, 4_000_001, 10**9):
        ranges = count_ranges(entries)
        assert 1.25 * 12 * entries / ranges <= 64e6
        assert ranges == 1 or 12 * entries / (ranges - 1) > 40e6


def test_changed_docs_are_refused(tmp_path: Path) -> None:
    (url,) = list_docs([(0, ["a"])], str(tmp_path)).urls
    flip_bit(Path(url))
    with pytest.raises(DataError, match=url):
        NeededDocs.open(url)
