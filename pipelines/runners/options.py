"""Runners: the Beam options that each is tested with, and the check of the flags after `--`.

Beam is imported inside functions: the help of commands names the runners.
"""

import argparse
import contextlib
import difflib
import io
import math
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

from beamrank.config.run import JobConfig
from beamrank.errors import ConfigError
from beamrank.machine import usable_cores, usable_memory_bytes
from beamrank.notes import SILENT, Progress
from pipelines.runners.workers import WORKER_MODULE, share_pools

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions


class Runner(StrEnum):
    """The runner of Beam jobs."""

    LOCAL = "local"
    EMBED = "embed"
    PRISM = "prism"
    SPARK = "spark"
    FLINK = "flink"
    DATAFLOW = "dataflow"


_Config = TypeVar("_Config", bound=JobConfig)

# A year: Beam's client applies this timeout to a whole job, and would give up a job of Prism after
# 300 seconds.
_SERVED = [
    "--runner=PortableRunner",
    "--environment_type=LOOPBACK",
    "--job_server_timeout=31536000",
]
_PINNED = {
    # Not DirectRunner, which tries to download Prism, and chooses a runner by the pipeline.
    Runner.LOCAL: ["--runner=FnApiRunner"],
    Runner.EMBED: [
        "--runner=PortableRunner",
        "--job_endpoint=embed",
        "--environment_type=LOOPBACK",
    ],
    Runner.PRISM: _SERVED,
    Runner.SPARK: [*_SERVED, "--spark_master_url=local[*]"],
    Runner.FLINK: [*_SERVED, "--flink_master=[local]"],
    # pipelines/runners/dataflow.py adds the options of each stage.
    Runner.DATAFLOW: ["--runner=DataflowRunner"],
}
# These keep shuffled data in the memory of this machine, FnApiRunner in 6 to 10 times its size.
IN_MEMORY = frozenset({Runner.LOCAL, Runner.EMBED, Runner.PRISM})
_IN_MEMORY_FACTOR, _IN_MEMORY_SHARE = 10, 0.4
# Flink makes one bundle of a parallel part of a stage, and reads what it sends only once it is
# complete: after 100 messages of 10 MB both would wait for each other forever.
_FLINK_BUNDLE_BYTES = 512 << 20


def beam_options(runner: Runner, flags: Sequence[str]) -> "PipelineOptions":
    """The pinned options of a runner with the user's Beam flags, which are checked."""
    from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions

    if flags:
        _check_flags(flags, PipelineOptions)
    options = PipelineOptions([*_PINNED[runner], *flags])
    workers = options.view_as(DirectOptions).direct_num_workers
    if workers < 0:
        raise ConfigError(
            f"--direct_num_workers is {workers}: give the number of workers, or 0 for one a core"
        )
    return options


def shuffle_room(runner: Runner, flags: Sequence[str] = ()) -> float:
    """How many bytes one job can send to its shards; infinity where no limit is known."""
    if runner in IN_MEMORY:
        free_bytes = min(psutil.virtual_memory().available, usable_memory_bytes())
        return free_bytes * _IN_MEMORY_SHARE / _IN_MEMORY_FACTOR
    if runner is Runner.FLINK:
        from apache_beam.options.pipeline_options import FlinkRunnerOptions

        return _FLINK_BUNDLE_BYTES * max(
            1, beam_options(runner, flags).view_as(FlinkRunnerOptions).parallelism
        )
    return math.inf


def resolve_kernel(settings: _Config, runner: Runner, flags: Sequence[str]) -> _Config:
    """The kernel `auto` is torch's for workers on other machines, which may have no compiled
    one.
    """
    from apache_beam.options.pipeline_options import PortableOptions

    environment = beam_options(runner, flags).view_as(PortableOptions).environment_type
    here = runner is not Runner.DATAFLOW and environment in (None, "LOOPBACK")
    return (
        settings
        if here or settings.kernel != "auto"
        else settings.model_copy(update={"kernel": "torch"})
    )


def new_pipeline(runner: Runner, flags: Sequence[str]) -> "beam.Pipeline":
    """An empty pipeline of a runner with the user's Beam flags."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import DirectOptions

    options = beam_options(runner, flags)
    if runner is not Runner.LOCAL:
        _serve(runner, flags, options)
    elif options.view_as(DirectOptions).direct_running_mode == "multi_processing":
        return _in_processes(options)
    return beam.Pipeline(options=options)


def _serve(runner: Runner, flags: Sequence[str], options: "PipelineOptions") -> None:
    """Gives options the address of the engine's job server, which is started where none runs."""
    from apache_beam.options.pipeline_options import PortableOptions

    from pipelines.runners.job_server import job_endpoint

    server = server_command(runner, flags)
    if runner in (Runner.SPARK, Runner.FLINK):
        share_pools()
    if server is not None:
        options.view_as(PortableOptions).job_endpoint = job_endpoint(runner.value, server)


def _in_processes(options: "PipelineOptions") -> "beam.Pipeline":
    """A pipeline of the local runner with worker processes."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import DirectOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from apache_beam.transforms.environments import SubprocessSDKEnvironment

    direct = options.view_as(DirectOptions)
    # As Beam does in this mode, except for the command: Beam does not quote the interpreter's path,
    # and its worker logs to this standard error.
    direct.direct_running_mode = "in_memory"
    # Beam would count the cores of the machine, not of the container.
    direct.direct_num_workers = direct.direct_num_workers or usable_cores()
    worker = SubprocessSDKEnvironment.from_command_string(
        f"exec {shlex.quote(sys.executable)} -m {WORKER_MODULE} local"
    )
    return beam.Pipeline(runner=FnApiRunner(default_environment=worker), options=options)


def check_server(runner: Runner, flags: Sequence[str], progress: Progress) -> None:
    """Raises TemporaryError where a server that the flags name does not answer, and PreflightError
    where the program of one is missing.
    """
    if runner in (Runner.LOCAL, Runner.DATAFLOW):
        return
    from pipelines.runners.job_server import check_answers

    check_answers(runner.value, beam_options(runner, flags))
    server_command(runner, flags, progress)


def server_command(
    runner: Runner, flags: Sequence[str], progress: Progress = SILENT
) -> Callable[[int, str], list[str]] | None:
    """The command of an engine's job server, from its port and a folder for temporary files.

    None if the user names a running one, or Beam has it. To download or build a program may
    take minutes.
    """
    from apache_beam.options.pipeline_options import PortableOptions

    options = beam_options(runner, flags)
    if options.view_as(PortableOptions).job_endpoint:
        return None
    from pipelines.runners.job_server import java_command, prism_command

    return (
        prism_command(options, progress)
        if runner is Runner.PRISM
        else java_command(runner.value, options, progress)
    )


def _check_flags(flags: Sequence[str], root: Any) -> None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for options in dict.fromkeys(_subclasses(root)):
        # Options that other installed libraries define exist on this machine only.
        if options.__module__.startswith("apache_beam."):
            options._add_argparse_args(parser)
    try:
        with contextlib.redirect_stderr(io.StringIO()) as complaint:
            _, unknown = parser.parse_known_args(list(flags))
    except argparse.ArgumentError as error:
        raise ConfigError(f"invalid Beam flag after `--`: {error}") from error
    except SystemExit as error:
        raise ConfigError(
            f"invalid Beam flag after `--`: {complaint.getvalue().strip()}"
        ) from error
    if any(flag.split("=")[0] == "--runner" for flag in flags):
        raise ConfigError(
            "give --runner before `--`: beamrank sets the Beam options that this runner is tested "
            "with"
        )
    if unknown:
        names = [name for action in parser._actions for name in action.option_strings]
        close = difflib.get_close_matches(unknown[0].split("=")[0], names, n=1)
        hint = f": did you mean {close[0]}?" if close else "."
        raise ConfigError(
            f"Beam has no flag {unknown[0]!r}{hint} Only Beam's own flags may follow `--`."
        )


def _subclasses(root: Any) -> Iterator[Any]:
    for subclass in root.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
