"""Outputs of releases, which all later versions must read: `python -m infra.release.outputs` keeps
that of this one.

Run it once for each release, when its version and its `ENGINE_VERSION` are final.
"""

import os
import socket
import tarfile
import tempfile
from pathlib import Path
from unittest import mock

from beamrank.version import __version__
from tests import ROOT
from tests.support.checkpoints import Pair
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection

KEPT = ROOT / "tests/support/data/releases"
_QUERIES = list(TOPICS)[:4]
_DEPTH = 4


def keep(into: Path = KEPT) -> Path:
    """Runs a cascade of two shards, and keeps its output with its inputs in a folder, without what
    names this machine.
    """
    candidates = {query_id: CANDIDATES[query_id][:_DEPTH] for query_id in _QUERIES}
    docs = {
        doc_id: DOCS[doc_id]
        for doc_id in sorted({doc_id for each in candidates.values() for doc_id in each})
    }
    host = mock.patch.object(socket, "gethostname", return_value="host")
    with host, tempfile.TemporaryDirectory(dir="/tmp") as folder:
        topics = {query_id: TOPICS[query_id] for query_id in _QUERIES}
        collection = SmallCollection(Path(folder), docs, topics, shards=2).given_run(
            candidates, _DEPTH
        )
        collection.with_models(Pair("embedded:mono", "embedded:duo"), mono_k=3, duo_k=2)
        judged = {query_id: each[1] for query_id, each in candidates.items()}
        collection.with_qrels(judged, ["RR@10", "nDCG@10"]).run()
        into.mkdir(parents=True, exist_ok=True)
        kept = into / f"{__version__}.tar.xz"
        with tarfile.open(kept, "w:xz") as archive:
            for name in sorted(os.listdir(folder)):
                archive.add(Path(folder) / name, name, filter=_nobody)
    return kept


def _nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def unpack(release: Path, folder: Path) -> Path:
    """Unpacks what was kept of a release into a folder; returns its output."""
    with tarfile.open(release) as archive:
        archive.extractall(folder, filter="data")
    return folder / "out"


if __name__ == "__main__":
    print(keep())
