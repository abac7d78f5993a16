"""The same bytes from every runner and with any number of threads, and what may follow `--`."""

import math
import os
from pathlib import Path

import pytest

from beamrank import machine
from beamrank.errors import ConfigError
from models.lucene.jvm import heap_bytes
from pipelines.runners.options import Runner, beam_options, new_pipeline, shuffle_room
from tests.support.processes import TWO_PROCESSES, beamrank, without_progress
from tests.support.runs import assert_same_bytes, parts, run_bytes, run_here, undisturbed_run


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.parametrize(
    "arguments",
    [TWO_PROCESSES, ("--runner", "embed")],
    ids=["multi_processing", "embedded job server"],
)
def test_runners_write_the_same_bytes(config_path, tmp_path, arguments):
    expected = undisturbed_run(config_path)
    done = beamrank("run", config_path, "--output", tmp_path / "out", *arguments)
    assert done.returncode == 0, done.stderr
    assert len(run_bytes(expected)) == 3
    assert all(run_bytes(expected).values())
    assert_same_bytes(tmp_path / "out", expected)
    assert len(parts(expected)) == 4 * 4
    # Workers have nothing to say where nothing is wrong.
    words = [
        line.split()[0].partition("-")[0].rstrip(":") for line in without_progress(done.stderr)
    ]
    assert words == ["retrieve", "tokenize", "mono", "duo", *["wrote"] * 3, "no", "duo", "to"]


@pytest.mark.slow
@pytest.mark.jvm
def test_threads_give_the_same_bytes(config_path, tmp_path):
    run_here(config_path, tmp_path / "out", ["threads=3"])
    assert_same_bytes(tmp_path / "out", undisturbed_run(config_path))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--no_such_flag=1"], "'--no_such_flag=1'"),
        (["--direct_num_worker=2"], "--direct_num_workers"),
        (["word"], "'word'"),
        (["--runner=DirectRunner"], "before `--`"),
        (["--runner", "DirectRunner"], "before `--`"),
        (["--direct_running_mode=quickly"], "quickly"),
        (["--direct_num_workers=two"], "two"),
        (["--direct_num_workers=-1"], "--direct_num_workers is -1"),
    ],
)
def test_beam_flags_that_are_wrong_are_refused(flags, message):
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        beam_options(Runner.LOCAL, flags)


def test_shuffle_room_of_flink_grows_with_its_parallelism():
    one = shuffle_room(Runner.FLINK)
    # Of the 100 messages of 10 MB after which a bundle hangs.
    assert one < 1000 << 20
    assert shuffle_room(Runner.FLINK, ["--parallelism=4"]) == 4 * one
    assert (
        shuffle_room(Runner.LOCAL)
        < shuffle_room(Runner.SPARK)
        == shuffle_room(Runner.DATAFLOW)
        == math.inf
    )


def test_shuffle_and_java_fit_into_a_container(tmp_path, monkeypatch):
    (tmp_path / "groups").write_text("0::/pod\n")
    (tmp_path / "memory.max").write_text(f"{1 << 30}\n")
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "_CGROUPS", tmp_path)
    monkeypatch.delenv("BEAMRANK_JAVA_HEAP", raising=False)
    assert heap_bytes() == (1 << 30) // 4
    # FnApiRunner keeps ten times what it shuffles.
    assert shuffle_room(Runner.LOCAL) * 10 <= (1 << 30) // 2


def test_workers_are_one_for_each_core_of_a_container(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)))
    monkeypatch.setattr(machine, "_GROUPS", Path("/nowhere"))
    flags = ["--direct_running_mode=multi_processing", "--direct_num_workers=0"]
    options = new_pipeline(Runner.LOCAL, flags).options.get_all_options()
    assert options["direct_num_workers"] == 5


def test_beam_flags_reach_beam():
    options = beam_options(Runner.EMBED, ["--direct_num_workers=3"]).get_all_options(
        drop_default=True
    )
    assert (options["direct_num_workers"], options["runner"], options["job_endpoint"]) == (
        3,
        "PortableRunner",
        "embed",
    )
