"""Arrays in local files, mapped into memory; read into it where a mount, such as some by FUSE, maps no files."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def map_array(path: str | Path) -> npt.NDArray[Any]:
    """The array of a .npy file."""
    try:
        return np.asanyarray(np.load(path, mmap_mode="r"))
    except OSError:
        return np.asanyarray(np.load(path))


def map_numbers(path: str | Path, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The numbers of a file that holds nothing else."""
    if Path(path).stat().st_size == 0:
        return np.empty(0, dtype)
    try:
        return np.memmap(path, dtype, mode="r")
    except OSError:
        return np.fromfile(path, dtype)
