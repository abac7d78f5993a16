"""Dataflow: the machines, images and Beam options of a stage's job, the checks before it is
submitted, and its end.

Retrieve and tokenize run on CPU workers whose image has Java; mono and duo on GPU workers whose
image has none.
"""

import importlib.metadata
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from beamrank.commit.listing import RUNS
from beamrank.commit.plan import Plan
from beamrank.commit.stage import StageRecord
from beamrank.config.run import JobConfig, RunConfig
from beamrank.errors import BeamrankError, ConfigError, DataError, PreflightError
from beamrank.machine import is_cuda
from beamrank.storage import files as storage
from beamrank.storage.documents import SHORT, digest
from beamrank.version import __version__
from models.scoring.backends.registry import Device, default_token_budget, resolve_backend
from models.stages.base import Stage, Worker
from models.stages.core import open_stage, steps_of, worker_paths
from pipelines.runners.watchdog import explain, wait_with_stall

# The vCPUs of every pinned machine type; the launcher's own cores do not matter.
WORKER_THREADS = 4
# Each worker has a GPU: autoscaling must not surprise on the bill.
_MAX_WORKERS = 8
_ONE_PROCESS = "no_use_multiple_sdk_containers"
_PROCESS_A_CORE = "use_multiple_sdk_containers"
_ACCELERATOR_OPTION = "worker_accelerator="
# Receipts lie in a bucket: listing them costs money and time.
POLL_SECONDS = 10.0

_Config = TypeVar("_Config", bound=JobConfig)


class Workers(NamedTuple):
    """The machines of one job."""

    image: str
    machine_type: str
    disk_size_gb: int
    processes: str
    accelerator: str = ""


_WORKERS = {
    # One process holds the JVM, and Lucene's own threads use the cores. The disk holds the index.
    Worker.JVM: Workers("cpu", "n2-highmem-4", 200, _ONE_PROCESS),
    # Reading and tokenizing a corpus is bound by the interpreter's lock, so every core gets a
    # process.
    Worker.CPU: Workers("cpu", "n2-standard-4", 50, _PROCESS_A_CORE),
    Worker.MODEL: Workers("gpu", "n2-standard-4", 100, _ONE_PROCESS),
}
# One process holds one copy of the model on the GPU; the engine prefetches by itself.
_ON_GPU = Workers(
    "gpu", "g2-standard-4", 100, _ONE_PROCESS, "type:nvidia-l4;count:1;install-nvidia-driver"
)


def settle(settings: _Config) -> tuple[_Config, Device]:
    """Device, dtype and threads of Dataflow's workers, which are other machines than the launcher.

    `auto` is a GPU and float16; on CPU workers it is float32, which every processor computes. The
    backend `auto` is torch, because the processor is not known.
    """
    device = "cuda" if settings.device == "auto" else settings.device
    dtype = (
        settings.dtype if settings.dtype != "auto" else "float16" if is_cuda(device) else "float32"
    )
    backend = resolve_backend(settings.backend)
    update = {
        "threads": settings.threads or WORKER_THREADS,
        "device": device,
        "dtype": dtype,
        "backend": backend,
    }
    return settings.model_copy(update=update), Device(device, dtype, default_token_budget(device))


def check_paths(paths: Iterable[tuple[str, str]]) -> None:
    """Raises PreflightError for a path of the workers, with its key, that only this machine can
    read.
    """
    local = [
        f"{key} ({path})"
        for key, path in paths
        if not storage.is_remote(path) or path.startswith("memory:")
    ]
    if local:
        raise PreflightError(
            f"Dataflow's workers are other machines and cannot reach {', '.join(local)}: copy "
            "them to a bucket and give gs:// URLs. The topics, the qrels and a given run of 64 MB "
            "or less may stay here: the launcher reads them"
        )


def check_flags(
    flags: Sequence[str], stages: Collection[type[Stage]], device: str, wait: bool
) -> None:
    """Makes sure that the jobs of some stages, whose models compute on `device`, can be submitted
    with Beam's flags.

    Raises:
        ConfigError: a flag is missing, or contradicts what a stage is pinned to.
        PreflightError: Google's client libraries are not installed.
    """
    try:
        importlib.metadata.version("google-cloud-dataflow-client")
    except importlib.metadata.PackageNotFoundError as error:
        raise PreflightError(
            "--runner dataflow needs Google's client libraries: install beamrank with its extra, "
            "pip install '.[gcp]'"
        ) from error
    options = PipelineOptions(list(flags)).get_all_options()
    missing = [f"--{name}" for name in ("project", "region", "temp_location") if not options[name]]
    if missing:
        raise ConfigError(
            f"Dataflow needs {', '.join(missing)}: beamrank run ... --runner dataflow -- "
            "--project=PROJECT --region=REGION --temp_location=gs://BUCKET/FOLDER"
        )
    for name in ("temp_location", "staging_location"):
        if options[name] and not options[name].startswith("gs://"):
            raise ConfigError(
                f"--{name} must be a gs:// URL, not {options[name]!r}: Dataflow itself reads "
                "these files"
            )
    for name in ("setup_file", "requirements_file", "extra_packages"):
        if options[name]:
            raise ConfigError(
                f"--{name} would install packages on each worker as it starts, and beamrank's "
                "images hold all that they need: leave it out, or build an image and give "
                "--sdk_container_image"
            )
    if options["sdk_location"] not in ("default", "container"):
        raise ConfigError(
            "--sdk_location is pinned to `container`: the workers' image holds Beam and beamrank"
        )
    if options["resource_hints"]:
        raise ConfigError(
            "--resource_hints turn right fitting on, which excludes the service option that "
            "requests the GPU, and FlexRS: choose machines with --worker_machine_type and "
            "--dataflow_service_options=worker_accelerator=..."
        )
    pools = {_workers(stage, device) for stage in stages}
    for pool in pools:
        other = {_ONE_PROCESS: _PROCESS_A_CORE, _PROCESS_A_CORE: _ONE_PROCESS}[pool.processes]
        if other in (options["experiments"] or []):
            raise ConfigError(
                f"--experiments={other} contradicts {pool.processes}, which this stage is pinned "
                "to (docs/guide/deployment.md explains why): leave it out"
            )
    special = {
        "--sdk_container_image": options["sdk_container_image"],
        "--worker_machine_type": options["machine_type"],
        "--dataflow_service_options=worker_accelerator": _has_accelerator(options),
    }
    if any(special.values()) and len(pools) > 1:
        raise ConfigError(
            f"{', '.join(flag for flag, value in special.items() if value)} cannot be right for "
            "all stages at once, which run on different workers: run one stage at a time, with "
            "--stage"
        )
    if options["template_location"] and (wait or len(stages) > 1):
        raise ConfigError(
            "--template_location writes one job and starts none: give --stage and --no-wait too"
        )
    if options["dry_run"]:
        raise ConfigError(
            "--dry_run leaves nothing to inspect: --template_location=FILE writes the job instead"
        )


def prepare(
    settings: RunConfig, flags: Sequence[str], stage: str | None, wait: bool, has_parts: bool
) -> tuple[RunConfig, Device]:
    """The settings of the workers, after the checks of all that a run, or one stage, needs;
    `has_parts` is whether a job of workers writes parts of runs.
    """
    if not wait and stage is None:
        raise ConfigError(
            "--no-wait submits one stage, as each needs the one before it finished: give --stage "
            "too"
        )
    check_paths(worker_paths(settings))
    settings, scoring = settle(settings)
    of_runs: list[type[Any]] = [Stage] if stage in (None, RUNS) and has_parts else []
    if stage != RUNS or of_runs:
        steps = [kind for step, kind in steps_of(settings).items() if stage in (None, step)]
        jobs = [kind for kind in steps if kind.needs_workers(settings)]
        check_flags(flags, [*jobs, *of_runs], scoring.device, wait)
    return settings, scoring


def _workers(stage: Stage | type[Stage], device: str) -> Workers:
    """The machines of a stage whose model, if it has one, computes on `device`."""
    return _ON_GPU if stage.worker is Worker.MODEL and is_cuda(device) else _WORKERS[stage.worker]


def _has_accelerator(options: dict[str, Any]) -> bool:
    return any(
        option.startswith(_ACCELERATOR_OPTION)
        for option in options["dataflow_service_options"] or []
    )


def job_options(plan: Plan, stage: StageRecord, flags: Sequence[str]) -> PipelineOptions:
    """The Beam options of a stage's job: the pinned ones, then the user's, which take
    precedence.
    """
    opened = None if stage.name == RUNS else open_stage(plan.stages, stage.name)
    workers = (
        _WORKERS[Worker.CPU]
        if opened is None
        else _workers(opened, getattr(opened, "device", "cpu"))
    )
    options = PipelineOptions(list(flags)).get_all_options()
    # A name that is the same for every attempt, as Dataflow refuses a second active job of one; it
    # takes lower-case letters, digits and hyphens only.
    shown = re.sub("[^a-z0-9-]+", "-", stage.name.lower())
    pinned = [
        "--runner=DataflowRunner",
        f"--job_name=beamrank-{shown}-{digest([plan.digest, plan.output, stage.name])[:SHORT]}",
        "--sdk_location=container",
        f"--sdk_container_image={image_url(options['project'], options['region'], workers.image)}",
        f"--worker_machine_type={workers.machine_type}",
        f"--disk_size_gb={workers.disk_size_gb}",
        f"--max_num_workers={max(_MAX_WORKERS, options['num_workers'] or 0)}",
        # A second thread would only take a shard and wait with it: the JVM and the model do one at
        # a time.
        "--number_of_worker_harness_threads=1",
        f"--experiments={workers.processes}",
    ]
    if workers.accelerator and not _has_accelerator(options):
        pinned.append(f"--dataflow_service_options={_ACCELERATOR_OPTION}{workers.accelerator}")
    return PipelineOptions([*pinned, *flags])


def image_url(project: str, region: str, image: str) -> str:
    """The URL of an image that infra/ pushes. It needs the launcher's Python, whose pickles the
    workers read.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    # A project of a domain, example.com:name, is a folder in the registry.
    registry = f"{region}-docker.pkg.dev/{project.replace(':', '/')}"
    return f"{registry}/beamrank/{image}:{__version__}-python{python}"


def template_location(flags: Sequence[str]) -> str | None:
    """The file that jobs are written to instead of being started."""
    location: str | None = (
        PipelineOptions(list(flags)).view_as(GoogleCloudOptions).template_location
    )
    return location


def new_pipeline(plan: Plan, stage: StageRecord, flags: Sequence[str]) -> beam.Pipeline:
    """An empty pipeline for one job of a stage."""
    try:
        return beam.Pipeline(options=job_options(plan, stage, flags))
    except ValueError as error:
        raise ConfigError(
            f"Beam refuses the flags of the Dataflow job of {stage.name}: {error}"
        ) from error


def submit(pipeline: beam.Pipeline, stage: str, note: Callable[[str], None]) -> tuple[Any, str]:
    """Submits the job of a stage; returns Beam's result, and the job's id or the file that it was
    written to.
    """
    options = pipeline.options.view_as(GoogleCloudOptions)
    try:
        result = pipeline.run()
    except Exception as error:
        raise BeamrankError(
            f"Dataflow did not take the job of {stage} ({type(error).__name__}: {error}). If a "
            "job of this name is still active, it is from an earlier attempt: wait for it, or "
            "cancel it"
        ) from error
    if not result.has_job:
        note(f"{stage}: wrote the job to {options.template_location}")
        return result, options.template_location
    job: str = result.job_id()
    place = f"{options.region}/{job}?project={options.project}"
    note(f"{stage}: Dataflow job {job}, https://console.cloud.google.com/dataflow/jobs/{place}")
    return result, job


def wait(
    result: Any, progress: Callable[[], object], stall_seconds: float, warn: Callable[[str], None]
) -> None:
    """Waits for a job; cancels one that stalls, or whose result is refused: workers cost money."""

    def cancel() -> str:
        result.cancel()
        return f"the Dataflow job {result.job_id()} was cancelled"

    try:
        error = wait_with_stall(
            result.wait_until_finish, progress, stall_seconds, cancel, poll_seconds=POLL_SECONDS
        )
    except BeamrankError as error:
        if isinstance(error, DataError):
            cancel()
        raise
    except BaseException:
        warn(
            f"the Dataflow job {result.job_id()} continues without this command, and its finished "
            f"shards are kept. To cancel it: gcloud dataflow jobs cancel {result.job_id()} "
            "--region REGION"
        )
        raise
    if error is not None:
        raise explain(error) from error
