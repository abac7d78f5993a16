"""`beamrank doctor` checks this machine, or with `--checkpoint` whether a checkpoint ranks as it
should.
"""

import importlib.metadata
import json
import platform
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import cycle, islice
from typing import Annotated

import psutil

from beamrank.config.stages import ModelConfig
from beamrank.config.yaml import check_document, read_document
from beamrank.demo.collection import demo_questions, stdlib_docs
from beamrank.errors import BeamrankError, ConfigError, PreflightError
from beamrank.machine import describe_machine, usable_cores, usable_memory_bytes
from beamrank.ranking.input_layout import TEXT_COUNTS
from beamrank.storage.disk_cache import cache_root
from beamrank.storage.urls import hide_credentials
from beamrank.version import __version__
from models.lucene.jvm import anserini_jar, call, java_home
from pipelines.commands.arguments import AsJson, CheckpointOptions, one_of, option
from pipelines.console.tables import print_table
from pipelines.console.terminal import write_line

HELP_PANEL = "Tools"

_LIBRARIES = (
    "apache-beam",
    "pyarrow",
    "torch",
    "transformers",
    "tokenizers",
    "pyserini",
    "ir_measures",
)
_WARM_PAIRS, _TIMED_PAIRS = 64, 512


def doctor(
    checkpoint: Annotated[
        str | None,
        option(
            "Check this checkpoint in place of the machine: a folder, a URL or a Hugging Face id."
        ),
    ] = None,
    kind: Annotated[
        str | None, one_of("--kind", TEXT_COUNTS, "How the checkpoint is used; by default mono.")
    ] = None,
    options: CheckpointOptions = None,
    as_json: AsJson = False,
) -> None:
    """Check this machine (exit code 3 if a check fails), or whether a checkpoint ranks as it should
    (1 if not).

    Of the machine: Python, Java, models, speed, memory, disk. Of a checkpoint: its scores against
    transformers and in each dtype, what surrounds the texts, what is cut, ties, and 40 queries with
    a relevant and another text.
    """
    if checkpoint is None:
        if kind is not None:
            raise ConfigError("--kind says how a --checkpoint is used: give one")
        rows, bad = _machine()
        _show(
            rows,
            {"checks": [dict(zip(("check", "state", "found"), row, strict=True)) for row in rows]},
            as_json,
        )
        if bad:
            raise PreflightError(f"check failed: {', '.join(bad)}")
        return
    # They import torch, and other checks say where that cannot be done.
    from contrib.doctor.checkpoint import WRONG, check_checkpoint

    document = read_document({"checkpoint": checkpoint}, ModelConfig, options or ())
    section = check_document(document, ModelConfig, "beamrank doctor")
    findings = check_checkpoint(checkpoint, kind or "mono", section.options)
    rows = [[finding.check, finding.state, finding.found] for finding in findings]
    checks = [
        {"check": finding.check, "state": finding.state, "found": finding.found, **finding.figures}
        for finding in findings
    ]
    _show(rows, {"checkpoint": checkpoint, "kind": kind or "mono", "checks": checks}, as_json)
    if wrong := [finding.check for finding in findings if finding.state == WRONG]:
        raise BeamrankError(f"{checkpoint} does not rank as it should: {', '.join(wrong)}")


def _show(rows: Iterable[list[str]], result: object, as_json: bool) -> None:
    if as_json:
        write_line(json.dumps(result, ensure_ascii=False, allow_nan=False))
    else:
        print_table(["check", "state", "found"], list(rows))


def _machine() -> tuple[list[list[str]], list[str]]:
    """The rows of the checks of this machine, and the rows that fail."""
    rows, bad = [], []
    for what, look in CHECKS.items():
        try:
            state, shown = "ok", look()
        except (BeamrankError, OSError, importlib.metadata.PackageNotFoundError) as error:
            state, shown = "MISSING", str(error)
            bad.append(what)
        rows.append([what, state, hide_credentials(shown)])
    return rows, bad


def _java() -> str:
    runtime = java_home()
    return f"Java {runtime.version} from {runtime.source}: {runtime.home}"


def _lucene() -> str:
    """Starts Java."""

    def version() -> str:
        import jnius

        return str(jnius.autoclass("org.apache.lucene.util.Version").LATEST.toString())

    return f"{call(version)} in {anserini_jar().name}"


def _gpus() -> str:
    from models.scoring.backends.torch import why_not_used

    if reason := why_not_used():
        raise PreflightError(f"{reason}: see docs/guide/gpus.md")
    return ", ".join(describe_machine().gpus) or "none"


def _scoring() -> str:
    from models.scoring.backends.registry import find_backend

    settings = find_backend("torch").resolve("auto", "auto")
    return f"{settings.device}, dtype auto is {settings.dtype}, {usable_cores()} cores"


def _kernels() -> str:
    from models.architectures.kernels.compiled import load_kernels, why_torch

    kernels = load_kernels()
    return (
        f"attention by torch: {why_torch()}"
        if kernels is None
        else f"attention is compiled, for {kernels.kind}"
    )


def _speed() -> str:
    """Scores passages of the demo, after some that warm the model up."""
    from models.reranker import Reranker, score_texts

    reranker = Reranker("embedded:mono")
    for count in (_WARM_PAIRS, _TIMED_PAIRS):
        questions = islice(cycle(demo_questions()), count)
        columns = [
            [question.text for question in questions],
            [doc.text for doc in stdlib_docs()[:count]],
        ]
        start = time.monotonic()
        _, counts = score_texts(reranker.engine, reranker.tokenizer, reranker.limits, columns)
        rate, tokens = count / (time.monotonic() - start), counts.tokens / counts.inferences
    return (
        f"embedded:mono scores {rate:.0f} pairs/s of {tokens:.0f} tokens; for other "
        "models, `beamrank plan` tells the pace after a trial"
    )


def _embedded() -> str:
    from models.checkpoints.checkpoint import resolve_checkpoint

    names = ((f"embedded:{kind}", kind) for kind in ("mono", "duo"))
    return ", ".join(f"{name} {resolve_checkpoint(name, kind).digest[:12]}" for name, kind in names)


def _memory() -> str:
    total = usable_memory_bytes()
    free = min(psutil.virtual_memory().available, total)
    return f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"


def _disk() -> str:
    with tempfile.TemporaryFile() as probe:
        probe.write(b"beamrank")
    return (
        f"{psutil.disk_usage(tempfile.gettempdir()).free / 2**30:.0f} GiB free for temporary files"
    )


CHECKS: dict[str, Callable[[], str]] = {
    "beamrank": lambda: __version__,
    "Python": lambda: f"{platform.python_version()} on {platform.platform()}",
    "libraries": lambda: ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in _LIBRARIES
    ),
    "Java 21 or later": _java,
    "Lucene": _lucene,
    "GPUs": _gpus,
    "scoring": _scoring,
    "kernels": _kernels,
    "speed": _speed,
    "embedded checkpoints": _embedded,
    "memory": _memory,
    "disk": _disk,
    "cache": lambda: (
        f"{cache_root()} ({'exists' if cache_root().exists() else 'created when needed'})"
    ),
}
"""The checks of `beamrank doctor`; each tells what it found, or raises an error."""
