"""`beamrank doctor` checks this machine; `beamrank demo` runs the cascade on an embedded collection and checkpoints."""

import importlib.metadata
import json
import platform
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import cycle, islice
from typing import Annotated, Any

import psutil

from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.status import read_status
from beamrank.config.run import RunConfig
from beamrank.demo.collection import demo_questions, stdlib_docs, write_collection
from beamrank.errors import BeamrankError, PreflightError
from beamrank.evaluation.evaluate import Evaluation
from beamrank.evaluation.tables import MEAN, Column, Table
from beamrank.logs import run_log
from beamrank.machine import usable_cores
from beamrank.storage import files as storage
from beamrank.storage.disk_cache import cache_root
from beamrank.storage.urls import hide_credentials
from beamrank.version import __version__
from models.lucene.jvm import java_home
from pipelines.commands.arguments import AsJson, Quiet, Verbose, console_progress, open_runs, option
from pipelines.console.tables import print_table

_LIBRARIES = ("apache-beam", "pyarrow", "torch", "transformers", "tokenizers", "pyserini", "ir_measures")
_WARM_PAIRS, _TIMED_PAIRS = 64, 512
_DEPTH = 100
_DUO_DEPTH = 10
# Seven candidates in ten are shorter.
_MAX_LENGTH = 112
_MEASURES = ("RR@10", "nDCG@10", "R@100")


def doctor() -> None:
    """Check this machine: Python, Java, models, speed, memory, disk. Exit code 3 if a check fails."""
    rows, bad = [], []
    for what, look in CHECKS.items():
        try:
            state, found = "ok", look()
        except (BeamrankError, OSError, importlib.metadata.PackageNotFoundError) as error:
            state, found = "MISSING", str(error)
            bad.append(what)
        rows.append([what, state, hide_credentials(found)])
    print_table(["check", "state", "found"], rows)
    if bad:
        raise PreflightError(f"check failed: {', '.join(bad)}")


def _java() -> str:
    runtime = java_home()
    return f"Java {runtime.version} from {runtime.source}: {runtime.home}"


def _scoring() -> str:
    from models.scoring.backends.registry import find_backend

    found = find_backend("torch").resolve("auto", "auto")
    return f"{found.device}, dtype auto is {found.dtype}, {usable_cores()} cores"


def _kernels() -> str:
    from models.architectures.kernels.compiled import load_kernels, why_torch

    found = load_kernels()
    return f"attention by torch: {why_torch()}" if found is None else f"attention is compiled, for {found.kind}"


def _speed() -> str:
    """Scores passages of the demo, after some that warm the model up."""
    from models.reranker import Reranker, score_texts

    reranker = Reranker("embedded:mono")
    for count in (_WARM_PAIRS, _TIMED_PAIRS):
        questions = islice(cycle(demo_questions()), count)
        columns = [[each.text for each in questions], [doc.text for doc in stdlib_docs()[:count]]]
        start = time.monotonic()
        _, counts = score_texts(reranker.engine, reranker.tokenizer, reranker.limits, columns)
        rate, tokens = count / (time.monotonic() - start), counts.tokens / counts.inferences
    return f"embedded:mono scores {rate:.0f} pairs/s of {tokens:.0f} tokens; `beamrank plan` measures other models"


def _embedded() -> str:
    from models.checkpoints.checkpoint import resolve_checkpoint

    names = ((f"embedded:{kind}", kind) for kind in ("mono", "duo"))
    return ", ".join(f"{name} {resolve_checkpoint(name, kind).digest[:12]}" for name, kind in names)


def _memory() -> str:
    memory = psutil.virtual_memory()
    return f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free"


def _disk() -> str:
    with tempfile.TemporaryFile() as probe:
        probe.write(b"beamrank")
    return f"{psutil.disk_usage(tempfile.gettempdir()).free / 2**30:.0f} GiB free for temporary files"


CHECKS: dict[str, Callable[[], str]] = {
    "beamrank": lambda: __version__,
    "Python": lambda: f"{platform.python_version()} on {platform.platform()}",
    "libraries": lambda: ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _LIBRARIES),
    "Java 21 or later": _java,
    "scoring": _scoring,
    "kernels": _kernels,
    "speed": _speed,
    "embedded checkpoints": _embedded,
    "memory": _memory,
    "disk": _disk,
    "cache": lambda: f"{cache_root()} ({'exists' if cache_root().exists() else 'created when needed'})",
}
"""The checks of `beamrank doctor`; each tells what it found, or raises an error."""


def demo(
    output: Annotated[str, option("The folder for the collection, the index and the run.")] = "beamrank-demo",
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Answer questions from Python's documentation with BM25, monoBERT and duoBERT. Needs no download."""
    # Beam takes seconds to import, and other commands do without.
    from beamrank.report.page import report_part, write_report
    from beamrank.report.report import ReportSettings, gather
    from pipelines.execute import execute
    from pipelines.runners.options import Runner

    console = console_progress(verbose, quiet)
    folder = storage.absolute(output)
    storage.check_folder(folder)
    write_collection(storage.join(folder, "collection"))
    docs = len(stdlib_docs())
    console.note(f"searching {docs:,} passages of the standard library's documentation")
    with run_log(console.events()):
        result = execute(demo_config(folder), Runner.LOCAL, (), None, wait=True, console=console)
        plan = read_plan(result.output)
        stages = _stages(plan, result.evaluations)
    if as_json:
        print(json.dumps({"docs": docs, "topics": len(plan.topics), "stages": stages}))
    else:
        columns = [Column("stage"), *(Column(measure, MEAN) for measure in _MEASURES)]
        columns += [Column("inferences per query", "g"), Column("seconds", ".1f")]
        table = Table(columns, [list(row.values()) for row in stages])
        print_table(table.header, table.shown())
    console.note(f"runs, parts and receipts are in {folder}")
    report = report_part(gather(open_runs(result.output), ReportSettings()))
    page = write_report(storage.join(folder, "report"), [report])
    console.note(f"the report is {page}: open it in a browser")


def demo_config(folder: str) -> RunConfig:
    """The demo's configuration, as a user would write it for a collection of their own."""
    collection = storage.join(folder, "collection")
    return RunConfig.model_validate(
        {
            "run_tag": "demo",
            "corpus": {"path": storage.join(collection, "corpus.jsonl"), "format": "jsonl"},
            "topics": {"path": storage.join(collection, "topics.tsv"), "format": "tsv"},
            "qrels": storage.join(collection, "qrels.txt"),
            "index": {"path": storage.join(folder, "index")},
            "bm25": {"k": _DEPTH},
            "mono": {"checkpoint": "embedded:mono", "k": _DEPTH},
            "duo": {"checkpoint": "embedded:duo", "k": _DUO_DEPTH},
            "input": {"max_length": _MAX_LENGTH},
            "measures": _MEASURES,
            "output": storage.join(folder, "run"),
        }
    )


def _stages(plan: Plan, evaluations: Mapping[str, Evaluation]) -> list[dict[str, Any]]:
    """The rows of the demo's table; `seconds` are worker seconds, from receipts."""
    statuses = {status.stage: status for status in read_status(plan)}
    means = (evaluation.means for evaluation in evaluations.values())
    rows: list[dict[str, Any]] = []
    seconds = 0.0
    for stage in plan.stages:
        status = statuses[stage.name]
        # A stage that only prepares the next one counts as a part of it.
        seconds += status.seconds
        if stage.run_name is not None:
            cost = {"inferences_per_query": status.inferences_per_query or 0.0, "seconds": round(seconds, 1)}
            rows.append({"stage": stage.type_name, **next(means), **cost})
            seconds = 0.0
    return rows
