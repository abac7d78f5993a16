"""Scores that earlier runs have stored: inputs with the same token ids are not scored again."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from beamrank.ranking.input_layout import Lengths, PackedInputs
from models.checkpoints.checkpoint import Checkpoint
from models.scoring.engine import Scorer, Scores
from models.scoring.packing import number_texts


@dataclass(frozen=True)
class KnownScores:
    """Inputs that were scored with the same checkpoint and special tokens, and their float32[n] log-odds."""

    inputs: PackedInputs
    log_odds: npt.NDArray[np.float32]


class KnownScorer:
    """A `Scorer` that takes log-odds from `known`, and leaves the other inputs to an engine, loaded if there are any.

    It asks for another item of `known` only while an input is missing. `load_seconds` is how long loading took.
    """

    def __init__(self, checkpoint: Checkpoint, load: Callable[[], Scorer], known: Iterable[KnownScores]) -> None:
        self.checkpoint = checkpoint
        self.load_seconds = 0.0
        self._load, self._known = load, iter(known)

    def score(self, inputs: PackedInputs) -> Scores:
        """Scores a shard's inputs; raises what the engine raises."""
        log_odds = np.empty(len(inputs), np.float32)
        missing = np.arange(len(inputs))
        numbers: dict[bytes, int] = {}
        texts = _numbered(inputs, numbers)
        while len(missing) and (known := next(self._known, None)) is not None:
            places, theirs = _same_rows(texts[missing], _numbered(known.inputs, numbers))
            log_odds[missing[places]] = known.log_odds[theirs]
            missing = np.delete(missing, places)
        reused = len(inputs) - len(missing)
        if not len(missing):
            return Scores(log_odds, 0, 0, 0, 0, reused)
        start = time.monotonic()
        engine = self._load()
        self.load_seconds = time.monotonic() - start
        rest = PackedInputs(inputs.tokens, inputs.starts[missing], inputs.kept[missing], inputs.template)
        scores = engine.score(rest)
        log_odds[missing] = scores.log_odds
        return replace(scores, log_odds=log_odds, reused=reused)


@dataclass(frozen=True)
class CountingScorer:
    """A `Scorer` that scores nothing: it counts inferences, and gives every input the log-odds 0."""

    checkpoint: Checkpoint

    def score(self, inputs: PackedInputs) -> Scores:
        """Counts a shard's inputs."""
        return Scores(np.zeros(len(inputs), np.float32), len(inputs), 0, 0, 0)


def _numbered(inputs: PackedInputs, numbers: dict[bytes, int]) -> Lengths:
    """int64[n, s] numbers of the texts of inputs, equal where their token ids are."""
    places = (inputs.starts << 32) | inputs.kept
    distinct, inverse = np.unique(places, return_inverse=True)
    return number_texts(inputs.tokens, distinct >> 32, distinct & 0xFFFFFFFF, numbers)[inverse].reshape(places.shape)


def _same_rows(rows: Lengths, others: Lengths) -> tuple[Lengths, Lengths]:
    """The places of rows, all distinct, that are among others: int64[m] in `rows` and int64[m] in `others`."""
    both = np.concatenate([rows, others])
    codes = both[:, 0]
    for column in both.T[1:]:
        # Stays below the product of two counts that fit in memory.
        _, codes = np.unique(codes * (int(column.max()) + 1) + column, return_inverse=True)
    _, ours, theirs = np.intersect1d(codes[: len(rows)], codes[len(rows) :], return_indices=True)
    return ours, theirs
