"""How large a job is when it reaches Dataflow."""

import json
from pathlib import Path

from beamrank.commit.job_files import TaskFile, UnitFile
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Receipt
from beamrank.commit.shards import InputPart, ShardTask, cut_shards
from beamrank.formats.corpora import FORMATS
from beamrank.formats.texts.units import CorpusUnit
from beamrank.join.doc_hashes import NeededList
from beamrank.records import Topic
from beamrank.storage.digested import DigestedFile
from beamrank.storage.documents import sha256
from pipelines.runners import dataflow
from tests.support.models.stages import a_stage
from tests.support.services.dataflow import Service
from transforms.join import JoinCorpus, ListNeededDocs
from transforms.shards import RunShards, SpreadTasks


def _sizes(service: Service, output: Path, shards: int, files: int) -> list[int]:
    """The bytes of the requests, and of the graphs, of jobs over so many shards and files of a corpus."""
    topics = cut_shards([Topic(str(number), "x") for number in range(shards)], shards)
    tokenize = a_stage("tokenize")
    plan = Plan("test", str(output), topics, (a_stage("retrieve").record(), tokenize.record()), {})
    plan.write()
    stage, folder = plan.stages[-1], plan.folder(plan.stages[-1].name)
    digest = sha256(b"")
    receipt = Receipt(0, digest, "part-00000-aaaaaaaaaaaa.parquet", digest, 1, 1, 0, 1.0, machine=digest[:12])
    inputs = tuple(InputPart(plan.folder(name), receipt) for name in stage.inputs)
    tasks = [ShardTask(folder, shard.index, digest, shard.topics, inputs) for shard in topics]
    listed = TaskFile.write(plan, folder.url, "tasks-", tasks)
    assert len(tasks) == sum(len(listed.shards(*each)) for each in listed.ranges())
    assert listed.read(shards // 3) == tasks[shards // 3]
    units = [CorpusUnit(number, f"gs://b/{number}", FORMATS["jsonl"], None, 0, 9) for number in range(files)]
    sources = [(unit, DigestedFile(unit.url, "v1", digest)) for unit in units]
    stored, needed = UnitFile.write(folder.url, "tasks-", sources), NeededList((), 0)
    sizes = []
    for work in (
        RunShards(a_stage("mono")),
        ListNeededDocs(tokenize, folder, "needed-", 16, range(16)),
        JoinCorpus(tokenize, folder, needed, stored, [(0, files)]),
    ):
        pipeline = dataflow.new_pipeline(plan, stage, service.flags)
        _ = pipeline | SpreadTasks(listed) | work
        pipeline.run()
        sizes += [len(json.dumps(service.requests[-1])), service.pipeline(service.requests[-1]).ByteSize()]
    return sizes


def test_dataflow_jobs_of_many_shards_are_small(service: Service, tmp_path: Path) -> None:
    """As small as those of few, but for the digits of numbers. The service refuses 10 MB."""
    few = _sizes(service, tmp_path / "few", 500, 100)
    many = _sizes(service, tmp_path / "many", 5000, 2000)
    assert max(many) < 100_000
    assert max(large - small for small, large in zip(few, many, strict=True)) < 2000
