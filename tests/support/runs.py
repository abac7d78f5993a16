"""Runs in this process, and what a run leaves in its output."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from beamrank.commit.check import verify_stages
from beamrank.commit.listing import BESIDE_RUNS
from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.status import read_status
from beamrank.config.load import load_config
from beamrank.config.run import RunConfig
from pipelines.console.progress import ConsoleProgress
from pipelines.launcher import Launcher
from pipelines.plan.make_plan import make_plan
from pipelines.runs.run_files import write_runs
from pipelines.shares import Share, ShareLauncher

FileState = tuple[int, int, int]


class PlannedRun(NamedTuple):
    """A run that was planned; it can be executed more than once, also into other folders."""

    plan: Plan
    config: RunConfig

    def at(self, output: Path | str) -> "PlannedRun":
        """The same into another folder."""
        config = self.config.model_copy(update={"output": str(output)})
        return PlannedRun(dataclasses.replace(self.plan, output=str(output)), config)

    def run(self, launcher: type[Launcher] | None = None) -> "PlannedRun":
        """Does what `beamrank run --only 0/1` does after planning: a Beam job would take longer
        than its shards.
        """
        progress = ConsoleProgress(quiet=True)
        self.plan.publish()
        one = partial(ShareLauncher, share=Share(0, 1))
        work = (launcher or one)(self.plan, self.config, progress)
        work.run()
        assert work.finish()
        write_runs(self.plan, self.config, progress)
        return self

    def rows(self, stage: str) -> list[dict[str, Any]]:
        """All rows of a stage."""
        return [row for table in self._tables(stage) for row in table.to_pylist()]

    def _tables(self, stage: str) -> list[pa.Table]:
        manifest = self.plan.seal(stage)
        assert manifest is not None, f"{stage} is not sealed"
        return [self.plan.folder(stage).read_part(receipt) for receipt in manifest.receipts]


def plan_run(
    config: Path | str, overrides: Sequence[str] = (), output: Path | str | None = None
) -> PlannedRun:
    """Plans a run; builds its index where there is none."""
    loaded = load_config(str(config), overrides, None if output is None else str(output))
    return PlannedRun(make_plan(loaded, ConsoleProgress(quiet=True)), loaded)


def run_here(
    config: Path | str, output: Path | str | None = None, overrides: Sequence[str] = ()
) -> PlannedRun:
    """Plans and executes a run in this process."""
    return plan_run(config, overrides, output).run()


@cache
def undisturbed_run(config: Path) -> Path:
    """The output of a run of this configuration that nothing disturbed; executed once in a
    session.
    """
    output = config.parent / "undisturbed"
    run_here(config, output)
    return output


def run_bytes(output: Path) -> dict[str, bytes]:
    """The run files of an output."""
    return {path.name: path.read_bytes() for path in sorted((output / "runs").glob("*.trec"))}


def table_bytes(output: Path) -> dict[str, bytes]:
    """The files of the tables of runs."""
    return {
        str(path.relative_to(output)): path.read_bytes()
        for path in sorted(output.glob("runs/*.parquet/*"))
    }


def parts(output: Path) -> list[str]:
    """The parts of an output; their names hold their content's digest."""
    return sorted(str(path.relative_to(output)) for path in output.glob("*/part-*.parquet"))


def assert_same_bytes(output: Path, expected: Path) -> None:
    """The run files and the parts of two outputs are the same."""
    assert run_bytes(output) == run_bytes(expected)
    assert parts(output) == parts(expected)


def assert_as_fresh(output: Path, fresh: Path) -> int:
    """An output that reused scores holds what one that could not holds; returns how many were
    reused.
    """
    plan = read_plan(str(output))
    sealed = [
        manifest for manifest in map(plan.seal, (stage.name for stage in plan.stages)) if manifest
    ]
    assert sorted(
        f"{each.stage}/{receipt.part}" for each in sealed for receipt in each.receipts
    ) == parts(fresh)
    assert run_bytes(output).items() >= run_bytes(fresh).items()
    for name in BESIDE_RUNS:
        ours, expected = output / "runs" / name, fresh / "runs" / name
        assert ours.exists() == expected.exists(), name
        assert not ours.exists() or ours.read_bytes() == expected.read_bytes(), name
    assert verify_stages(str(output)).findings == []
    counts, all_counts = map(scored_and_reused, (output, fresh))
    assert {stage: sum(counts[stage]) for stage in counts} == {
        stage: sum(all_counts[stage]) for stage in all_counts
    }
    # A stage that goes deeper reuses the scores of the one before it.
    assert not any(all_counts[stage][1] for stage in all_counts if "deeper" not in stage)
    return sum(reused for _, reused in counts.values())


def scored_and_reused(output: Path | str) -> dict[str, tuple[int, int]]:
    """What the stages with a model scored, and what they took over."""
    statuses = read_status(read_plan(str(output)))
    return {
        each.stage: (each.inferences, each.reused)
        for each in statuses
        if each.inferences + each.reused
    }


def committed(output: Path) -> dict[str, FileState]:
    """Every receipt of an output and the part that it names, with what changes when a file is
    written again.
    """
    names = [path.relative_to(output) for path in output.glob("*/receipts/0*.json")]
    names += [
        path.relative_to(output) for path in output.glob("*/part-*.parquet") if _has_receipt(path)
    ]
    return {str(name): _state(output / name) for name in names}


def read_trec(path: Path) -> dict[str, list[str]]:
    """The doc_ids of each query, in the file's order."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        query_id, _, doc_id, *_ = line.split()
        found.setdefault(query_id, []).append(doc_id)
    return found


def trec_lines(candidates: Mapping[str, Sequence[str]]) -> list[str]:
    """A run file with these docs in this order."""
    return [
        f"{query_id} Q0 {doc_id} {rank} {len(doc_ids) + 10 - rank} given"
        for query_id, doc_ids in candidates.items()
        for rank, doc_id in enumerate(doc_ids, 1)
    ]


def _has_receipt(part: Path) -> bool:
    shard = part.name.split("-")[1]
    return any(
        part.name in path.read_text() for path in part.parent.glob(f"receipts/{shard}-*.json")
    )


def _state(path: Path) -> FileState:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size
