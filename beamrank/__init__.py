"""beamrank: distributed batch re-ranking on Apache Beam.

docs/guide/python.md documents every name below with an example and its output. A name is imported
on first use, so that `import beamrank` takes milliseconds: torch and Beam take seconds.
"""

import importlib
from typing import TYPE_CHECKING, Any

from beamrank.plugins import check_packages
from beamrank.version import __version__

if TYPE_CHECKING:
    from beamrank.api import evaluate, read_qrels, read_run, write_run
    from beamrank.errors import BeamrankError, ConfigError, DataError, PreflightError, ReceiptError
    from beamrank.records import Doc, Topic
    from models.rerank import rerank
    from models.reranker import Reranker
    from pipelines.execute import run
    from pipelines.runs.aggregate import aggregate

__all__ = [
    "BeamrankError",
    "ConfigError",
    "DataError",
    "Doc",
    "PreflightError",
    "ReceiptError",
    "Reranker",
    "Topic",
    "__version__",
    "aggregate",
    "evaluate",
    "read_qrels",
    "read_run",
    "rerank",
    "run",
    "write_run",
]

_HOMES = {
    "beamrank.api": ("evaluate", "read_qrels", "read_run", "write_run"),
    "beamrank.errors": (
        "BeamrankError",
        "ConfigError",
        "DataError",
        "PreflightError",
        "ReceiptError",
    ),
    "beamrank.records": ("Doc", "Topic"),
    "models.rerank": ("rerank",),
    "models.reranker": ("Reranker",),
    "pipelines.runs.aggregate": ("aggregate",),
    "pipelines.execute": ("run",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not _HOME_OF[name].startswith("beamrank."):
        check_packages()
    globals()[name] = value = getattr(importlib.import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
