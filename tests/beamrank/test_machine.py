"""The description of a machine against what Python and torch find."""

import os
import platform
from dataclasses import replace

import pyarrow as pa

from beamrank import machine
from beamrank.machine import describe_machine, usable_cores, usable_threads


def test_machine_is_this_one():
    found = describe_machine()
    assert found.processor
    assert found.cores == len(os.sched_getaffinity(0))
    assert found.memory_gib > 0
    assert found.python == platform.python_version()
    assert found.libraries["pyarrow"] == pa.__version__
    assert {"beamrank", "torch", "apache-beam", "transformers"} <= found.libraries.keys()


def test_gpus_are_those_that_the_driver_lists(tmp_path):
    for number, model in enumerate(("NVIDIA H100 80GB HBM3", "NVIDIA L4")):
        (tmp_path / f"0000:0{number}:00.0").mkdir()
        (tmp_path / f"0000:0{number}:00.0" / "information").write_text(
            f"Model: \t\t {model}\nIRQ:   \t\t 24{number}\nGPU UUID: \t GPU-{number}\n"
        )
    assert list(machine._gpus(tmp_path)) == ["NVIDIA H100 80GB HBM3", "NVIDIA L4"]
    assert list(machine._gpus(tmp_path / "none")) == []


def test_arithmetic_of_a_backend_has_the_versions_that_it_computes_with():
    machine = replace(
        describe_machine(), libraries={"torch": "2.13.0", "numpy": "2.4", "openvino": "2026.4.1"}
    )
    assert "openvino" not in machine.arithmetic("torch")
    assert machine.arithmetic("openvino")["openvino"] == "2026.4.1"


def test_threads_are_bounded_by_the_cores():
    cores = usable_cores()
    assert [usable_threads(wanted) for wanted in (None, 1, cores, 10**9)] == [
        cores,
        1,
        cores,
        cores,
    ]
