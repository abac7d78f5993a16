"""Seconds and peak memory of a training's start on data with the shape of TREC CAR's.

Ten candidates and three judgments a topic, in four files of qrels; as many passages as pairs, short
ones, because memory does not depend on their lengths. Each row is one `beamrank train mono` of a
few steps; it first mines all pairs.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml

from benchmarks.outputs import part_of
from benchmarks.results import Part
from benchmarks.subprocess_meter import BEAMRANK, run_metered
from benchmarks.synthetic import vocabulary

_MILLION = 1_000_000
_K, _JUDGED, _FOLDS = 10, 3, 4
_STEPS, _BATCH = 3, 32
_WANTED_MIB = 4000
_AT_ONCE = 100_000
_HALVES, _WORDS_OF_A_HALF = 6000, 5
_SEED = 20_261_124


def measure(options: argparse.Namespace, work: Path) -> Iterator[tuple[str, Part]]:
    """Yields a part for each number of pairs."""
    for millions in options.mined_pairs:
        pairs = round(millions * _MILLION)
        print(f"{pairs:,} pairs", file=sys.stderr)
        config = write_collection(work / "mining", pairs)
        usage = run_metered([BEAMRANK, "train", "mono", config, "--quiet"])
        shutil.rmtree(work / "mining")
        yield (
            f"{pairs:,} pairs",
            part_of(usage, None, _WANTED_MIB, pairs=pairs, topics=pairs // _K),
        )


def write_collection(folder: Path, pairs: int) -> Path:
    """Writes corpus, qrels, run and configuration; candidates and positives are drawn evenly from
    all passages.
    """
    folder.mkdir(parents=True)
    topics = pairs // _K
    _write_corpus(folder / "corpus.tsv", pairs)
    rng = np.random.default_rng(_SEED)
    with (folder / "run.trec").open("w", encoding="ascii") as run:
        for start in range(0, topics, _AT_ONCE):
            drawn = rng.integers(
                pairs // _K, size=(min(_AT_ONCE, topics - start), _K)
            ) * _K + np.arange(_K)
            run.writelines(
                f"{_topic(topic)} Q0 p{doc:09d} {rank} {_K - rank} drawn\n"
                for topic, docs in enumerate(drawn.tolist(), start)
                for rank, doc in enumerate(docs, 1)
            )
    for fold, numbers in enumerate(np.array_split(np.arange(topics), _FOLDS)):
        drawn = rng.integers(pairs // _JUDGED, size=(len(numbers), _JUDGED)) * _JUDGED + np.arange(
            _JUDGED
        )
        with (folder / f"fold-{fold}.qrels").open("w", encoding="ascii") as qrels:
            qrels.writelines(
                f"{_topic(topic)} 0 p{doc:09d} 1\n"
                for topic, docs in zip(numbers.tolist(), drawn.tolist(), strict=True)
                for doc in docs
            )
    return _write_config(folder)


def _topic(number: int) -> str:
    """An id as long as TREC CAR's."""
    return f"enwiki:Article%20{number // 5:07d}/A%20section%20with%20a%20heading/Number%20{number}"


def _write_corpus(path: Path, passages: int) -> None:
    # Each passage joins another two of these: candidates with equal texts would count once.
    drawn = np.random.default_rng(_SEED + 1).choice(vocabulary(), size=(_HALVES, _WORDS_OF_A_HALF))
    halves = [" ".join(row) for row in drawn]
    with path.open("w", encoding="ascii") as file:
        for start in range(0, passages, _AT_ONCE):
            numbers = range(start, min(start + _AT_ONCE, passages))
            file.writelines(
                f"p{number:09d}\t{halves[number % _HALVES]} {halves[number // _HALVES]}\n"
                for number in numbers
            )


def _write_config(folder: Path) -> Path:
    values = {
        "recipe": "car",
        "start": "embedded:mono",
        "data": {
            "corpus": {"path": "corpus.tsv", "format": "tsv"},
            "run": "run.trec",
            "topics": {"path": "fold-*.qrels", "format": "car-qrels"},
            "qrels": "fold-*.qrels",
        },
        "input": {"max_length": 64, "max_query_length": 32},
        "optimizer": {"steps": _STEPS, "warmup_steps": 1, "batch_size": _BATCH},
        "output": "out",
    }
    path = folder / "train.yaml"
    path.write_text(yaml.safe_dump(values))
    return path
