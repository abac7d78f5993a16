"""Arrays in files: mapped, or read where files cannot be mapped."""

import errno
import os
from typing import Any

import numpy as np
import pytest

from beamrank.join.doc_hashes import NeededDocs
from beamrank.storage.local_files import map_array, map_numbers


@pytest.fixture(params=["mapped", "read"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    """A mount that maps files, and one that does not."""

    def mmap(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    if request.param == "read":
        monkeypatch.setattr("mmap.mmap", mmap)
    return np.memmap if request.param == "mapped" else np.ndarray


def test_arrays_are_mapped_where_that_can_be_done(tmp_path, kind):
    np.save(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
    np.arange(4, dtype="<u4").tofile(tmp_path / "a.bin")
    (tmp_path / "empty.bin").touch()
    array, numbers = map_array(tmp_path / "a.npy"), map_numbers(tmp_path / "a.bin", "<u4")
    assert (type(array), type(numbers)) == (kind, kind)
    assert (array.tolist(), numbers.tolist()) == ([[0, 1, 2], [3, 4, 5]], [0, 1, 2, 3])
    assert len(map_numbers(tmp_path / "empty.bin", "<u4")) == 0
    needed = NeededDocs.collect([(7, ["a", "b"])])
    assert NeededDocs.open(needed.publish(str(tmp_path))).hashes.tolist() == needed.hashes.tolist()
    for read in (map_array, lambda path: map_numbers(path, "<u4")):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "none")
