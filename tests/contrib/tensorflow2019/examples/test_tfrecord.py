"""The frames of TFRecord files, against Beam's, and damaged files."""

import io

import numpy as np
import pytest
from apache_beam.io.tfrecordio import _TFRecordUtil
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.errors import DataError
from contrib.tensorflow2019.examples.tfrecord import RecordRange, frame, is_tfrecord, read_records, record_ranges

_CONTENTS = [b"first", b"", b"x" * 300, bytes(range(256)), b"last"]


def _framed(contents: list[bytes]) -> bytes:
    joined = np.frombuffer(b"".join(contents), np.uint8)
    return frame(joined, np.array([len(each) for each in contents], np.int64))


@settings(deadline=None)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=10))
def test_frames_are_those_of_beam(contents):
    expected = io.BytesIO()
    for content in contents:
        _TFRecordUtil.write_record(expected, content)
    assert _framed(contents) == expected.getvalue()
    assert is_tfrecord(expected.getvalue())


@pytest.mark.parametrize("records", [1, 2, 5, 100])
def test_ranges_have_all_records(tmp_path, records):
    path = tmp_path / "a.tf"
    path.write_bytes(_framed(_CONTENTS))
    bad: list = []
    ranges = record_ranges(str(path), records)
    assert len(ranges) == -(-len(_CONTENTS) // records)
    assert [each for some in ranges for each in read_records(some, bad)] == list(enumerate(_CONTENTS))
    assert bad == []


def test_damaged_content_is_one_bad_record(tmp_path):
    path = tmp_path / "a.tf"
    content = bytearray(_framed(_CONTENTS))
    content[content.index(b"x" * 300) + 7] ^= 1
    path.write_bytes(content)
    bad: list = []
    (some,) = record_ranges(str(path), 100)
    assert [number for number, _ in read_records(some, bad)] == [0, 1, 3, 4]
    assert [(row.place, row.reason) for row in bad] == [
        (f"{path}: record 2 (from 0), at byte 37,", "has a wrong checksum")
    ]


@pytest.mark.parametrize("at", [37, 38, 44, 45, 48])
def test_damaged_length_ends_the_file(tmp_path, at):
    path = tmp_path / "a.tf"
    content = bytearray(_framed(_CONTENTS))
    content[at] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"record 2 \(from 0\), at byte 37, has a wrong checksum of its length"):
        record_ranges(str(path), 100)


def test_truncation_is_found_at_every_byte(tmp_path):
    path = tmp_path / "a.tf"
    content = _framed(_CONTENTS)
    borders = {sum(len(each) + 16 for each in _CONTENTS[:count]) for count in range(len(_CONTENTS) + 1)}
    for size in {*range(len(content))} - borders:
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match=r"at byte \d+, is truncated"):
            record_ranges(str(path), 100)
        with pytest.raises(DataError, match="is truncated"):
            list(read_records(RecordRange(str(path), 0, 0, 100), []))


@pytest.mark.parametrize("beginning", [b"", b"PAR1", b"1\t2\tquery\tpassage", bytes(16)])
def test_other_files_are_not_tfrecord(beginning):
    assert not is_tfrecord(beginning)
