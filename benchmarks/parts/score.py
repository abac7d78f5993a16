"""Scoring: monoBERT pairs per second, from texts to log-odds, against CrossEncoder with the same
checkpoint and pairs.

Both sides alternate in one process, with the same number of torch threads. Inputs are equal to the
token, with CrossEncoder's truncation, `hf`: their tokens are counted, and the log-odds are compared
(`check_log_odds`).
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from beamrank.machine import usable_cores
from beamrank.ranking.input_layout import Truncation
from beamrank.records import Topic
from benchmarks.peers import MAX_LENGTH, CrossEncoderPeer, CrossEncoderSetting, Pair
from benchmarks.results import Part, Target
from benchmarks.subprocess_meter import run_apart
from benchmarks.workspace import Workspace
from models.checkpoints.checkpoint import resolve_checkpoint
from models.lucene.bm25 import Bm25Searcher
from models.reranker import Reranker, score_texts
from models.scoring.backends.registry import find_backend
from models.tokenizers.library import load_tokenizer

_TRUNCATION: Truncation = "hf"
_BATCH_SIZES = (8, 16, 32, 64, 128)
_TRIED_SHARE = 4
_EXACT_SHARE = 16
_WANTED_RATIO = 1.0
_MOST_ROUNDINGS = 3.0
"""For all pairs together: two independent sides differ by 1.4 times the error of one."""
_MOST_OF_ONE = 20.0
"""For a single pair: rounding errors have a long tail."""

LogOdds = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Job:
    """The pairs, (query, passage) texts."""

    checkpoint: str
    pairs: Sequence[Pair]
    threads: int
    rounds: int


def measure(workspace: Workspace) -> Part:
    """Pairs per second of the engine, and of CrossEncoder with its defaults and with its best
    setting.
    """
    figures = run_apart(compare, _job(workspace))
    rates = figures["pairs_per_second"]
    ratios = {
        name: round(rates[f"beamrank, {dtype}"] / rates[f"CrossEncoder, {side}"], 3)
        for name, dtype, side in (
            ("ratio_defaults", "auto", "defaults"),
            ("ratio_best", "auto", "best"),
            ("ratio_best_float32", "float32", "best in float32"),
        )
    }
    name = "mono pairs/s over CrossEncoder at its best"
    both = ratios["ratio_best_float32"]
    return Part(
        {**figures, **ratios},
        (
            Target(name, ratios["ratio_best"], "at least", _WANTED_RATIO),
            Target(f"{name}, both float32", both, "at least", _WANTED_RATIO),
        ),
    )


def _job(workspace: Workspace) -> Job:
    """The BM25 candidates of as many topics as the number of pairs requires."""
    depth = workspace.settings.depths.mono
    topics = sorted(workspace.topics[: -(-workspace.settings.pairs // depth)])
    texts, passages = dict(topics), dict(workspace.squad.passages)
    candidates = run_apart(retrieve_candidates, str(workspace.index()), topics, depth)
    pairs = [(texts[query_id], passages[doc_id]) for query_id, doc_id in candidates]
    return Job("embedded:mono", pairs, usable_cores(), workspace.settings.rounds)


def retrieve_candidates(index: str, topics: Sequence[Topic], k: int) -> list[tuple[str, str]]:
    """The doc_ids of each topic, best first."""
    table = Bm25Searcher(index, 0.9, 0.4, usable_cores()).search(topics, k)
    return list(zip(table["query_id"].to_pylist(), table["doc_id"].to_pylist(), strict=True))


def compare(job: Job) -> dict[str, Any]:
    """Finds CrossEncoder's best setting on a part of the pairs, then measures each side on all of
    them.
    """
    import torch

    torch.set_num_threads(job.threads)
    ours = {dtype: _Ours(job, dtype) for dtype in ("auto", "float32")}
    device, auto, _ = find_backend("torch").resolve("auto", "auto")
    folder = resolve_checkpoint(job.checkpoint, "mono").folder

    def peer_of(setting: CrossEncoderSetting) -> CrossEncoderPeer:
        return CrossEncoderPeer(folder, setting, device)

    default, some = CrossEncoderSetting(), job.pairs[::_TRIED_SHARE]
    ours["float32"].score(some)
    tokens, theirs = ours["float32"].tokens, peer_of(default).tokens(some)
    if tokens != theirs:
        raise RuntimeError(
            f"beamrank's inputs have {tokens:,} tokens and CrossEncoder's {theirs:,}: the rates "
            "would not be comparable"
        )
    tried = _try_settings(peer_of, some, device)
    best = {
        "CrossEncoder, defaults": default,
        "CrossEncoder, best": max(tried, key=tried.__getitem__),
        "CrossEncoder, best in float32": max(
            (setting for setting in tried if setting.dtype == "float32"), key=tried.__getitem__
        ),
    }
    peers = {setting: peer_of(setting) for setting in best.values()}
    sides: dict[Any, Callable[[Sequence[Pair]], LogOdds]] = {
        **{f"beamrank, {dtype}": each.score for dtype, each in ours.items()},
        **{setting: peer.score for setting, peer in peers.items()},
    }
    seconds, scores = _alternate(sides, job.pairs, job.rounds)
    exact = peer_of(replace(default, dtype="float64")).score(job.pairs[::_EXACT_SHARE])
    mine, other = scores["beamrank, float32"], scores[default]
    check_log_odds(mine, other, other[::_EXACT_SHARE] - exact)
    rates = {side: round(len(job.pairs) / each, 1) for side, each in seconds.items()}
    return {
        "pairs": len(job.pairs),
        "tokens_per_pair": round(ours["float32"].tokens / len(job.pairs), 1),
        "device": device,
        "threads": job.threads,
        "auto_dtype": auto,
        "best_setting": str(best["CrossEncoder, best"]),
        "best_setting_float32": str(best["CrossEncoder, best in float32"]),
        "largest_difference_float32": float(np.abs(mine - other).max()),
        "pairs_per_second": {
            **{side: rate for side, rate in rates.items() if isinstance(side, str)},
            **{side: rates[setting] for side, setting in best.items()},
        },
        "settings_tried": {str(setting): round(rate, 1) for setting, rate in tried.items()},
    }


class _Ours:
    """beamrank with a dtype; `tokens` are those of the pairs that it scored last."""

    def __init__(self, job: Job, dtype: str) -> None:
        self._reranker = Reranker(
            job.checkpoint,
            dtype=dtype,
            threads=job.threads,
            truncation=_TRUNCATION,
            max_length=MAX_LENGTH,
        )
        self._folder = resolve_checkpoint(job.checkpoint, "mono").folder
        self.tokens = 0

    def score(self, pairs: Sequence[Pair]) -> LogOdds:
        """float32[n] log-odds; the tokenizer starts with an empty cache of words."""
        tokenizer, columns = load_tokenizer(self._folder), list(zip(*pairs, strict=True))
        engine, limits = self._reranker.engine, self._reranker.limits
        log_odds, counts = score_texts(engine, tokenizer, limits, columns)
        self.tokens = counts.tokens
        return log_odds


def _try_settings(
    peer_of: Callable[[CrossEncoderSetting], CrossEncoderPeer], pairs: Sequence[Pair], device: str
) -> dict[CrossEncoderSetting, float]:
    """Pairs per second of each batch size, then of the other attention and dtypes at the best batch
    size.
    """

    def rate(setting: CrossEncoderSetting) -> float:
        peer = peer_of(setting)
        peer.score(pairs[: setting.batch_size])
        seconds, _ = _alternate({setting: peer.score}, pairs, 1)
        return len(pairs) / seconds[setting]

    tried = {setting: rate(setting) for setting in map(CrossEncoderSetting, _BATCH_SIZES)}
    best = max(tried, key=tried.__getitem__)
    dtypes = ("bfloat16", "float16") if device == "cuda" else ("bfloat16",)
    others = [replace(best, attention="eager"), *(replace(best, dtype=name) for name in dtypes)]
    return tried | {setting: rate(setting) for setting in others}


def _alternate(
    sides: dict[Any, Callable[[Sequence[Pair]], LogOdds]], pairs: Sequence[Pair], rounds: int
) -> tuple[dict[Any, float], dict[Any, LogOdds]]:
    """The median seconds of each side, alternating in each round, and its scores."""
    seconds: dict[Any, list[float]] = {side: [] for side in sides}
    scores = {}
    for _ in range(rounds):
        for side, score in sides.items():
            start = time.perf_counter()
            scores[side] = score(pairs)
            seconds[side].append(time.perf_counter() - start)
    return {side: statistics.median(each) for side, each in seconds.items()}, scores


def check_log_odds(ours: LogOdds, theirs: LogOdds, theirs_off: LogOdds) -> None:
    """Checks that float32 log-odds differ by rounding alone. Its size depends on the checkpoint:
    1e-5 for a trained one, 1e-2 for `embedded:mono`.

    Args:
        ours: float32[n].
        theirs: float32[n].
        theirs_off: float32[m], the error of theirs against float64, for a sample of the pairs.

    Raises:
        RuntimeError: they differ by more than rounding.
    """
    rounding, differences = _root_mean_square(theirs_off), ours - theirs
    difference, largest = _root_mean_square(differences), float(np.abs(differences).max())
    if not (difference <= _MOST_ROUNDINGS * rounding and largest <= _MOST_OF_ONE * rounding):
        raise RuntimeError(
            "beamrank's and CrossEncoder's float32 log-odds of the same inputs differ by "
            f"{difference:.2g} (root mean square) and by {largest:.2g} at most; rounding, "
            f"{rounding:.2g} in CrossEncoder's, explains no more than {_MOST_ROUNDINGS:g} and "
            f"{_MOST_OF_ONE:g} times that"
        )


def _root_mean_square(values: npt.NDArray[np.floating]) -> float:
    return float(np.sqrt(np.square(values, dtype=np.float64).mean()))
