"""Small real cascades for the tests of the pipelines."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from beamrank.config.run import RunConfig, load_config
from beamrank.errors import BeamrankError
from beamrank.stages.plan import Plan
from pipelines.cli import app
from pipelines.console.progress import ConsoleProgress
from pipelines.launcher import Launcher
from pipelines.output.run_files import write_runs
from pipelines.planning.make_plan import make_plan

BEAMRANK = str(Path(sys.executable).parent / "beamrank")


def write_config(folder: Path, corpus: dict[str, str], topics: dict[str, str], mono: str, duo: str) -> Path:
    """A configuration file with everything pinned that decides bytes."""
    values: dict[str, Any] = {
        "run_tag": "test",
        "corpus": {"path": str(folder / "corpus.jsonl"), "format": "jsonl"},
        "topics": {"path": str(folder / "topics.tsv"), "format": "tsv"},
        "index": {"path": str(folder / "index")},
        "bm25": {"k": 12},
        "mono": {"checkpoint": mono, "k": 8},
        "duo": {"checkpoint": duo, "k": 3},
        "threads": 1,
        "shards": 4,
        "dtype": "float32",
        "output": "out",
    }
    rows = (json.dumps({"id": doc_id, "contents": text}) for doc_id, text in corpus.items())
    (folder / "corpus.jsonl").write_text("".join(f"{row}\n" for row in rows))
    (folder / "topics.tsv").write_text("".join(f"{query_id}\t{text}\n" for query_id, text in topics.items()))
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def run_here(path: Path, output: Path, overrides: Sequence[str] = ()) -> tuple[Plan, RunConfig]:
    """The cascade in this process."""
    config = load_config(str(path), overrides, str(output))
    talk = ConsoleProgress(quiet=True)
    plan = make_plan(config, talk)
    plan.publish()
    Launcher(plan, config, talk).run_all()
    write_runs(plan, config, talk)
    return plan, config


def beamrank(*arguments: str | Path, timeout: float = 500, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, as a user runs it."""
    return subprocess.run(
        [BEAMRANK, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "COLUMNS": "200", **environment},
        check=False,
    )


def beamrank_here(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command line in this process, which saves the seconds of importing Beam and torch anew."""
    command = [str(argument) for argument in arguments]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    code, stderr = done.exit_code, done.stderr
    if isinstance(done.exception, BeamrankError):
        code, stderr = done.exception.exit_code, f"{stderr}error: {done.exception}\n"
    elif not isinstance(done.exception, SystemExit | None):
        raise done.exception
    return subprocess.CompletedProcess(command, code, done.stdout, stderr)


def run_bytes(output: Path) -> dict[str, bytes]:
    """The run files of an output."""
    return {path.name: path.read_bytes() for path in sorted((output / "runs").glob("*.trec"))}


def read_trec(path: Path) -> dict[str, list[str]]:
    """The doc_ids of each query, in the file's order."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        query_id, _, doc_id, *_ = line.split()
        found.setdefault(query_id, []).append(doc_id)
    return found
