"""The machine and the versions of a process: what its results depend on beside its inputs."""

import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

LIBRARIES = (
    *("beamrank", "apache-beam", "pyserini", "torch", "openvino", "transformers", "tokenizers"),
    *("numpy", "pyarrow", "ir_measures"),
)


@dataclass(frozen=True)
class Machine:
    """A machine, its Python and its libraries.

    Attributes:
        processor: its model.
        cores: those that the process may use.
        memory_gib: of the whole machine.
        gpus: the models of the NVIDIA GPUs.
        system: the operating system.
        python: its version.
        libraries: the versions of `LIBRARIES` that are installed.
    """

    processor: str
    cores: int
    memory_gib: float
    gpus: tuple[str, ...]
    system: str
    python: str
    libraries: Mapping[str, str]


@cache
def describe_machine() -> Machine:
    """This machine. Imports no library to find its version, and no torch to find a GPU."""
    return Machine(
        processor=next(cpu_info("model name"), platform.processor() or platform.machine()),
        cores=usable_cores(),
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        gpus=tuple(_gpus(Path("/proc/driver/nvidia/gpus"))),
        system=platform.platform(),
        python=platform.python_version(),
        libraries=dict(_versions()),
    )


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_info(keys: str) -> Iterator[str]:
    """The values in `/proc/cpuinfo` whose key matches a regular expression; none on other systems than Linux."""
    path = Path("/proc/cpuinfo")
    return _values(keys, path.read_text()) if path.exists() else iter(())


def _gpus(folder: Path) -> Iterator[str]:
    """The models that NVIDIA's driver lists, one folder for each GPU."""
    for path in sorted(folder.glob("*/information")):
        yield from _values("Model", path.read_text())


def _values(keys: str, text: str) -> Iterator[str]:
    return (found[1].strip() for found in re.finditer(rf"^(?:{keys})\s*:(.*)$", text, re.MULTILINE))


def _versions() -> Iterator[tuple[str, str]]:
    for name in LIBRARIES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue
