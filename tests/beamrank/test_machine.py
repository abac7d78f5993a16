"""The description of a machine against what Python and torch find."""

import os
import platform
from dataclasses import replace

import psutil
import pyarrow as pa
import pytest

from beamrank import machine
from beamrank.machine import describe_machine, usable_cores, usable_memory_bytes, usable_threads


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


_TWO = "3:cpuset:/\n2:cpu,cpuacct:/kubepods/pod\n4:memory:/kubepods/pod\n0::/\n"
_HIDDEN = "2:cpuacct,cpu:/docker/123\n4:memory:/docker/123\n0::/docker/123\n"


@pytest.mark.parametrize(
    ("groups", "files", "cores", "mebibytes"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/b/memory.max": "max"}, 64, None),
        ("0::/a/b\n", {"a/b/cpu.max": "200000 100000", "a/cpu.max": "max 100000"}, 2, None),
        ("0::/a/b\n", {"a/cpu.max": "150000 100000", "memory.max": f"{7 << 20}"}, 2, 7),
        ("0::/\n", {"cpu.max": "20000 100000", "memory.max": f"{5 << 20}"}, 1, 5),
        (
            "0::/a/b\n",
            {"a/b/memory.max": f"{9 << 20}", "a/memory.max": f"{8 << 20}", "memory.max": "max"},
            64,
            8,
        ),
        ("0::/a\n", {"b/cpu.max": "100000 100000", "b/memory.max": f"{1 << 20}"}, 64, None),
        (
            _TWO,
            {
                "cpu/kubepods/pod/cpu.cfs_quota_us": "-1",
                "cpu/kubepods/pod/cpu.cfs_period_us": "100000",
                "cpu/kubepods/cpu.cfs_quota_us": "300000",
                "cpu/kubepods/cpu.cfs_period_us": "50000",
                "memory/kubepods/pod/memory.limit_in_bytes": f"{6 << 20}",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
            6,
            6,
        ),
        (
            _HIDDEN,
            {
                "cpu/cpu.cfs_quota_us": "100000",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": f"{3 << 20}",
            },
            1,
            3,
        ),
        ("", {}, 64, None),
    ],
)
def test_cores_and_memory_are_bounded_by_every_control_group(
    tmp_path, monkeypatch, groups, files, cores, mebibytes
):
    """Version 2, version 1, and a container that sees its own group only."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    (tmp_path / "groups").write_text(groups)
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "_CGROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert usable_cores() == cores
    whole = psutil.virtual_memory().total
    assert usable_memory_bytes() == (whole if mebibytes is None else mebibytes << 20)
