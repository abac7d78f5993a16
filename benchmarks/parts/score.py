"""Scoring: monoBERT pairs per second, from texts to log-odds, against CrossEncoder with the same
checkpoint and pairs.

Both sides alternate in one process, with the same number of torch threads. Inputs are equal to the
token, with CrossEncoder's truncation, `hf`; the inputs and the log-odds are compared
(`same_inputs`).
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.join.schemas import candidates_table
from beamrank.machine import usable_cores
from beamrank.ranking.input_layout import MAX_DOC_TOKENS, InputLimits, PackedInputs
from beamrank.records import Topic
from benchmarks.peers import CrossEncoderPeer, CrossEncoderSetting, Pair
from benchmarks.results import Part, Target
from benchmarks.same_inputs import Input, check_inputs, check_log_odds, packed_inputs
from benchmarks.subprocess_meter import run_apart
from benchmarks.workspace import Workspace
from models.checkpoints.checkpoint import Checkpoint, resolve_checkpoint
from models.lucene.bm25 import Bm25Searcher
from models.reranker import tokenize_shard
from models.scoring.backends.registry import default_token_budget, find_backend
from models.scoring.engine import (
    Scores,
    ScoringEngine,
    StageCounts,
)
from models.scoring.mono import prepare_mono
from models.tokenizers.library import load_tokenizer

_LIMITS = InputLimits("hf", 64, 512)
_BATCH_SIZES = (8, 16, 32, 64, 128)
_TRIED_SHARE = 4
_EXACT_SHARE = 16
_WANTED_RATIO = 1.0


@dataclass(frozen=True)
class Job:
    """Topics sorted by query_id, with the doc_ids of their candidates in rank order, and the
    texts.
    """

    checkpoint: str
    topics: tuple[Topic, ...]
    candidates: tuple[tuple[str, ...], ...]
    texts: dict[str, str]
    threads: int
    rounds: int

    @property
    def pairs(self) -> list[Pair]:
        """(query, passage) texts, in the order of the scores."""
        return [
            (topic.text, self.texts[doc_id])
            for topic, doc_ids in zip(self.topics, self.candidates, strict=True)
            for doc_id in doc_ids
        ]


def measure(workspace: Workspace) -> Part:
    """Pairs per second of the engine, and of CrossEncoder with its defaults and with its best
    setting.
    """
    figures = run_apart(compare, _job(workspace))
    rates = figures["pairs_per_second"]
    of_best = round(rates["beamrank, auto"] / rates["CrossEncoder, best"], 3)
    of_float32 = round(rates["beamrank, float32"] / rates["CrossEncoder, best in float32"], 3)
    of_default = round(rates["beamrank, auto"] / rates["CrossEncoder, defaults"], 3)
    return Part(
        figures={
            **figures,
            "ratio_defaults": of_default,
            "ratio_best": of_best,
            "ratio_best_float32": of_float32,
        },
        targets=(
            Target(
                "mono pairs/s over CrossEncoder at its best", of_best, "at least", _WANTED_RATIO
            ),
            Target(
                "mono pairs/s over CrossEncoder at its best, both float32",
                of_float32,
                "at least",
                _WANTED_RATIO,
            ),
        ),
    )


def _job(workspace: Workspace) -> Job:
    """The BM25 candidates of as many topics as the number of pairs requires."""
    depth = workspace.settings.depths.mono
    topics = sorted(workspace.topics[: -(-workspace.settings.pairs // depth)])
    passages = dict(workspace.squad.passages)
    candidates = run_apart(retrieve_candidates, str(workspace.index()), topics, depth)
    return Job(
        checkpoint="embedded:mono",
        topics=tuple(topics),
        candidates=tuple(tuple(candidates.get(topic.query_id, ())) for topic in topics),
        texts={doc_id: passages[doc_id] for found in candidates.values() for doc_id in found},
        threads=usable_cores(),
        rounds=workspace.settings.rounds,
    )


def retrieve_candidates(index: str, topics: Sequence[Topic], k: int) -> dict[str, list[str]]:
    """The doc_ids of each topic, best first."""
    found: dict[str, list[str]] = {}
    for row in Bm25Searcher(index, 0.9, 0.4, usable_cores()).search(topics, k).to_pylist():
        found.setdefault(row["query_id"], []).append(row["doc_id"])
    return found


def compare(job: Job) -> dict[str, Any]:
    """Finds CrossEncoder's best setting on a part of the pairs, then measures each side on all of
    them.
    """
    import torch

    torch.set_num_threads(job.threads)
    pairs = job.pairs
    device, auto, _ = find_backend("torch").resolve("auto", "auto")
    folder = resolve_checkpoint(job.checkpoint, "mono").folder
    ours = {dtype: _Ours(job, device, dtype) for dtype in {"float32", auto}}
    default = CrossEncoderPeer(folder, CrossEncoderSetting(), device, _LIMITS.max_length)
    check_inputs(ours["float32"].inputs(), default.inputs(pairs))
    tried = _try_settings(folder, pairs[::_TRIED_SHARE], device)
    best = max(tried, key=lambda setting: tried[setting])
    best_float32 = max(
        (setting for setting in tried if setting.dtype == "float32"),
        key=lambda setting: tried[setting],
    )
    peers = {CrossEncoderSetting(): default} | {
        setting: CrossEncoderPeer(folder, setting, device, _LIMITS.max_length)
        for setting in {best, best_float32} - {CrossEncoderSetting()}
    }
    sides: dict[Any, Callable[[], npt.NDArray[np.float32]]] = {
        name: each.score for name, each in ours.items()
    }
    sides |= {setting: lambda peer=peer: peer.score(pairs) for setting, peer in peers.items()}  # type: ignore[misc]
    seconds, scores = _alternate(sides, job.rounds)
    mine, theirs = scores["float32"], scores[CrossEncoderSetting()]
    check_log_odds(
        mine, theirs, theirs[::_EXACT_SHARE] - _exact_scores(folder, pairs[::_EXACT_SHARE], device)
    )
    rates = {side: round(len(pairs) / each, 1) for side, each in seconds.items()}
    return {
        "pairs": len(pairs),
        "tokens_per_pair": round(ours["float32"].tokens / len(pairs), 1),
        "device": device,
        "threads": job.threads,
        "auto_dtype": auto,
        "best_setting": str(best),
        "best_setting_float32": str(best_float32),
        "largest_difference_float32": float(np.abs(mine - theirs).max()),
        "pairs_per_second": {
            "beamrank, auto": rates[auto],
            "beamrank, float32": rates["float32"],
            "CrossEncoder, defaults": rates[CrossEncoderSetting()],
            "CrossEncoder, best": rates[best],
            "CrossEncoder, best in float32": rates[best_float32],
        },
        "settings_tried": {str(setting): round(rate, 1) for setting, rate in tried.items()},
    }


def _exact_scores(folder: str, pairs: Sequence[Pair], device: str) -> npt.NDArray[np.float32]:
    """float32[n] log-odds, computed in float64."""
    return CrossEncoderPeer(
        folder, CrossEncoderSetting(dtype="float64"), device, _LIMITS.max_length
    ).score(pairs)


class _NotScoring(ScoringEngine):
    """Keeps its inputs and scores nothing, so it needs no weights."""

    given: PackedInputs

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    def score(self, inputs: PackedInputs) -> Scores:
        self.given = inputs
        return Scores(np.zeros(len(inputs), np.float32), 0, 0, 0, 0)


class _Ours:
    """The tokenize and mono stages on a shard of these pairs."""

    def __init__(self, job: Job, device: str, dtype: str) -> None:
        self._job = job
        self._checkpoint = resolve_checkpoint(job.checkpoint, "mono")
        self._engine = ScoringEngine(
            self._checkpoint, device, dtype, job.threads, default_token_budget(device)
        )
        self.tokens = 0

    def inputs(self) -> set[Input]:
        """The inputs of the model."""
        engine = _NotScoring(self._checkpoint)
        self._score_with(engine)
        return packed_inputs(engine.given)

    def score(self) -> npt.NDArray[np.float32]:
        """float32[n] log-odds; the tokenizer starts with an empty cache of words."""
        scored, counts = self._score_with(self._engine)
        self.tokens = counts.tokens
        log_odds: npt.NDArray[np.float32] = scored["score"].to_numpy()
        return log_odds

    def _score_with(self, engine: ScoringEngine) -> tuple[pa.Table, StageCounts]:
        table = self._tokenize()
        received = dict(
            zip((topic.query_id for topic in self._job.topics), self._job.candidates, strict=True)
        )
        prepared = prepare_mono(engine.checkpoint.architecture, table, received, _LIMITS)
        return prepared.finish(engine.score(prepared.inputs))

    def _tokenize(self) -> pa.Table:
        job, tokenizer = self._job, load_tokenizer(self._checkpoint.folder)
        queries = {topic.query_id: topic.text for topic in job.topics}
        candidates = candidates_table(list(queries), job.candidates)
        return tokenize_shard(tokenizer, queries, candidates, job.texts, MAX_DOC_TOKENS)


def _try_settings(
    folder: str, pairs: Sequence[Pair], device: str
) -> dict[CrossEncoderSetting, float]:
    """Pairs per second of each batch size, then of the other attention and dtypes at the best batch
    size.
    """
    tried: dict[CrossEncoderSetting, float] = {}

    def attempt(setting: CrossEncoderSetting) -> None:
        peer = CrossEncoderPeer(folder, setting, device, _LIMITS.max_length)
        peer.score(pairs[: setting.batch_size])
        start = time.perf_counter()
        peer.score(pairs)
        tried[setting] = len(pairs) / (time.perf_counter() - start)

    for batch_size in _BATCH_SIZES:
        attempt(CrossEncoderSetting(batch_size))
    best = max(tried, key=lambda setting: tried[setting])
    attempt(replace(best, attention="eager"))
    for dtype in ("bfloat16", "float16") if device == "cuda" else ("bfloat16",):
        attempt(replace(best, dtype=dtype))
    return tried


def _alternate(
    sides: dict[Any, Callable[[], npt.NDArray[np.float32]]], rounds: int
) -> tuple[dict[Any, float], dict[Any, npt.NDArray[np.float32]]]:
    """The median seconds of each side, alternating in each round, and its scores."""
    seconds: dict[Any, list[float]] = {side: [] for side in sides}
    scores = {}
    for _ in range(rounds):
        for side, score in sides.items():
            start = time.perf_counter()
            scores[side] = score()
            seconds[side].append(time.perf_counter() - start)
    return {side: statistics.median(each) for side, each in seconds.items()}, scores
