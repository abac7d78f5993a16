"""The machine, the processes and the versions that results depend on."""

import hashlib
import math
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from beamrank.system import system

LIBRARIES = (
    *("beamrank", "apache-beam", "pyserini", "torch", "openvino", "transformers", "tokenizers"),
    *("numpy", "pyarrow", "ir_measures"),
)
# Beside the backend itself.
_COMPUTING = ("torch", "transformers", "numpy")
_INSTRUCTION_SETS = re.compile(r"\b(?:avx|amx|fma|sse|f16c|asimd|sve|sme(?!p)|bf16|i8mm)\w*")
# Each makes a library compute with fewer instructions, or in a different order.
_LIMITS = (
    *(
        "ATEN_CPU_CAPABILITY",
        "ONEDNN_MAX_CPU_ISA",
        "DNNL_MAX_CPU_ISA",
        "ONEDNN_DEFAULT_FPMATH_MODE",
    ),
    *("MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR"),
)
_GROUPS, _CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Machine:
    """A machine, its Python and the versions of its libraries.

    `instructions` are what beside the processor's model decides how libraries compute on it:
    family, model, instruction sets, and the settings that limit these. `cores` are the cores that
    the process may use.
    """

    processor: str
    instructions: str
    cores: int
    memory_gib: float
    gpus: tuple[str, ...]
    system: str
    python: str
    libraries: Mapping[str, str]

    def arithmetic(self, backend: str) -> dict[str, str]:
        """The facts that decide the bits of a backend's scores here, beside their inputs, model and
        dtype, on a CPU.
        """
        versions = {
            name: self.libraries[name] for name in (*_COMPUTING, backend) if name in self.libraries
        }
        library = self.system.rpartition("-with-")[2]
        return {
            "processor": self.processor,
            "instructions": self.instructions,
            "C library": library,
            **versions,
        }


@cache
def describe_machine() -> Machine:
    """This machine. Imports no library to find its version, and no torch to find a GPU."""
    return Machine(
        processor=next(cpu_info("model name"), platform.processor() or platform.machine()),
        instructions=_instructions(),
        cores=usable_cores(),
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        gpus=tuple(_gpus(Path("/proc/driver/nvidia/gpus"))),
        system=platform.platform(),
        python=platform.python_version(),
        libraries=dict(_versions()),
    )


def usable_cores() -> int:
    """The cores that this process may use: the cores it is bound to, and no more than its
    container's quota.
    """
    bound = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if bound else os.cpu_count() or 1
    quotas = [
        *_cgroup_limits("cpu", "cpu.max"),
        *_cgroup_limits("cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us"),
    ]
    # Version 1 writes -1 where there is no quota.
    return min([cores, *(math.ceil(quota / period) for quota, period in quotas if quota > 0)])


def usable_memory_bytes() -> int:
    """The memory that this process may use: the machine's, or its container's."""
    limits = [
        *_cgroup_limits("memory", "memory.max"),
        *_cgroup_limits("memory", "memory.limit_in_bytes"),
    ]
    return min([int(psutil.virtual_memory().total), *(limit for (limit,) in limits)])


def _cgroup_limits(controller: str, *names: str) -> Iterator[list[int]]:
    """The numbers in these files of this process's control group, and of every group around it.

    In a container the groups around it may be hidden: then the root of the mount is its own.
    """
    for line in _GROUPS.read_text().splitlines() if _GROUPS.exists() else ():
        version, controllers, path = line.split(":", 2)
        if version == "0" or controller in controllers.split(","):
            root = _CGROUPS if version == "0" else _CGROUPS / controller
            group = root / path.lstrip("/")
            for level in (group, *group.parents[: len(group.parts) - len(root.parts)]):
                # A group without a limit has no such file, or `max` in it.
                with suppress(OSError, ValueError):
                    texts = [(level / name).read_text() for name in names]
                    yield [int(text) for text in " ".join(texts).split()]


def usable_threads(threads: int | None) -> int:
    """How many threads a process computes with: as many as set, one for each usable core at most
    and by default.
    """
    return min(threads or usable_cores(), usable_cores())


def cpu_info(keys: str) -> Iterator[str]:
    """The values in `/proc/cpuinfo` whose key matches a regular expression; none on other systems
    than Linux.
    """
    path = Path("/proc/cpuinfo")
    return _values(keys, path.read_text()) if path.exists() else iter(())


def _instructions() -> str:
    kind = [next(cpu_info(keys), "") for keys in ("cpu family|CPU implementer", "model|CPU part")]
    sets = _INSTRUCTION_SETS.findall(next(cpu_info("flags|Features"), ""))
    limits = [f"{name}={os.environ[name]}" for name in _LIMITS if name in os.environ]
    return " ".join([*kind, *sorted(sets), *limits])


def _gpus(folder: Path) -> Iterator[str]:
    """The models that NVIDIA's driver lists, one folder for each GPU."""
    for path in sorted(folder.glob("*/information")):
        yield from _values("Model", path.read_text())


def _values(keys: str, text: str) -> Iterator[str]:
    return (match[1].strip() for match in re.finditer(rf"^(?:{keys})\s*:(.*)$", text, re.MULTILINE))


def _versions() -> Iterator[tuple[str, str]]:
    for name in LIBRARIES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


_MACHINE_DIGITS = 8


def machine_id() -> str:
    """Names a host since it was last started, and a container on it: its processes see the locks
    of each other.
    """
    return _machine_id(system.gethostname())


@cache
def _machine_id(host: str) -> str:
    parts = [host]
    try:
        container = system.readlink("/proc/self/ns/pid")
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            parts += [file.read().strip(), container]
    except OSError:
        # Not Linux.
        parts.append("")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_MACHINE_DIGITS]


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Sets environment variables, and puts them back as they were."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


DEVICE_PATTERN = r"auto|cpu|cuda(:[0-9]{1,3})?"
DEVICE_NAMES = "auto, cpu, cuda, or cuda:N for one GPU of several"
WORKER_NUMBER = "BEAMRANK_WORKER_NUMBER"
"""The environment variable with the number of a worker process on its machine."""


def number_worker(worker_id: str) -> None:
    """Gives this process the number at the end of Beam's name for it, such as worker_3."""
    if match := re.search(r"\d+$", worker_id):
        os.environ[WORKER_NUMBER] = match[0]


def is_cuda(device: str) -> bool:
    """Whether a device is CUDA, numbered or not."""
    return device.startswith("cuda")
