"""The machine that figures were measured on."""

import os
from importlib.metadata import version
from typing import Any

from beamrank.machine import cpu_info, describe_machine
from models.lucene.jvm import java_home

_COMPARED = ("pyjnius", "sentence-transformers")
_CPU_EXTENSIONS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_tile",
    "asimd",
    "sve",
    "bf16",
)
# Those that decide the speed of a product, the fastest first.
_FASTEST = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")


def measured_on() -> dict[str, Any]:
    """The processor, memory, accelerator, system and versions."""
    machine = describe_machine()
    flags = next(cpu_info("flags|Features"), "").split()
    return {
        "cpu": machine.processor,
        "cpu_extensions": [name for name in _CPU_EXTENSIONS if name in flags],
        "cores": machine.cores,
        "memory_gib": machine.memory_gib,
        "gpu": ", ".join(machine.gpus) or None,
        "system": machine.system,
        "python": machine.python,
        "java": java_home().version,
        "libraries": {**machine.libraries, **{name: version(name) for name in _COMPARED}},
    }


def processor_kind() -> str:
    """The maker of this processor, and its fastest instructions for products, as Linux names
    them: makers differ in speed with the same ones.
    """
    flags = next(cpu_info("flags"), "").split()
    fastest = next((name for name in _FASTEST if name in flags), "other")
    return f"{next(cpu_info('vendor_id'), 'unknown')} {fastest}"


def load_average() -> float:
    """The load of the last minute: figures of a busy machine are noise."""
    return round(os.getloadavg()[0], 2)
