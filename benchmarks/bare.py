"""Seconds of the parts of a run as bare calls of the library, without Beam, each in a process of
its own.
"""

import shutil
import tempfile
import time
from pathlib import Path

from beamrank.commit.plan import read_plan
from beamrank.config.load import load_config
from beamrank.machine import usable_cores
from benchmarks.outputs import sealed
from models.lucene.build import build_index
from models.scoring.backends.torch import resolve_device
from models.stages.attempt import shard_inputs
from models.stages.core import open_stage
from models.stages.scoring import ModelStage
from pipelines.console.progress import ConsoleProgress
from pipelines.runs.run_files import write_runs
from pipelines.shares import Share, ShareLauncher


def index_seconds(config_path: Path, folder: Path) -> float:
    """Builds the index in another folder."""
    config = load_config(str(config_path))
    start = time.perf_counter()
    build_index(config.corpus, str(folder / "bare-index"), usable_cores())
    return time.perf_counter() - start


def stage_seconds(config_path: Path, output: Path, name: str) -> float:
    """Does all shards of a stage again, in a copy of the output."""
    with tempfile.TemporaryDirectory() as folder:
        copy = f"{folder}/out"
        shutil.copytree(output, copy, ignore=shutil.ignore_patterns(name))
        plan, config = read_plan(copy), load_config(str(config_path), output=copy)
        launcher = ShareLauncher(plan, config, ConsoleProgress(quiet=True), share=Share(0, 1))
        start = time.perf_counter()
        launcher.run([plan.stage(name)])
        return time.perf_counter() - start


def scoring_seconds(output: Path, kind: str, shards: int) -> tuple[float, float]:
    """Loads a scoring stage's model, and scores the first shards of a run again.

    Returns:
        Seconds to load the model, and to score the shards.
    """
    plan = read_plan(str(output))
    stage = open_stage(plan.stages, kind)
    assert isinstance(stage, ModelStage)
    tasks = plan.tasks(plan.stage(kind), [sealed(plan, name) for name in stage.inputs])
    # A run has imported torch long before it loads a model.
    resolve_device(stage.device)
    start = time.perf_counter()
    engine = stage.open()
    loaded = time.perf_counter()
    for task in list(tasks)[:shards]:
        engine.score(stage.prepare(shard_inputs(stage, task)).inputs)
    return loaded - start, time.perf_counter() - loaded


def runs_seconds(config_path: Path, output: Path) -> float:
    """Writes the same runs again, and evaluates them."""
    plan, config = read_plan(str(output)), load_config(str(config_path), output=str(output))
    start = time.perf_counter()
    write_runs(plan, config)
    return time.perf_counter() - start
