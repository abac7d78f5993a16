"""TFRecord files of examples: frames against Beam's, messages against the published definition, and
damage.
"""

import io
from typing import Any

import numpy as np
import pytest
from apache_beam.io.tfrecordio import _TFRecordUtil
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.errors import DataError
from beamrank.formats.rejects import NO_LIMIT, Rejects
from contrib.tensorflow2019.examples.tfrecord import (
    ExampleError,
    RecordRange,
    decode,
    encode,
    frame,
    is_tfrecord,
    read_records,
    record_ranges,
)
from tests.support.refusals import refuses

_CONTENTS = [b"first", b"", b"x" * 300, bytes(range(256)), b"last"]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=10))
def test_frames_are_those_of_beam(contents):
    expected = io.BytesIO()
    for content in contents:
        _TFRecordUtil.write_record(expected, content)
    assert frame(contents) == expected.getvalue()
    assert is_tfrecord(expected.getvalue())


@pytest.mark.parametrize("records", [1, 2, 5, 100])
def test_ranges_have_all_records(tmp_path, records):
    path = tmp_path / "a.tf"
    path.write_bytes(frame(_CONTENTS))
    bad = Rejects("examples", NO_LIMIT)
    ranges = record_ranges(str(path), records)
    assert len(ranges) == -(-len(_CONTENTS) // records)
    assert [record for some in ranges for record in read_records(some, bad)] == list(
        enumerate(_CONTENTS)
    )
    assert bad.count == 0


def test_damaged_content_is_one_bad_record(tmp_path):
    path = tmp_path / "a.tf"
    content = bytearray(frame(_CONTENTS))
    content[content.index(b"x" * 300) + 7] ^= 1
    path.write_bytes(content)
    bad = Rejects("examples", NO_LIMIT)
    (some,) = record_ranges(str(path), 100)
    assert [number for number, _ in read_records(some, bad)] == [0, 1, 3, 4]
    assert [(row.place, row.reason) for _, row in bad.rows] == [
        (f"{path}: record 2 (from 0), at byte 37", "it has a wrong checksum")
    ]


@pytest.mark.parametrize("at", [37, 38, 44, 45, 48])
def test_damaged_length_ends_the_file(tmp_path, at):
    path = tmp_path / "a.tf"
    content = bytearray(frame(_CONTENTS))
    content[at] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"record 2 .*byte 37: "):
        record_ranges(str(path), 100)


def test_truncation_is_found_at_every_byte(tmp_path):
    path = tmp_path / "a.tf"
    content = frame(_CONTENTS)
    borders = {
        sum(len(each) + 16 for each in _CONTENTS[:count]) for count in range(len(_CONTENTS) + 1)
    }
    for size in {*range(len(content))} - borders:
        path.write_bytes(content[:size])
        with refuses(DataError, "truncated"):
            record_ranges(str(path), 100)
        with refuses(DataError, "truncated"):
            list(read_records(RecordRange(str(path), 0, 0, 100), Rejects("examples", NO_LIMIT)))


@pytest.mark.parametrize("beginning", [b"", b"PAR1", b"1\t2\tquery\tpassage", bytes(16)])
def test_other_files_are_not_tfrecord(beginning):
    assert not is_tfrecord(beginning)


_NAMES = ("query_ids", "doc_ids", "label")
_Field = descriptor_pb2.FieldDescriptorProto


def _example_class(packed: bool) -> Any:
    """tf.train.Example, from its published definition."""
    file = descriptor_pb2.FileDescriptorProto(
        name="example.proto", package="tensorflow", syntax="proto3"
    )

    def message(name: str, **fields: tuple[int, int, int, str]) -> Any:
        made = file.message_type.add(name=name)
        for field, (number, kind, label, type_name) in fields.items():
            made.field.add(
                name=field, number=number, type=kind, label=label, type_name=type_name or None
            )
        return made

    one, many = _Field.LABEL_OPTIONAL, _Field.LABEL_REPEATED
    message("BytesList", value=(1, _Field.TYPE_BYTES, many, ""))
    message("FloatList", value=(1, _Field.TYPE_FLOAT, many, ""))
    message("Int64List", value=(1, _Field.TYPE_INT64, many, "")).field[0].options.packed = packed
    feature = message(
        "Feature",
        bytes_list=(1, _Field.TYPE_MESSAGE, one, ".tensorflow.BytesList"),
        float_list=(2, _Field.TYPE_MESSAGE, one, ".tensorflow.FloatList"),
        int64_list=(3, _Field.TYPE_MESSAGE, one, ".tensorflow.Int64List"),
    )
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = message(
        "Features", feature=(1, _Field.TYPE_MESSAGE, many, ".tensorflow.Features.FeatureEntry")
    )
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_Field.TYPE_STRING, label=one)
    entry.field.add(
        name="value", number=2, type=_Field.TYPE_MESSAGE, label=one, type_name=".tensorflow.Feature"
    )
    message("Example", features=(1, _Field.TYPE_MESSAGE, one, ".tensorflow.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


EXAMPLE, _UNPACKED = _example_class(True), _example_class(False)


def _message(values: dict[str, list[int]], kind: Any = EXAMPLE) -> Any:
    example = kind()
    for name, numbers in values.items():
        example.features.feature[name].int64_list.value.extend(numbers)
        example.features.feature[name].int64_list.SetInParent()
    return example


def _columns(examples: list[dict[str, list[int]]]) -> dict[str, Any]:
    return {
        name: (
            np.array([number for example in examples for number in example[name]], np.int64),
            np.array([len(example[name]) for example in examples], np.int64),
        )
        for name in examples[0]
    }


_numbers = st.integers(0, 30_521) | st.sampled_from(
    [0, 127, 128, 16_383, 16_384, 2**21 - 1, 2**21, 2**63 - 1]
)
_examples = st.lists(
    st.fixed_dictionaries(dict.fromkeys(_NAMES, st.lists(_numbers, max_size=150))),
    min_size=1,
    max_size=5,
)


@settings(max_examples=30, deadline=None)
@given(_examples)
def test_messages_are_those_of_protobuf(examples):
    written = list(encode(_columns(examples)))
    assert written == [
        _message(example).SerializeToString(deterministic=True) for example in examples
    ]


@settings(max_examples=30, deadline=None)
@given(_examples, st.randoms())
def test_messages_of_protobuf_are_read(examples, random):
    """The order of features in a message is not defined, and integers may be packed or not."""
    messages = [
        _message(
            dict(random.sample(sorted(example.items()), len(example))),
            random.choice([EXAMPLE, _UNPACKED]),
        )
        for example in examples
    ]
    features = decode([message.SerializeToString() for message in messages])
    assert features.keys() == {*_NAMES}
    for name, (values, counts) in _columns(examples).items():
        np.testing.assert_array_equal(features[name][0], values)
        np.testing.assert_array_equal(features[name][1], counts)


def _with(**kinds: Any) -> bytes:
    example = _message({"label": [1]})
    for kind, values in kinds.items():
        getattr(example.features.feature["other"], kind).value.extend(values)
    content: bytes = example.SerializeToString()
    return content


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (_with(float_list=[1.5]), "integers"),
        (_with(bytes_list=[b"x"]), "integers"),
        (b"\x0a\x10\x0a\x0e\x0a\x05label\x12\x05\x1a\x03\x0a\x01\x80", "tf.train.Example"),
        (_message({"doc_ids": [1]}).SerializeToString(), "feature"),
        (2 * _message({"label": [1]}).SerializeToString(), "'label'"),
        (b"", "features"),
        (b"text", "tf.train.Example"),
    ],
    ids=["floats", "bytes", "cut integer", "other feature", "twice", "empty", "text"],
)
def test_other_message_is_named(content, reason):
    first = _message(
        {"label": [1], "other": [1]} if b"other" in content else {"label": [1]}
    ).SerializeToString()
    with pytest.raises(ExampleError, match=reason) as raised:
        decode([first, content])
    assert raised.value.row == 1


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(0, 40))
def test_any_damage_is_read_or_refused(damage, at):
    content = bytearray(_message({"label": [1], "doc_ids": [5, 300]}).SerializeToString())
    content[at : at + len(damage)] = damage
    try:
        features = decode([bytes(content)])
    except ExampleError:
        return
    assert all(len(values) == counts.sum() for values, counts in features.values())
