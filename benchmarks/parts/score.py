"""Scoring: monoBERT pairs per second, from texts to log-odds, against CrossEncoder with the same
checkpoint and pairs.

Every side has a process of its own with the same number of torch threads, all of them in turn
(`benchmarks.engine`). Inputs are equal to the token, with CrossEncoder's truncation, `hf`: their
tokens are counted, and the log-odds are compared.
"""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from beamrank.machine import usable_cores
from beamrank.records import Topic
from benchmarks.engine import engines
from benchmarks.engine.sorted_batches import Scored
from benchmarks.peers import CrossEncoderPeer, CrossEncoderSetting, Pair
from benchmarks.results import Part, Target
from benchmarks.subprocess_meter import run_apart
from benchmarks.workspace import Workspace
from models.checkpoints.checkpoint import resolve_checkpoint
from models.lucene.bm25 import Bm25Searcher
from models.scoring.backends.registry import find_backend

_SETTINGS = [
    CrossEncoderSetting(size, dtype)
    for dtype in ("float32", "bfloat16")
    for size in (8, 16, 32, 64, 128)
]
_TRIED_SHARE = 4
_WANTED_RATIO = 1.0
# Ten times what rounding changed in log-odds of the embedded pair.
_MOST_ROUNDING = 0.006


def measure(workspace: Workspace) -> Part:
    """Pairs per second of the engine, and of CrossEncoder with its defaults and with the setting
    that is best on a part of the pairs.
    """
    device, auto, *_ = find_backend("torch").resolve("auto", "auto")
    pairs, place = _pairs(workspace), engines.Place(device, usable_cores())
    model = engines.Model(resolve_checkpoint("embedded:mono", "mono").folder, "mono")

    def time_pass(load: Callable[..., engines.Score], some: Sequence[Pair]) -> engines.Measured:
        return run_apart(engines.measure, load, model, some, place, 1)

    tried = {
        setting: time_pass(partial(engines.cross_encoder, setting), pairs[::_TRIED_SHARE])
        for setting in _SETTINGS
    }
    best = sorted(tried, key=lambda setting: tried[setting].seconds)
    best_float32 = next(setting for setting in best if setting.dtype == "float32")
    sides: dict[str, Callable[..., engines.Score]] = {
        "beamrank, auto": partial(engines.beamrank, "auto"),
        "beamrank, float32": partial(engines.beamrank, "float32"),
        "CrossEncoder, defaults": partial(engines.cross_encoder, CrossEncoderSetting()),
        "CrossEncoder, best": partial(engines.cross_encoder, best[0]),
        "CrossEncoder, best in float32": partial(engines.cross_encoder, best_float32),
    }
    rounds = [
        {side: time_pass(load, pairs) for side, load in sides.items()}
        for _ in range(workspace.settings.rounds)
    ]
    seconds = {side: statistics.median(row[side].seconds for row in rounds) for side in sides}
    ours, theirs = (rounds[0][side].scored for side in list(sides)[1:3])
    tokens = run_apart(count_tokens, model.folder, pairs)
    ratios = {
        "ratio_defaults": seconds["CrossEncoder, defaults"] / seconds["beamrank, auto"],
        "ratio_best": seconds["CrossEncoder, best"] / seconds["beamrank, auto"],
        "ratio_best_float32": seconds["CrossEncoder, best in float32"]
        / seconds["beamrank, float32"],
    }
    ratios = {name: round(ratio, 3) for name, ratio in ratios.items()}
    figures: dict[str, Any] = {
        "pairs": len(pairs),
        "tokens_per_pair": round(tokens / len(pairs), 1),
        "device": device,
        "threads": place.threads,
        "auto_dtype": auto,
        "best_setting": str(best[0]),
        "best_setting_float32": str(best_float32),
        "largest_difference_float32": check_same(ours, theirs, tokens),
        "pairs_per_second": {side: round(len(pairs) / took, 1) for side, took in seconds.items()},
    }
    name = "mono pairs/s over CrossEncoder at its best"
    both = f"{name}, both float32"
    return Part(
        figures | ratios,
        (
            Target(name, ratios["ratio_best"], "at least", _WANTED_RATIO),
            Target(both, ratios["ratio_best_float32"], "at least", _WANTED_RATIO),
        ),
    )


def _pairs(workspace: Workspace) -> list[Pair]:
    """The BM25 candidates of as many topics as the number of pairs requires."""
    depth = workspace.settings.depths.mono
    topics = sorted(workspace.topics[: -(-workspace.settings.pairs // depth)])
    texts, passages = dict(topics), dict(workspace.squad.passages)
    candidates = run_apart(retrieve_candidates, str(workspace.index()), topics, depth)
    return [(texts[query_id], passages[doc_id]) for query_id, doc_id in candidates]


def retrieve_candidates(index: str, topics: Sequence[Topic], k: int) -> list[tuple[str, str]]:
    """The doc_ids of each topic, best first."""
    table = Bm25Searcher(index, 0.9, 0.4, usable_cores()).search(topics, k)
    return list(zip(table["query_id"].to_pylist(), table["doc_id"].to_pylist(), strict=True))


def count_tokens(folder: str, pairs: Sequence[Pair]) -> int:
    """The tokens of the distinct inputs that CrossEncoder makes of some pairs."""
    return CrossEncoderPeer(folder, CrossEncoderSetting(), "cpu").tokens(pairs)


def check_same(ours: Scored, theirs: Scored, tokens: int) -> float:
    """The largest difference of the float32 log-odds of both sides; `tokens` are CrossEncoder's.

    Raises:
        RuntimeError: they scored other inputs, or differ by more than rounding.
    """
    difference = float(np.abs(ours.log_odds - theirs.log_odds).max())
    if ours.tokens != tokens or not difference <= _MOST_ROUNDING:
        raise RuntimeError(
            f"beamrank's inputs have {ours.tokens:,} tokens and CrossEncoder's {tokens:,}, and "
            f"their log-odds differ by {difference:.2g}: the rates would not be comparable"
        )
    return difference
