"""Rows of files are cut into shards, and a plan's file lists them."""

import pytest

from beamrank.commit.shards import Shard, cut_rows, read_shards, write_shards
from beamrank.records import Topic
from beamrank.storage.digested import DigestedFile

FILES = [(DigestedFile("a.parquet", "v1", "1" * 64), 5), (DigestedFile("b.parquet", "", "2" * 64), 0)]
MORE = [*FILES, (DigestedFile("s3://x/c.parquet", "etag", ""), 4)]


def test_rows_are_cut_within_files():
    shards = cut_rows(MORE, 2)
    assert [(shard.index, shard.rows.file.url, *shard.rows[1:]) for shard in shards if shard.rows] == [
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


@pytest.mark.parametrize("shards", [cut_rows(MORE, 2), (Shard(0, (Topic("a", "x"),)), Shard(1, (Topic("b", "y"),)))])
def test_shards_are_read_as_they_were_written(shards):
    name, content = write_shards(shards)
    assert read_shards(name, content, len(shards)) == shards
    for damaged in (content[:-1], content + b"x", b""):
        with pytest.raises(ValueError, match=f"{name} was changed after it was written"):
            read_shards(name, damaged, len(shards))
    with pytest.raises(ValueError, match=r"does not hold the (rows|topics) of 9 shards"):
        read_shards(name, content, 9)
