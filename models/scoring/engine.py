"""The engine of both rerankers: takes the inputs of a shard, gives log-odds, of one shard at a
time.
"""

import logging
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from threading import Lock
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.commit.working import ShardProgress, shard_at_work
from beamrank.errors import BeamrankError, DataError
from beamrank.ranking.input_layout import Lengths, PackedInputs, cut_docs, lay_out
from models.checkpoints.checkpoint import Checkpoint, check_process
from models.scoring.backends.registry import OutOfMemory, find_backend
from models.scoring.packing import Rows, split_by_prefix

# Of the tokens of a batch that did not fit in memory, how many a later batch may have. Its halves
# have about 1/2.
_KEPT_OF_A_LIMIT = 3 / 4

_log = logging.getLogger(__name__)
# A batch that went through the model: its rows, float32[b] log-odds, and the tokens that were
# computed, with padding.
_Scored: TypeAlias = tuple[Rows, npt.NDArray[np.float32], int]


@dataclass(frozen=True)
class Scores:
    """A shard's log-odds, float32[n] in the order of the inputs, and their cost.

    `reused` inferences were not made, since an earlier plan has stored their log-odds.
    """

    log_odds: npt.NDArray[np.float32]
    inferences: int
    tokens: int
    padded_tokens: int
    halvings: int
    reused: int = 0

    @property
    def cost(self) -> dict[str, int]:
        """The fields of `StageCounts` that it decides."""
        return {name: value for name, value in vars(self).items() if name != "log_odds"}


NO_SCORES = Scores(np.zeros(0, np.float32), 0, 0, 0, 0)


@dataclass(frozen=True)
class StageCounts:
    """The counts of a stage for one shard, for its receipt.

    `candidates` are query-document pairs, also where each takes several inferences. `tokens` and
    `padded_tokens` are what went through the model, without and with padding; a prefix that inputs
    share counts for each. `truncated_queries` and `truncated_docs` (counted among the candidates)
    lost wordpieces to the truncation rule.
    `duplicate_inputs` were not scored again. `halvings` counts batches that had to be cut in two
    because memory ran out. `reused` inferences were not made, since an earlier plan has stored
    their scores.
    """

    queries: int
    candidates: int
    inferences: int
    tokens: int
    padded_tokens: int
    halvings: int
    truncated_queries: int
    truncated_docs: int
    duplicate_inputs: int
    reused: int


class ScoringEngine:
    """A checkpoint, ready to score."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: str,
        dtype: str,
        threads: int,
        token_budget: int,
        backend: str = "torch",
        kernel: str = "torch",
    ) -> None:
        """Loads the checkpoint; arguments as for `Backend`, and the most tokens of a batch."""
        self.checkpoint = checkpoint
        self.token_budget = token_budget
        self._device = device
        self._turn = Lock()
        # The most tokens of a batch that are tried: memory has run out above.
        self._limit = sys.maxsize
        self._backend = find_backend(backend).load(checkpoint, device, dtype, threads, kernel)

    def score(self, inputs: PackedInputs) -> Scores:
        """Scores a shard's inputs.

        On a CPU, a score's bits follow from its own input. On a GPU they depend on its batch, which
        follows from the lengths of all inputs, and is cut in two, and counted, where memory runs
        out or has run out before.

        Raises:
            DataError: an input does not fit the model, or scores are not finite.
        """
        check_process("score")
        self._check(inputs)
        parts = cut_docs(inputs) if inputs.template.doc_parts > 1 else inputs
        lengths = parts.lengths.reshape(-1, inputs.template.doc_parts)
        shares = getattr(self.checkpoint.architecture, "shares_prefix", False)
        batches = [
            rows[batch]
            for rows in (split_by_prefix(inputs) if shares else [np.arange(len(inputs))])
            for batch in self._backend.batches(lengths[rows], self.token_budget)
        ]
        streams = ThreadPoolExecutor(self._backend.streams, initializer=self._backend.start_thread)
        # Other threads read a shard or commit one meanwhile.
        with self._turn, streams as pool:
            work = shard_at_work()
            work.add(0, len(inputs))
            score = partial(self._score_batch, parts, lengths, work)
            scored = list(chain.from_iterable(pool.map(score, batches)))
        splits = len(scored) - len(batches)
        if splits:
            _log.warning(
                "out of memory: %d batches were scored in %d parts", len(batches), len(scored)
            )
        log_odds = np.empty(len(inputs), dtype=np.float32)
        for rows, values, _ in scored:
            log_odds[rows] = values
        if broken := int(np.count_nonzero(~np.isfinite(log_odds))):
            raise DataError(
                f"{broken} of {len(log_odds)} scores of the checkpoint "
                f"{self.checkpoint.reference} are not finite, and cannot be ranked: its "
                "activations overflow in this dtype, or its weights are broken. Run with dtype "
                "bfloat16 or float32, which hardly overflow"
            )
        padded_tokens = sum(tokens for _, _, tokens in scored)
        return Scores(log_odds, len(inputs), int(lengths.sum()), padded_tokens, halvings=splits)

    def _score_batch(
        self, parts: PackedInputs, lengths: Lengths, work: ShardProgress, rows: Rows
    ) -> list[_Scored]:
        """Scores some inputs together, in halves where memory is short, and adds their number to
        what is done.
        """
        tokens = int(lengths[rows].sum())
        if len(rows) == 1 or tokens <= self._limit:
            places = np.arange(lengths.size).reshape(lengths.shape)[rows].ravel()
            batch = lay_out(parts, places, int(lengths[rows].max()))
            try:
                log_odds = self._backend.forward(batch)
                work.add(len(rows))
                return [(rows, log_odds, self._backend.computed_tokens(batch.lengths))]
            except OutOfMemory as error:
                if len(rows) == 1:
                    raise BeamrankError(
                        f"{self._device} runs out of memory with a single input of {tokens} "
                        "tokens: use a machine with more memory, or fewer workers on this one"
                    ) from error
                self._limit = min(self._limit, int(_KEPT_OF_A_LIMIT * tokens))
        middle = len(rows) // 2
        halves = (rows[:middle], rows[middle:])
        return [
            scores for half in halves for scores in self._score_batch(parts, lengths, work, half)
        ]

    def _check(self, inputs: PackedInputs) -> None:
        model, reference = self.checkpoint.architecture, self.checkpoint.reference
        if (
            len(inputs)
            and (longest := int(inputs.lengths.max())) > model.positions * inputs.template.doc_parts
        ):
            raise DataError(
                f"an input has {longest} tokens, and the checkpoint {reference} knows "
                f"{model.positions} positions: lower input.max_length"
            )
        if len(inputs.tokens) and (largest := int(inputs.tokens.max())) >= model.vocab_size:
            raise DataError(
                f"token id {largest} is not in the vocabulary of the checkpoint {reference}, "
                f"which has {model.vocab_size} entries: the shard was tokenized for another model"
            )


class Prepared(NamedTuple):
    """A shard that can be scored.

    Attributes:
        inputs: its distinct inputs.
        input_of: int64[n], which of them each of its n inputs is.
        keys: gives what each of the n inputs contains (`models.scoring.answers`).
        finish: makes its rows, and the counts for its receipt, of the scores of `inputs`.
    """

    inputs: PackedInputs
    input_of: Lengths
    keys: Callable[[], Sequence[bytes]]
    finish: Callable[[Scores], tuple[pa.Table, StageCounts]]
