"""The machine that figures were measured on."""

import os
import platform
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from models.lucene.jvm import java_home
from models.scoring.engine import usable_cores

_LIBRARIES = (
    *("beamrank", "apache-beam", "pyserini", "pyjnius", "torch", "transformers", "sentence-transformers"),
    *("tokenizers", "numpy", "pyarrow", "ir_measures"),
)
_CPU_EXTENSIONS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve", "bf16")


def describe_machine() -> dict[str, Any]:
    """The processor, memory, accelerator, system and versions."""
    return {
        "cpu": _cpu_model(),
        "cpu_extensions": [name for name in _CPU_EXTENSIONS if name in _cpu_flags()],
        "cores": usable_cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpu": _gpu(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": java_home().version,
        "libraries": {name: version(name) for name in _LIBRARIES},
    }


def load_average() -> float:
    """The load of the last minute: figures of a busy machine are noise."""
    return round(os.getloadavg()[0], 2)


def _cpu_model() -> str:
    return next(_cpu_info("model name"), platform.processor() or platform.machine())


def _cpu_flags() -> set[str]:
    return set(next(_cpu_info("flags|Features"), "").split())


def _cpu_info(keys: str) -> Iterator[str]:
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    return (match.group(1).strip() for match in re.finditer(rf"^(?:{keys})\s*:(.*)$", text, re.MULTILINE))


def _gpu() -> str | None:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None
