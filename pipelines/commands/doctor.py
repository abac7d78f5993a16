"""`beamrank doctor`: checks what a run needs on this machine."""

import importlib.metadata
import platform
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import psutil

from beamrank.errors import BeamrankError, PreflightError
from beamrank.machine import usable_cores
from beamrank.storage.urls import hide_credentials
from beamrank.version import __version__
from models.checkpoints.check import resolve_checkpoint
from models.checkpoints.disk_cache import cache_root
from models.lucene.jvm import java_home
from models.scoring.backends.registry import find_backend
from pipelines.console.tables import print_table


class Finding(NamedTuple):
    """The result of one check."""

    what: str
    found: str
    ok: bool


def doctor() -> None:
    """Check this machine: Python, Java, models, memory, disk. Exit code 3 if a check fails."""
    findings = [_look(what, look) for what, look in _LOOKS]
    rows = [[each.what, "ok" if each.ok else "MISSING", hide_credentials(each.found)] for each in findings]
    print_table(["check", "state", "found"], rows)
    bad = [finding.what for finding in findings if not finding.ok]
    if bad:
        raise PreflightError(f"check failed: {', '.join(bad)}")


def _look(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, look(), ok=True)
    except (BeamrankError, OSError, importlib.metadata.PackageNotFoundError) as error:
        return Finding(what, str(error), ok=False)


def _python() -> str:
    return f"{platform.python_version()} on {platform.platform()}"


def _versions() -> str:
    names = ("apache-beam", "pyarrow", "torch", "transformers", "tokenizers", "pyserini", "ir_measures")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


def _java() -> str:
    runtime = java_home()
    return f"Java {runtime.version} from {runtime.source}: {runtime.home}"


def _scoring() -> str:
    found = find_backend("torch").resolve("auto", "auto")
    return f"{found.device}, dtype auto is {found.dtype}, {usable_cores()} cores"


def _embedded() -> str:
    return ", ".join(
        f"embedded:{kind} {resolve_checkpoint(f'embedded:{kind}', kind).digest[:12]}" for kind in ("mono", "duo")
    )


def _memory() -> str:
    memory = psutil.virtual_memory()
    return f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free"


def _disk() -> str:
    with tempfile.TemporaryFile() as probe:
        probe.write(b"beamrank")
    return f"{psutil.disk_usage(tempfile.gettempdir()).free / 2**30:.0f} GiB free for temporary files"


def _cache() -> str:
    folder = cache_root()
    state = "exists" if folder.exists() else "created when needed"
    return f"{folder} ({state})"


_LOOKS: list[tuple[str, Callable[[], str]]] = [
    ("beamrank", lambda: __version__),
    ("Python", _python),
    ("libraries", _versions),
    ("Java 21 or later", _java),
    ("scoring", _scoring),
    ("embedded checkpoints", _embedded),
    ("memory", _memory),
    ("disk", _disk),
    ("cache", _cache),
]
