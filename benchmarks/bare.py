"""Seconds of the parts of a run as bare calls of the library, without Beam, each in a process of
its own.
"""

import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.receipts import Manifest, StageFolder
from beamrank.commit.shards import ShardTask
from beamrank.commit.stage import StageRecord
from beamrank.config.run import load_config
from beamrank.formats.corpora import digest_corpus, list_units
from beamrank.join.doc_hashes import write_needed
from beamrank.machine import usable_cores
from models.lucene.build import build_index
from models.scoring.backends.torch import resolve_device
from models.stages.attempt import run_shard, shard_inputs
from models.stages.bm25 import RetrieveBm25
from models.stages.core import open_stage
from models.stages.scoring import ScoringStage
from models.stages.tokenize import TokenizeDocs
from pipelines.runs.run_files import write_runs


def index_seconds(config_path: str, folder: str) -> float:
    """Builds the index in another folder."""
    config = load_config(config_path)
    start = time.perf_counter()
    build_index(config.corpus, str(Path(folder) / "bare-index"), usable_cores())
    return time.perf_counter() - start


def retrieve_seconds(output: str) -> float:
    """Starts Java, opens the index, searches every shard and commits it to another folder."""
    plan = read_plan(output)
    record = plan.stage("retrieve")
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        stage = RetrieveBm25.of_record(record)
        for task in _tasks(plan, record, (), folder):
            run_shard(stage, task)
        return time.perf_counter() - start


def tokenize_seconds(config_path: str, output: str, name: str) -> float:
    """Reads the corpus, tokenizes the needed docs, joins and commits every shard; a dict is the
    shuffle.
    """
    plan = read_plan(output)
    record = plan.stage(name)
    retrieved = _sealed(plan, "retrieve")
    config = load_config(config_path)
    # A run computes the digest when it plans.
    corpus = digest_corpus(config.corpus)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        units = tuple(list_units(config.corpus))
        stage = TokenizeDocs.of_record(record)
        tasks = _tasks(plan, record, (retrieved,), folder)
        needed = write_needed(
            (each for task in tasks for each in stage.needed(task, 1)), 1, folder, "needed-"
        )
        shuffled: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for unit in units:
            for shard, batch in stage.scan(
                unit, corpus.files[unit.url], needed, StageFolder(folder)
            ):
                shuffled[shard].append(batch)
        for task in tasks:
            stage.join(
                task, shuffled[task.shard], lambda unit, position: units[unit].place(position)
            )
        return time.perf_counter() - start


def scoring_seconds(output: str, kind: str, shards: int) -> tuple[float, float]:
    """Loads a scoring stage's model, and scores the first shards of a run again.

    Returns:
        Seconds to load the model, and to score the shards.
    """
    plan = read_plan(output)
    record = plan.stage(kind)
    stage = open_stage(plan.stages, kind)
    assert isinstance(stage, ScoringStage)
    tasks = _tasks(plan, record, [_sealed(plan, name) for name in stage.inputs], output)
    # A run has imported torch long before it loads a model.
    resolve_device(stage.device)
    start = time.perf_counter()
    engine = stage.open()
    loaded = time.perf_counter()
    for task in tasks[:shards]:
        engine.score(stage.prepare(shard_inputs(stage, task)).inputs)
    return loaded - start, time.perf_counter() - loaded


def runs_seconds(config_path: str, output: str) -> float:
    """Writes the same runs again, and evaluates them."""
    plan, config = read_plan(output), load_config(config_path, output=output)
    start = time.perf_counter()
    write_runs(plan, config)
    return time.perf_counter() - start


def _sealed(plan: Plan, name: str) -> Manifest:
    manifest = plan.seal(name)
    assert manifest is not None
    return manifest


def _tasks(
    plan: Plan, stage: StageRecord, inputs: Sequence[Manifest], folder: str
) -> list[ShardTask]:
    """All tasks of a stage, into another folder."""
    return [replace(task, folder=StageFolder(folder)) for task in plan.tasks(stage, inputs)]
