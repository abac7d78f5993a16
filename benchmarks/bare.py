"""The parts of a run as bare functions of the library, without Beam, each in a process of its own: seconds of each."""

import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from beamrank.config.run import load_config
from beamrank.formats.corpora import digest_corpus, list_units
from beamrank.ranking.input_layout import InputLimits
from beamrank.stages.plan import MAX_DOC_TOKENS, Plan, StageSpec, read_plan
from beamrank.stages.receipts import Manifest
from beamrank.tables.join import NeededDocs
from models.checkpoints.check import resolve_checkpoint
from models.lucene.index import build_index
from models.scoring.backends.torch import resolve_device
from models.scoring.duo import score_duo
from models.scoring.engine import ScoringEngine, usable_cores
from models.scoring.mono import score_mono
from pipelines.console.progress import ConsoleProgress
from pipelines.output.run_files import write_runs
from transforms.join import TokenizeJob, scan_unit
from transforms.retrieve import RetrieveJob
from transforms.shards import ShardTask


def index_seconds(config_path: str, folder: str) -> float:
    """Builds the index elsewhere."""
    config = load_config(config_path)
    start = time.perf_counter()
    build_index(config.corpus, str(Path(folder) / "bare-index"), usable_cores())
    return time.perf_counter() - start


def retrieve_seconds(output: str) -> float:
    """Starts Java, opens the index, searches every shard and commits it elsewhere."""
    plan = read_plan(output)
    stage = plan.stage("retrieve")
    keys = stage.keys
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        job = RetrieveJob(
            folder, stage.places["index"], keys["index"], keys["k1"], keys["b"], keys["k"], usable_cores()
        )
        for task in _tasks(plan, stage, ()):
            job.run(task)
        return time.perf_counter() - start


def tokenize_seconds(config_path: str, output: str, name: str) -> float:
    """Reads the corpus, tokenizes the needed docs, joins every shard, commits it elsewhere; a dict is the shuffle."""
    plan = read_plan(output)
    stage = plan.stage(name)
    retrieved = _sealed(plan, "retrieve")
    config = load_config(config_path)
    # A run takes it when it plans.
    corpus = digest_corpus(config.corpus)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        units = tuple(list_units(config.corpus))
        candidates = plan.folder("retrieve")
        parts = [candidates.read_part(receipt)["doc_id"].to_pylist() for receipt in retrieved.receipts]
        job = TokenizeJob(
            url=folder,
            candidates_url=candidates.url,
            checkpoint=stage.places["checkpoint"],
            kind=stage.places["kind"],
            tokenizer_digest=stage.keys["tokenizer"],
            corpus_digest=stage.keys["corpus"],
            needed_url=NeededDocs.collect(enumerate(parts)).publish(folder),
            units=units,
            k=stage.keys["k"],
            max_doc_tokens=MAX_DOC_TOKENS,
            on_missing_doc="error",
        )
        shuffled: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for unit in units:
            for shard, batch in scan_unit(job, unit, corpus.files[unit.url]):
                shuffled[shard].append(batch)
        for task in _tasks(plan, stage, (retrieved,)):
            job.run(task, shuffled[task.shard])
        return time.perf_counter() - start


def scoring_seconds(output: str, kind: str, shards: int) -> tuple[float, float]:
    """Loads a scoring stage's model, and scores the first shards of a run again.

    Returns:
        Seconds to load the model, and to score the shards.
    """
    plan = read_plan(output)
    stage = plan.stage(kind)
    keys = stage.keys
    inputs = [(plan.folder(name), _sealed(plan, name)) for name in stage.inputs]
    limits = InputLimits(keys["truncation"], keys["max_query_length"], keys["max_length"])
    # A run has imported torch long before it loads a model.
    resolve_device(keys["device"])
    start = time.perf_counter()
    checkpoint = resolve_checkpoint(stage.places["checkpoint"], kind)
    engine = ScoringEngine(checkpoint, keys["device"], keys["dtype"], usable_cores(), keys["token_budget"])
    loaded = time.perf_counter()
    for shard in range(shards):
        tokens, *rest = (folder.read_part(manifest.receipts[shard]) for folder, manifest in inputs)
        if kind == "mono":
            score_mono(engine, tokens, keys["k"], limits)
        else:
            score_duo(engine, tokens, rest[0], keys["k"], limits, None, 0)
    return loaded - start, time.perf_counter() - loaded


def runs_seconds(config_path: str, output: str) -> float:
    """Writes the runs again, to the same bytes, and evaluates them."""
    plan, config = read_plan(output), load_config(config_path, output=output)
    talk = ConsoleProgress(quiet=True)
    start = time.perf_counter()
    write_runs(plan, config, talk)
    return time.perf_counter() - start


def _sealed(plan: Plan, name: str) -> Manifest:
    manifest = plan.sealed(name)
    assert manifest is not None
    return manifest


def _tasks(plan: Plan, stage: StageSpec, inputs: Sequence[Manifest]) -> list[ShardTask]:
    digests = plan.shard_digests(stage, inputs)
    return [
        ShardTask(shard.index, digest, shard.topics, tuple(manifest.receipts[shard.index] for manifest in inputs))
        for shard, digest in zip(plan.shards, digests, strict=True)
    ]
