"""Topics and rows of files are cut into shards, and a plan's file lists them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.commit.shards import (
    SharedTopics,
    cut_rows,
    cut_shards,
    default_shards,
    find_shards,
    first_topics,
    read_shards,
    write_shards,
)
from beamrank.formats.topic_table import TopicTable
from beamrank.records import Topic
from beamrank.storage.digested import DigestedFile
from beamrank.storage.documents import hash64

FILES = [
    (DigestedFile("a.parquet", "v1", "1" * 64), 5),
    (DigestedFile("b.parquet", "", "2" * 64), 0),
]
MORE = [*FILES, (DigestedFile("s3://x/c.parquet", "etag", ""), 4)]


def test_rows_are_cut_within_files():
    shards = cut_rows(MORE, 2)
    assert [
        (shard.index, shard.rows.file.url, *shard.rows[1:]) for shard in shards if shard.rows
    ] == [
        (0, "a.parquet", 0, 2),
        (1, "a.parquet", 2, 4),
        (2, "a.parquet", 4, 5),
        (3, "s3://x/c.parquet", 0, 2),
        (4, "s3://x/c.parquet", 2, 4),
    ]
    assert len({shard.digest for shard in shards}) == 5


def test_a_shard_of_rows_is_known_by_content_not_by_place():
    moved = cut_rows([(DigestedFile("elsewhere/z.parquet", "v9", "1" * 64), 5)], 2)
    assert [shard.digest for shard in moved] == [shard.digest for shard in cut_rows(FILES, 2)]
    assert cut_rows(FILES, 2)[0].digest != cut_rows(FILES, 3)[0].digest


def test_text_for_bm25_is_stored_and_in_the_digest_of_a_shard(tmp_path):
    column = {"query_id": ["q1", "q2"], "text": ["a", "b"]}
    shards = [
        cut_shards(TopicTable(pa.table({**column, **texts})), 1)
        for texts in (
            {},
            {"bm25_text": ["c", "d"]},
            {"bm25_text": ["c", "e"]},
            {"instruction": ["c", "d"]},
        )
    ]
    assert len({each.digests for each in shards}) == 4
    name = write_shards(shards[1], str(tmp_path))
    assert list(read_shards(name, (tmp_path / name).read_bytes(), 1).topics.for_bm25) == [
        ("q1", "c"),
        ("q2", "d"),
    ]


_KEPT = [cut_rows(MORE, 2), cut_shards([Topic(f"q{number}", "x") for number in range(9)], 5)]


@pytest.mark.parametrize("shards", _KEPT)
def test_shards_are_read_as_they_were_written(shards, tmp_path, monkeypatch):
    monkeypatch.setattr("beamrank.commit.shards._GROUPS_AT_ONCE", 2)
    others = [each for each in _KEPT if each is not shards]
    held = [
        read_shards(name, (tmp_path / name).read_bytes(), 5)
        for name in (write_shards(each, str(tmp_path)) for each in others)
    ]
    assert held == others
    name = write_shards(shards, str(tmp_path))
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(b"damaged")
    assert write_shards(shards, str(tmp_path)) == name
    assert (tmp_path / name).read_bytes() == content
    found = read_shards(name, content, len(shards))
    assert found == shards
    assert read_shards(name, content, len(shards)) is found
    for damaged in (content[:-1], content + b"x", b""):
        with pytest.raises(ValueError, match=name):
            read_shards(name, damaged, len(shards))
    with pytest.raises(ValueError, match=r" 9 .* \d$"):
        read_shards(name, content, 9)


@pytest.mark.parametrize(
    ("topics", "shards"),
    [(1, 1), (17, 2), (16 * 4096, 4096), (16 * 4096 + 1, 4096), (200_000, 4096), (655_361, 4097)],
)
def test_many_topics_have_larger_shards(topics, shards):
    assert default_shards(topics) == shards
    assert topics <= 160 * shards


@settings(max_examples=10)
@given(
    st.integers(1, 60),
    st.lists(st.text(min_size=1), min_size=1, max_size=50, unique=True),
    st.sampled_from([1, 5, 99]),
)
def test_shards_hold_the_topics_in_the_order_of_their_hashes(count, query_ids, rows_at_once):
    topics = [Topic(query_id, f"text {query_id}") for query_id in query_ids]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("beamrank.commit.shards._ROWS_AT_ONCE", rows_at_once)
        found = cut_shards(topics, count)
    assert cut_shards(consumed := TopicTable.of(topics[::-1]), count, consume=True) == found
    sizes = [len(shard.topics) for shard in found]
    assert (len(consumed), len(sizes)) == (0, min(count, len(topics)))
    assert max(sizes) - min(sizes) <= 1
    in_order = sorted(topics, key=lambda topic: (hash64(topic.query_id), topic.query_id))
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    assert [list(shard.topics) for shard in found] == [
        sorted(in_order[start : start + size]) for start, size in zip(starts, sizes, strict=True)
    ]
    assert list(found.topics) == [topic for shard in found for topic in shard.topics]
    shard_of = {topic.query_id: shard.index for shard in found for topic in shard.topics}
    assert find_shards(found.first_hashes, query_ids).tolist() == [
        shard_of[query_id] for query_id in query_ids
    ]
    assert list(first_topics(topics, 10)) == in_order[:10] or len(topics) <= 10
    assert first_topics(topics, len(topics)) is first_topics(topics, None) is topics


def test_few_topics_have_a_shard_for_sixteen():
    topics = [Topic(f"q{number}", "x") for number in range(100)]
    assert (len(cut_shards(topics, None)), len(cut_shards([], 7))) == (7, 0)


def test_stored_topics_have_a_row_group_for_each_shard(tmp_path):
    shards = cut_shards([Topic(f"q{number}", "x") for number in range(50)], 4)
    file = pq.ParquetFile(tmp_path / write_shards(shards, str(tmp_path)))
    assert [
        file.read_row_group(shard)["query_id"].to_pylist() for shard in range(file.num_row_groups)
    ] == [[topic.query_id for topic in shard.topics] for shard in shards]


def test_topics_whose_hashes_collide_share_a_shard(monkeypatch):
    monkeypatch.setattr(
        "beamrank.commit.shards.hashes64",
        lambda ids: np.array([int(each) // 8 for each in ids], "u8"),
    )
    shards = cut_shards([Topic(f"{number:02d}", "x") for number in range(20)], 4)
    assert [len(shard.topics) for shard in shards] == [8, 12]
    assert find_shards(shards.first_hashes, ["07", "08", "19"]).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("others", "shards"),
    [(range(100), 7), (range(50, 160), 30), (range(60, 90), 2), (range(200, 210), 3)],
)
def test_shards_that_share_topics_are_those_that_a_table_of_queries_finds(others, shards):
    later = cut_shards([Topic(f"q{number}", "x") for number in range(100)], 7)
    earlier = cut_shards([Topic(f"q{number}", "y") for number in others], shards)
    shard_of = {topic.query_id: shard.index for shard in earlier for topic in shard.topics}
    expected = [
        sorted({shard_of[query_id] for query_id, _ in shard.topics if query_id in shard_of})
        for shard in later
    ]
    shared = SharedTopics.of(later, earlier)
    assert [shared.shards(shard.index) for shard in later] == expected
