"""Outputs of releases, which all later versions must read: `python -m infra.release.outputs` keeps
that of this one.

Run it once for each release, when its version and its `ENGINE_VERSION` are final.
"""

import json
import os
import re
import socket
import tarfile
import tempfile
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

import beamrank
from beamrank.version import __version__
from tests import ROOT
from tests.contrib.generators.cases import GENERATORS, save_generator
from tests.support.archives import unpack
from tests.support.checkpoints import Pair
from tests.support.processes import succeed
from tests.support.small_collection import DOCS, TOPICS, SmallCollection

KEPT = ROOT / "tests/support/data/releases"
_LEFT_OUT = re.compile(r"\.|(index|generator|\w+/logs)(/|$)")
_QUERIES = list(TOPICS)[:4]


def keep(into: Path = KEPT) -> Path:
    """Makes the outputs of this version, and keeps them with their inputs, without indexes,
    checkpoints and what names this machine.

    `out` is a cascade of two shards with BM25 and segments of docs. `deepened` goes deeper for some
    topics and compares some pairs, `instructed` has an instruction for each topic, and `pairs`
    holds the scores of `beamrank score`.
    """
    host = mock.patch.object(socket, "gethostname", return_value="host")
    with host, tempfile.TemporaryDirectory(dir="/tmp") as folder:
        collection = _cascade(Path(folder))
        collection.run()
        _deepen(collection)
        _instruct(collection)
        _score_pairs(collection)
        into.mkdir(parents=True, exist_ok=True)
        kept = into / f"{__version__}.tar.xz"
        with tarfile.open(kept, "w:xz") as archive:
            for name in sorted(os.listdir(folder)):
                archive.add(Path(folder) / name, name, filter=_kept)
    return kept


def _cascade(folder: Path) -> SmallCollection:
    docs = dict(list(DOCS.items())[:12])
    topics = {query_id: TOPICS[query_id] for query_id in _QUERIES}
    collection = SmallCollection(folder, docs, topics, shards=2).with_index(k=8)
    collection.with_models(Pair("embedded:mono", "embedded:duo"), mono_k=6, duo_k=3)
    collection.keys["mono"]["segments"] = {"length_tokens": 40, "stride_tokens": 20, "limit": 4}
    return collection.with_qrels(dict.fromkeys(topics, "d3"), ["RR@10", "nDCG@10"])


def _deepen(collection: SmallCollection) -> None:
    # Of mono some of six docs for each topic, of duo an opponent for each of three.
    most = len(_QUERIES) * (4 + 3)
    beamrank.run(
        str(collection.path),
        output=collection.folder / "deepened",
        set={"mono.segments": None, "duo.aggregation": "sample", "duo.opponents": 1},
        limits={"max_inferences": most},
        options={"deepen": True},
    )


def _instruct(collection: SmallCollection) -> None:
    """With a language model of random weights."""
    rows = (
        {"id": query_id, "text": text, "instruction": f"Find {text.split()[0]}"}
        for query_id, text in collection.topics.items()
    )
    collection.write("instructed.jsonl", map(json.dumps, rows))
    keys = {
        "topics.path": str(collection.folder / "instructed.jsonl"),
        "topics.format": "jsonl",
        "mono.checkpoint": save_generator(collection.folder / "generator", "Qwen3"),
        "mono.instruction": "{instruction}",
        "mono.segments": None,
        "duo": None,
    }
    keys |= {f"mono.{key}": value for key, value in GENERATORS["Qwen3"].options.items()}
    overrides = [f"{key}={json.dumps(value)}" for key, value in keys.items()]
    collection.run(*overrides, output=collection.folder / "instructed")


def _score_pairs(collection: SmallCollection) -> None:
    docs = [*DOCS.values()][: len(_QUERIES)]
    pairs = {"id": _QUERIES, "query": [*collection.topics.values()], "doc": docs}
    pq.write_table(pa.table(pairs), collection.folder / "pairs.parquet")
    command = ("score", collection.folder / "pairs.parquet", "--checkpoint", "embedded:mono")
    options = ("--dtype", "float32", "--kernel", "torch", "--threads", "1", "--shard-rows", "3")
    succeed(*command, *options, "--output", collection.folder / "pairs")


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if _LEFT_OUT.match(entry.name):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def unpack_output(release: Path, folder: Path) -> Path:
    """Unpacks what was kept of a release into a folder; returns its output."""
    unpack(release, folder)
    return folder / "out"


if __name__ == "__main__":
    print(keep())
