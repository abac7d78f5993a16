"""Dataflow as far as it can be seen from here: what is refused, and the request that would reach
the service.
"""

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
import yaml

from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Receipt
from beamrank.commit.shards import InputPart, ShardTask, cut_rows, cut_shards
from beamrank.config.load import load_config
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, ConfigError, DataError, PreflightError
from beamrank.formats.corpora import FORMATS
from beamrank.formats.schemas import Hints
from beamrank.formats.texts.units import CorpusUnit
from beamrank.join.doc_hashes import NeededList
from beamrank.records import Topic
from beamrank.storage.digested import DigestedFile
from beamrank.storage.documents import sha256
from beamrank.version import __version__
from models.stages.bm25 import RetrieveBm25
from models.stages.core import worker_paths
from models.stages.corpus_scan import CorpusScan, NeededRanges, UnitFile
from models.stages.duo import ScoreDuo
from models.stages.mono import ScoreMono
from models.stages.tokenize import TokenizeDocs
from pipelines.cli import app
from pipelines.console.progress import ConsoleProgress
from pipelines.launcher import Launcher
from pipelines.plan.make_plan import make_plan
from pipelines.runners import dataflow
from pipelines.runners.options import Runner
from tests.support.changed_files import edit_json
from tests.support.models.stages import a_stage
from tests.support.processes import beamrank_here
from tests.support.runs import run_bytes, run_here
from tests.support.services.dataflow import FLAGS, GCP, Service
from tests.support.tiers import slow_but
from transforms.scatter import transform_of
from transforms.shards import SpreadTasks, TaskFile

_IMAGES = r"europe-west4-docker\.pkg\.dev/some-project/beamrank"
_CPU_IMAGE = re.compile(rf"{_IMAGES}/cpu:{re.escape(__version__)}-python3\.1[123]")
_GPU_IMAGE = re.compile(rf"{_IMAGES}/gpu:{re.escape(__version__)}-python3\.1[123]")
_L4 = "worker_accelerator=type:nvidia-l4;count:1;install-nvidia-driver"


_BY_STEP: dict[str, Any] = {
    "retrieve": RetrieveBm25,
    "tokenize": TokenizeDocs,
    "mono": ScoreMono,
    "duo": ScoreDuo,
}


def _plan(step: str, device: str = "cuda") -> Plan:
    stage = a_stage(step, **({"device": device} if step in ("mono", "duo") else {}))
    before = (a_stage(name).record() for name in getattr(stage, "reads", ()))
    return Plan("test", "gs://bucket/out", cut_rows([], 1), (*before, stage.record()), {})


def _submitted(service: Service, step: str, *flags: str, device: str = "cuda") -> dict[str, Any]:
    """The job that reaches the service for a stage."""
    plan = _plan(step, device=device)
    options = dataflow.job_options(plan, plan.stages[-1], (*service.flags, *flags))
    pipeline = beam.Pipeline(options=options)
    _ = pipeline | "Tasks" >> beam.Create([1]) | "RunShards" >> beam.Map(str)
    pipeline.run()
    return service.requests[-1]


def _run(*arguments: str) -> None:
    app(list(arguments), standalone_mode=False)


@pytest.mark.parametrize(
    ("kind", "image", "machine_type", "experiment", "service_options"),
    slow_but(
        2,
        [
            ("tokenize", _CPU_IMAGE, "n2-standard-4", "use_multiple_sdk_containers", []),
            ("mono", _GPU_IMAGE, "g2-standard-4", "no_use_multiple_sdk_containers", [_L4]),
            ("duo", _GPU_IMAGE, "g2-standard-4", "no_use_multiple_sdk_containers", [_L4]),
            ("retrieve", _CPU_IMAGE, "n2-highmem-4", "no_use_multiple_sdk_containers", []),
        ],
    ),
)
def test_dataflow_request_has_the_settings(
    service, kind, image, machine_type, experiment, service_options
):
    job = _submitted(service, kind)
    (pool,) = job["environment"]["workerPools"]
    assert image.fullmatch(pool["workerHarnessContainerImage"])
    assert [each["containerImage"] for each in pool["sdkHarnessContainerImages"]] == [
        pool["workerHarnessContainerImage"]
    ]
    assert pool["machineType"] == machine_type
    assert pool["numThreadsPerWorker"] == 1
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 8
    assert pool["diskSizeGb"] > 0
    experiments = {each for each in job["environment"]["experiments"] if "multiple_sdk" in each}
    assert experiments == {experiment}
    assert job["environment"].get("serviceOptions", []) == service_options
    assert re.fullmatch(rf"beamrank-{kind}(-t1)?-[0-9a-f]{{12}}", job["name"])
    # Nothing is installed on a worker: its image holds all. Beam logs the second file, and installs
    # nothing from it.
    assert {Path(url).name for url in service.objects} == {
        "pipeline.pb",
        "submission_environment_dependencies.txt",
    }


@pytest.mark.slow
def test_dataflow_scoring_on_cpu_has_no_accelerator(service: Service) -> None:
    job = _submitted(service, "mono", device="cpu")
    (pool,) = job["environment"]["workerPools"]
    assert (pool["machineType"], job["environment"].get("serviceOptions", [])) == (
        "n2-standard-4",
        [],
    )
    assert _GPU_IMAGE.fullmatch(pool["workerHarnessContainerImage"])


def test_dataflow_flags_of_the_user_win(service: Service) -> None:
    job = _submitted(
        service,
        "mono",
        "--sdk_container_image=example.com/other:1",
        "--worker_machine_type=n1-standard-8",
        "--dataflow_service_options=worker_accelerator=type:nvidia-tesla-t4;count:1;install-nvidia-driver",
        "--num_workers=20",
        "--number_of_worker_harness_threads=2",
        "--experiments=enable_something",
        "--job_name=mine",
    )
    (pool,) = job["environment"]["workerPools"]
    assert (pool["machineType"], pool["workerHarnessContainerImage"]) == (
        "n1-standard-8",
        "example.com/other:1",
    )
    assert (pool["numWorkers"], pool["autoscalingSettings"]["maxNumWorkers"]) == (20, 20)
    assert (pool["numThreadsPerWorker"], job["name"]) == (2, "mine")
    assert job["environment"]["serviceOptions"] == [
        "worker_accelerator=type:nvidia-tesla-t4;count:1;install-nvidia-driver"
    ]
    assert {"enable_something", "no_use_multiple_sdk_containers"} <= set(
        job["environment"]["experiments"]
    )


def test_dataflow_job_file_has_the_settings(service: Service, tmp_path: Path) -> None:
    plan, path = _plan("mono"), tmp_path / "job.json"
    options = dataflow.job_options(
        plan, plan.stages[-1], (*service.flags, f"--template_location={path}")
    )
    pipeline = beam.Pipeline(options=options)
    _ = pipeline | "Tasks" >> beam.Create([1])
    assert not pipeline.run().has_job
    job = json.loads(path.read_text())
    (pool,) = job["environment"]["workerPools"]
    assert (pool["machineType"], pool["numThreadsPerWorker"]) == ("g2-standard-4", 1)
    assert job["environment"]["serviceOptions"] == [_L4]
    assert _GPU_IMAGE.fullmatch(pool["workerHarnessContainerImage"])
    assert service.requests == []


_POOL = "use_multiple_sdk_containers"


@pytest.mark.parametrize(
    ("flags", "kinds", "message"),
    [
        ([], ["mono"], "--project, --region, --temp_location"),
        ([*FLAGS[:2], "--temp_location=folder"], ["mono"], "--temp_location .*'folder'"),
        ([*FLAGS, "--setup_file=setup.py"], ["mono"], "--setup_file "),
        ([*FLAGS, "--sdk_location=default.whl"], ["mono"], "--sdk_location "),
        ([*FLAGS, f"--experiments={_POOL}"], ["mono"], f" no_{_POOL}"),
        ([*FLAGS, f"--experiments=no_{_POOL}"], ["tokenize"], f" {_POOL}"),
        ([*FLAGS, "--resource_hints=min_ram=30GB"], ["mono"], "--resource_hints"),
        (
            [*FLAGS, "--worker_machine_type=n2-standard-8"],
            ["tokenize", "mono"],
            "--worker_machine_type ",
        ),
        ([*FLAGS, "--sdk_container_image=a/b:1"], ["retrieve", "duo"], "--sdk_container_image "),
        ([*FLAGS, "--template_location=job.json"], ["mono"], "--stage .*--no-wait"),
        ([*FLAGS, "--dry_run=true"], ["mono"], "--dry_run "),
    ],
)
def test_dataflow_wrong_flags_are_refused(flags: list[str], kinds: list[str], message: str) -> None:
    pytest.importorskip("google.cloud.dataflow", reason=GCP)
    with pytest.raises(ConfigError, match=message):
        dataflow.check_flags(flags, [_BY_STEP[kind] for kind in kinds], "cuda", wait=True)


def test_dataflow_unusual_flags_are_accepted() -> None:
    pytest.importorskip("google.cloud.dataflow", reason=GCP)
    dataflow.check_flags(FLAGS, list(_BY_STEP.values()), "cuda", wait=True)
    dataflow.check_flags(
        [*FLAGS, "--flexrs_goal=COST_OPTIMIZED"], [TokenizeDocs], "cuda", wait=True
    )
    dataflow.check_flags([*FLAGS, "--template_location=job.json"], [ScoreMono], "cuda", wait=False)


@pytest.mark.skipif(find_spec("google.cloud") is not None, reason="apache-beam[gcp] is installed")
def test_dataflow_needs_googles_libraries() -> None:
    with pytest.raises(PreflightError, match=r"'\.\[gcp\]'"):
        dataflow.check_flags(FLAGS, [ScoreMono], "cuda", wait=True)


def test_dataflow_refuses_local_paths(config_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = beamrank_here("run", config_path, "--output", out, "--runner", "dataflow", "--", *FLAGS)
    assert done.returncode == 3, done.stderr
    for key in ("corpus.path", "index.path", "output", "mono.checkpoint", "duo.checkpoint"):
        assert f"{key} (" in done.stderr
    assert "topics.path" not in done.stderr
    assert not out.exists()


def test_dataflow_no_wait_needs_a_stage(config_path: Path) -> None:
    done = beamrank_here("run", config_path, "--runner", "dataflow", "--no-wait", "--", *FLAGS)
    assert (done.returncode, "give --stage too" in done.stderr) == (2, True)


@pytest.mark.parametrize("url", ["memory://corpus.jsonl", "file:///corpus.jsonl", "corpus.jsonl"])
def test_dataflow_refuses_a_url_of_this_machine(remote_config: Path, url: str) -> None:
    settings = load_config(str(remote_config), [f"corpus.path={url}"])
    with pytest.raises(PreflightError, match=r"corpus\.path"):
        dataflow.check_paths(worker_paths(settings))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({}, ("cuda", "float16", 4)),
        ({"device": "cpu"}, ("cpu", "float32", 4)),
        ({"dtype": "bfloat16", "threads": 7}, ("cuda", "bfloat16", 7)),
    ],
)
def test_dataflow_ignores_the_launchers_machine(remote_config, overrides, expected):
    auto = {"device": "auto", "dtype": "auto", "threads": None}
    settings = load_config(str(remote_config)).model_copy(update={**auto, **overrides})
    settled, scoring = dataflow.settle(settings)
    assert (scoring.device, scoring.dtype) == expected[:2]
    assert (settled.device, settled.dtype, settled.threads) == expected
    stage = make_plan(settled, ConsoleProgress(quiet=True), scoring).stage("mono")
    assert (stage.keys["device"], stage.keys["dtype"]) == expected[:2]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["given run", pytest.param("bm25", marks=pytest.mark.jvm)])
def test_dataflow_staged_jobs_do_all_the_work(
    first, service, remote_config, bucket, capsys, monkeypatch
):
    monkeypatch.setenv("BEAMRANK_CACHE", str(bucket / "cache"))
    keys: dict[str, Any] = {"shards": 2}
    if first == "bm25":
        keys |= {"candidates": None, "index": {"path": "bucket://here/index"}, "bm25": {"k": 8}}
    remote_config.write_text(yaml.safe_dump({**yaml.safe_load(remote_config.read_text()), **keys}))
    service.works = True
    _run("run", str(remote_config), "--runner", "dataflow", "--", *service.flags)
    here, _ = run_here(remote_config, bucket / "local")
    jobs = ["retrieve"] * (first == "bm25") + ["tokenize", "mono", "duo"]
    assert [job["name"].split("-")[1] for job in service.requests] == jobs
    assert len(run_bytes(bucket / "out")) == 3
    assert run_bytes(bucket / "out") == run_bytes(bucket / "local")
    assert {stage.name for stage in here.stages} == {
        path.name for path in (bucket / "out").iterdir() if list(path.glob("part-*.parquet"))
    }
    assert (
        "https://console.cloud.google.com/dataflow/jobs/europe-west4/job-1"
        in capsys.readouterr().err
    )
    # What Airflow's last task does: no job, so no flags for one.
    (bucket / "out/runs/duo-sum.trec").unlink()
    _run("run", str(remote_config), "--runner", "dataflow", "--stage", "runs")
    assert run_bytes(bucket / "out") == run_bytes(bucket / "local")
    assert len(service.requests) == len(jobs)


@pytest.mark.slow
def test_dataflow_submits_one_stage_without_waiting(service, remote_config, bucket, capsys):
    arguments = ("run", str(remote_config), "--runner", "dataflow", "--no-wait")
    service.state = "JOB_STATE_PENDING"
    _run(*arguments, "--stage", "retrieve", "--", *service.flags)
    assert capsys.readouterr().out == ""
    _run(*arguments, "--stage", "tokenize", "--", *service.flags)
    assert capsys.readouterr().out == "job-1\n"
    with pytest.raises(PreflightError, match="tokenize"):
        _run(*arguments, "--stage", "mono", "--", *service.flags)
    service.works = True
    _run(*arguments, "--stage", "tokenize", "--", *service.flags)
    assert capsys.readouterr().out == "job-2\n"
    # The job is done, so there is nothing to submit; the next stage seals it.
    _run(*arguments, "--stage", "tokenize", "--", *service.flags)
    assert capsys.readouterr().out == ""
    job = bucket / "job.json"
    _run(*arguments, "--stage", "mono", "--", *service.flags, f"--template_location={job}")
    assert capsys.readouterr().out == f"{job}\n"
    assert json.loads(job.read_text())["name"].startswith("beamrank-mono-")
    # A template must come to a job also where nothing is left to do.
    job.unlink()
    _run(*arguments, "--stage", "tokenize", "--", *service.flags, f"--template_location={job}")
    assert json.loads(job.read_text())["name"].startswith("beamrank-tokenize-")
    assert len(service.requests) == 2


def test_dataflow_template_is_one_job(service, remote_config, bucket, mono_checkpoint, monkeypatch):
    monkeypatch.setenv("BEAMRANK_CACHE", str(bucket / "cache"))
    shutil.copytree(mono_checkpoint, bucket / "other")
    settings = bucket / "other/tokenizer_config.json"
    edit_json(settings, do_lower_case=False)
    arguments = (
        "run",
        str(remote_config),
        "--runner",
        "dataflow",
        "--no-wait",
        "--stage",
        "tokenize",
    )
    with pytest.raises(ConfigError, match=r"template .*tokenize .*2"):
        _run(
            *arguments,
            "--set",
            "mono.checkpoint=bucket://here/other",
            "--",
            *service.flags,
            "--template_location=job.json",
        )


@pytest.fixture(autouse=True)
def _poll_often(monkeypatch):
    monkeypatch.setattr(dataflow, "POLL_SECONDS", 0.1)


def _launcher(
    remote_config: Path, service: Service, **overrides: Any
) -> tuple[Launcher, RunConfig]:
    settings, scoring = dataflow.settle(
        load_config(str(remote_config)).model_copy(update=overrides)
    )
    console = ConsoleProgress(quiet=True)
    plan = make_plan(settings, console, scoring)
    plan.publish()
    return Launcher(plan, settings, console, Runner.DATAFLOW, service.flags), settings


def test_dataflow_cancels_a_stalled_job(service: Service, remote_config: Path) -> None:
    service.state = "JOB_STATE_RUNNING"
    launcher, _ = _launcher(remote_config, service, stall_minutes=0.01)
    with pytest.raises(BeamrankError, match="job-1"):
        launcher.run()
    assert service.cancelled == ["job-1"]


@pytest.mark.slow
def test_dataflow_cancels_a_job_whose_result_is_refused(service, remote_config, monkeypatch):
    service.state = "JOB_STATE_RUNNING"
    launcher, _ = _launcher(remote_config, service)

    def refuse() -> int:
        raise DataError("too many bad rows")

    monkeypatch.setattr("pipelines.launcher.StageProgress", lambda *_: refuse)
    with pytest.raises(DataError, match="too many bad rows"):
        launcher.run()
    assert service.cancelled == ["job-1"]


@pytest.mark.slow
def test_dataflow_job_without_receipts_is_an_error(service: Service, remote_config: Path) -> None:
    launcher, _ = _launcher(remote_config, service)
    with pytest.raises(BeamrankError, match="missing"):
        launcher.run()


@pytest.mark.slow
def test_dataflow_interrupted_wait_reports_that_the_job_continues(
    service, remote_config, capsys, monkeypatch
):
    service.state = "JOB_STATE_RUNNING"
    launcher, _ = _launcher(remote_config, service)
    launcher.console = ConsoleProgress()

    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("pipelines.launcher.StageProgress", lambda *_: interrupted)
    with pytest.raises(KeyboardInterrupt):
        launcher.run()
    assert "job-1 continues without this command" in capsys.readouterr().err
    assert service.cancelled == []


def _sizes(service: Service, output: Path, shards: int, files: int) -> list[int]:
    """The bytes of the requests, and of the graphs, of jobs over so many shards and files of a
    corpus.
    """
    topics = cut_shards([Topic(str(number), "x") for number in range(shards)], shards)
    tokenize = a_stage("tokenize")
    plan = Plan("test", str(output), topics, (a_stage("retrieve").record(), tokenize.record()), {})
    plan.write()
    stage, folder = plan.stages[-1], plan.folder(plan.stages[-1].name)
    digest = sha256(b"")
    receipt = Receipt(
        0, digest, "part-00000-aaaaaaaaaaaa.parquet", digest, 1, 1, 0, 1.0, machine=digest[:12]
    )
    inputs = tuple(InputPart(plan.folder(name), receipt) for name in stage.inputs)
    tasks = [ShardTask(folder, shard.index, digest, shard.topics, inputs) for shard in topics]
    listed = TaskFile.write(plan, folder.url, "tasks-", tasks)
    assert len(tasks) == sum(len(listed.shards(each)) for each in listed.ranges())
    assert listed.read(shards // 3) == tasks[shards // 3]
    units = [
        CorpusUnit(number, f"gs://b/{number}", FORMATS["jsonl"], Hints(format="jsonl"), 0, 9)
        for number in range(files)
    ]
    sources = [(unit, DigestedFile(unit.url, "v1", digest)) for unit in units]
    stored, needed = UnitFile.write(folder.url, "tasks-", sources), NeededList((), 0)
    sizes = []
    for work in (
        a_stage("mono"),
        NeededRanges(tokenize, folder.url, "needed-", 16, range(16)),
        CorpusScan(((tokenize, folder),), needed, stored),
    ):
        pipeline = dataflow.new_pipeline(plan, stage, service.flags)
        _ = pipeline | SpreadTasks(listed) | transform_of(work, listed)
        pipeline.run()
        sizes += [
            len(json.dumps(service.requests[-1])),
            service.pipeline(service.requests[-1]).ByteSize(),
        ]
    return sizes


def test_dataflow_jobs_of_many_shards_are_small(service: Service, tmp_path: Path) -> None:
    """As small as those of few, but for the digits of numbers. The service refuses 10 MB."""
    few = _sizes(service, tmp_path / "few", 50, 10)
    many = _sizes(service, tmp_path / "many", 400, 160)
    assert max(many) < 100_000
    assert max(large - small for small, large in zip(few, many, strict=True)) < 2000
