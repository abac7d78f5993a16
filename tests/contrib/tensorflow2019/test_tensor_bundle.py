"""The index and data files that TensorFlow's `Saver` wrote, whole and damaged."""

import struct
import subprocess
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from beamrank.errors import PreflightError
from contrib.tensorflow2019.tensor_bundle import TensorBundle
from tests import ROOT
from tests.support.models import tensorflow1
from tests.support.models.tensorflow1 import LONG_NAMES, Variables, copy_checkpoint, known_variables
from tests.support.services import environments

INDEX = "model.ckpt-7.index"
DATA = "model.ckpt-7.data-00002-of-00003"
# The block of entries begins the index; a byte for its compression and its checksum follow.
_BLOCK_BYTES = 4182


def _check(bundle: TensorBundle, known: Variables) -> None:
    slots = {f"{name}/adam_{slot}" for name in known for slot in "mv"}
    assert bundle.entries.keys() == known.keys() | slots | {"global_step"}
    for name, values in known.items():
        assert bundle.entries[name].shape == values.shape
        np.testing.assert_array_equal(bundle.read(name), values)
        np.testing.assert_array_equal(bundle.read(f"{name}/adam_v"), values * np.float32(2))
    assert bundle.read("global_step") == 7
    assert [Path(path).name for path in bundle.files] == [
        INDEX,
        *(f"model.ckpt-7.data-0000{shard}-of-00003" for shard in range(3)),
    ]


def test_bundle_reads_files_that_tensorflow_wrote():
    _check(TensorBundle(str(tensorflow1.FOLDER / "model.ckpt-7")), known_variables())


@pytest.mark.slow
def test_bundle_written_by_tensorflow_now_is_read(tmp_path):
    command = [
        str(environments.tensorflow_python()),
        "-m",
        tensorflow1.__name__,
        str(tmp_path),
        "3",
    ]
    environ = environments.environ(PYTHONPATH=str(ROOT))
    written = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environ)
    assert written.returncode == 0, written.stderr
    _check(TensorBundle(str(tmp_path / "model.ckpt-7")), known_variables(3))
    many = TensorBundle(str(tmp_path / "long"))
    assert Path(many.files[0]).stat().st_size > 2 * 2**18
    assert many.entries.keys() == set(LONG_NAMES)
    assert all((many.read(name) == number).all() for number, name in enumerate(LONG_NAMES))
    with pytest.raises(PreflightError, match="slices"):
        TensorBundle(str(tmp_path / "sliced"))


def _patch(path: Path, at: int, change: bytes) -> None:
    """Changes some bytes in their places; `at` counts from the end where it is negative."""
    content = bytearray(path.read_bytes())
    start = at % len(content)
    content[start : start + len(change)] = change
    path.write_bytes(content)


def _rewrite(path: Path, at: int, change: bytes) -> None:
    """Changes the block of entries, and its checksum with it."""
    _patch(path, at, change)
    crc = google_crc32c.value(path.read_bytes()[: _BLOCK_BYTES + 1])
    _patch(
        path,
        _BLOCK_BYTES + 1,
        struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF),
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: _patch(folder / DATA, 10_000, b"\x00\x01\x02\x03"), DATA),
        (lambda folder: (folder / DATA).write_bytes(b"short"), DATA),
        (lambda folder: (folder / DATA).unlink(), DATA),
        (lambda folder: (folder / INDEX).unlink(), INDEX),
        (lambda folder: _patch(folder / INDEX, 100, b"\xff"), rf"{INDEX} .*4183"),
        (lambda folder: _patch(folder / INDEX, -45, b"\xff"), INDEX),
        (lambda folder: (folder / INDEX).write_bytes(b"not a table"), INDEX),
        (lambda folder: (folder / INDEX).write_bytes(b""), INDEX),
    ],
)
def test_damage_is_found(damage, message, tmp_path):
    prefix = copy_checkpoint(tmp_path)
    damage(tmp_path)
    with pytest.raises(PreflightError, match=message):
        _read_all(prefix)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"\x08\x03\x1a\x02\x08\x01", b"\x08\x03\x10\x01\x18\x01", "big-endian"),
        (b"\x08\x01\x12", b"\x08\x0e\x12", "dtype .*14"),
        (b"\x28\x20\x35", b"\x3a\x00\x35", "slices"),
        (b"\x08\x00\x00\x00\x00", b"\x08\x00\x00\x00\x01", f"{INDEX} .*compress"),
        (b"\x18\x02\x28\x20", b"\x18\x07\x28\x20", rf"{INDEX} .* 7, .*3"),
    ],
)
def test_unsupported_bundle_is_refused_by_name(old, new, message, tmp_path):
    prefix = copy_checkpoint(tmp_path)
    _rewrite(tmp_path / INDEX, (tmp_path / INDEX).read_bytes().index(old), new)
    with pytest.raises(PreflightError, match=message):
        _read_all(prefix)


def test_data_file_removed_while_reading_is_named(tmp_path):
    bundle = TensorBundle(copy_checkpoint(tmp_path))
    for path in tmp_path.glob("*.data-*"):
        path.unlink()
    with pytest.raises(PreflightError, match="of-00003: "):
        bundle.read("global_step")


def _read_all(prefix: str) -> None:
    bundle = TensorBundle(prefix)
    for name in bundle.entries:
        bundle.read(name)
