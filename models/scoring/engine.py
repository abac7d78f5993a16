"""The scoring engine of both rerankers: a shard's inputs go in, log-odds come out. One call at a time a process."""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from beamrank.errors import BeamrankError, ConfigError, DataError, PreflightError
from beamrank.ranking.input_layout import PackedInputs, PaddedBatch, Truncation, lay_out
from models.architectures.bert_shape import BertShape
from models.checkpoints.check import Checkpoint, load_weights
from models.scoring.batching import Rows, chunk_rows, cut_batches, longest_chunks, padded_width

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("float32", "bfloat16", "float16")

_GPU_TOKEN_BUDGET = 1 << 16
# On a CPU small batches win: their activations stay in the cache, and in memory that the process already has.
_CPU_TOKEN_BUDGET = 1024


class InputLimits(NamedTuple):
    """How long a model's input may be, in tokens, special tokens included (beamrank/ranking/input_layout.py)."""

    truncation: Truncation
    max_query_length: int
    max_length: int


@dataclass(frozen=True)
class Scores:
    """A shard's log-odds, float32[n] in the order of the inputs, and what they took (an inference for each chunk)."""

    log_odds: npt.NDArray[np.float32]
    inferences: int
    tokens: int
    padded_tokens: int
    halvings: int


@dataclass(frozen=True)
class StageCounts:
    """What a stage did on one shard, for its receipt.

    `candidates` are query-document pairs: what a stage ranks, however many inferences that takes. `tokens` and
    `padded_tokens` are what went through the model, without and with padding. `truncated_queries` and `truncated_docs`
    (counted among the candidates) lost wordpieces to the truncation rule. `duplicate_inputs` were not asked again.
    `halvings` counts batches that had to be cut in two for want of memory.
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

    @classmethod
    def of(
        cls,
        scores: Scores,
        *,
        queries: int,
        candidates: int,
        truncated_queries: int,
        truncated_docs: int,
        duplicate_inputs: int,
    ) -> Self:
        """The counts of a shard whose distinct inputs have these scores."""
        return cls(
            queries=queries,
            candidates=candidates,
            inferences=scores.inferences,
            tokens=scores.tokens,
            padded_tokens=scores.padded_tokens,
            halvings=scores.halvings,
            truncated_queries=truncated_queries,
            truncated_docs=truncated_docs,
            duplicate_inputs=duplicate_inputs,
        )


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def resolve_device(requested: str) -> str:
    """`cuda` or `cpu`; `auto` is CUDA where there is a device.

    Raises:
        ConfigError: it is none of the three.
        PreflightError: this machine has no CUDA device.
    """
    import torch

    if requested not in DEVICES:
        raise ConfigError(f"device must be one of {', '.join(DEVICES)}, not {requested!r}")
    if requested == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if requested == "cuda" and not torch.cuda.is_available():
        raise PreflightError(
            "device is cuda, and torch finds no CUDA device on this machine: set device to auto or cpu"
        )
    return requested


def resolve_dtype(requested: str, device: str) -> str:
    """The dtype of the encoder; `auto` is what the device is fast at.

    On a CPU that is bfloat16 with AMX tiles, and on an AMD with AVX-512's bfloat16. Elsewhere float32 was faster, also
    on an Intel that has these instructions without AMX.

    Raises:
        PreflightError: the device does not compute in the requested dtype.
    """
    import torch

    if requested == "auto":
        if device == "cuda":
            return "float16"
        has = torch.cpu.get_capabilities()
        on_amd = has.get("avx512_bf16", False) and has["cpu_name"].startswith("AMD")
        return "bfloat16" if on_amd or torch.cpu._is_amx_tile_supported() else "float32"
    if requested not in DTYPES:
        raise ConfigError(f"dtype must be auto or one of {', '.join(DTYPES)}, not {requested!r}")
    if requested == "bfloat16" and device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise PreflightError("dtype is bfloat16, and this GPU does not compute in it: set dtype to float16 or float32")
    return requested


def default_token_budget(device: str) -> int:
    """How many tokens a batch may hold where nothing else is said."""
    return _GPU_TOKEN_BUDGET if device == "cuda" else _CPU_TOKEN_BUDGET


class ScoringEngine:
    """A checkpoint, ready to score."""

    def __init__(self, checkpoint: Checkpoint, device: str, dtype: str, threads: int, token_budget: int) -> None:
        """Loads the checkpoint.

        Args:
            checkpoint: the model.
            device: `cpu` or `cuda`.
            dtype: of the encoder's layers; the head is float32.
            threads: how many batches a CPU works on at a time, a thread each.
            token_budget: how many tokens a batch may hold, padding included.

        Raises:
            PreflightError: this machine cannot honour the device or the dtype.
        """
        import torch

        from models.architectures.bert import BertScorer

        self.checkpoint = checkpoint
        self.token_budget = token_budget
        self.threads = threads
        self._device = resolve_device(device)
        layers_dtype = getattr(torch, resolve_dtype(dtype, self._device))
        model = BertScorer(checkpoint.shape, load_weights(checkpoint), layers_dtype)
        self._model = model.to(self._device).eval()

    def score(self, inputs: PackedInputs) -> Scores:
        """Scores a shard's inputs.

        The batches follow from the inputs' lengths, and each is one thread's, so the same shard gives the same bits
        with any number of threads, unless memory ran out: then a batch is cut in two, and counted.

        Raises:
            DataError: an input does not fit the model, or scores are not finite.
            BeamrankError: there is not memory enough for one input.
        """
        shape = self.checkpoint.shape
        inputs = inputs.in_chunks(shape.chunks)
        self._check(inputs)
        work = _Work(self._model, inputs, shape, self._device)
        batches = cut_batches(work.lengths, self.token_budget // shape.chunks, shape.positions)
        if self._device == "cpu":
            scored = _side_by_side(work, batches, self.threads)
        else:
            scored = [each for rows, batch in _prefetched(work, batches) for each in work.score(rows, batch)]
        log_odds = _in_order(scored, len(work.lengths))
        _check_finite(log_odds, self.checkpoint.reference)
        return Scores(
            log_odds,
            inferences=len(inputs),
            tokens=int(inputs.lengths.sum()),
            padded_tokens=sum(each.padded_tokens for each in scored),
            halvings=len(scored) - len(batches),
        )

    def _check(self, inputs: PackedInputs) -> None:
        shape = self.checkpoint.shape
        if len(inputs) and (longest := int(inputs.lengths.max())) > shape.positions:
            raise DataError(
                f"an input has {longest} tokens, and the checkpoint {self.checkpoint.reference} knows "
                f"{shape.positions} positions: lower input.max_length"
            )
        if len(inputs.tokens) and (largest := int(inputs.tokens.max())) >= shape.vocab_size:
            raise DataError(
                f"token id {largest} is not in the vocabulary of the checkpoint {self.checkpoint.reference}, which has "
                f"{shape.vocab_size} entries: the shard was tokenized for another model"
            )


class _Scored(NamedTuple):
    """A batch that went through the model: float32[b] log-odds of some rows."""

    rows: Rows
    log_odds: "torch.Tensor"
    padded_tokens: int


class _Work:
    """One shard on its way through the model."""

    def __init__(self, model: "torch.nn.Module", inputs: PackedInputs, shape: BertShape, device: str) -> None:
        self._model = model
        self._inputs = inputs
        self._shape = shape
        self._device = device
        self.lengths = longest_chunks(inputs.lengths, shape.chunks)

    def lay_out(self, rows: Rows) -> PaddedBatch:
        """The batch of some rows."""
        width = padded_width(self.lengths[rows], self._shape.positions)
        return lay_out(self._inputs, chunk_rows(rows, self._shape.chunks), width)

    def score(self, rows: Rows, batch: PaddedBatch) -> list[_Scored]:
        """Scores a batch, in halves where memory is short."""
        import torch

        log_odds = self._forward(batch)
        if log_odds is not None:
            return [_Scored(rows, log_odds, batch.token_ids.size)]
        torch.cuda.empty_cache()
        if len(rows) == 1:
            raise BeamrankError(
                f"there is not memory enough on {self._device} to score one input of {self.lengths[rows[0]]} tokens: "
                "use a machine with more memory, or fewer workers on this one"
            )
        middle = len(rows) // 2
        halves = (rows[:middle], rows[middle:])
        return [each for half in halves for each in self.score(half, self.lay_out(half))]

    def _forward(self, batch: PaddedBatch) -> "torch.Tensor | None":
        """float32[b] log-odds, or None where memory ran out."""
        import torch

        try:
            width = batch.token_ids.shape[1]
            has_padding = bool((batch.lengths < width).any())
            mask = torch.from_numpy(np.arange(width) < batch.lengths[:, None]) if has_padding else None
            with torch.inference_mode():
                log_odds: torch.Tensor = self._model(
                    torch.from_numpy(batch.token_ids).to(self._device),
                    torch.from_numpy(batch.token_types).to(self._device),
                    None if mask is None else mask.to(self._device),
                )
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
            return None
        return log_odds


def _side_by_side(work: _Work, batches: list[Rows], threads: int) -> list[_Scored]:
    """Scores batches on a CPU, a thread each: threads that share a batch wait for one another at every operation."""
    import torch

    def score(rows: Rows) -> list[_Scored]:
        return work.score(rows, work.lay_out(rows))

    # torch keeps the number of its own threads for each thread that calls it.
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return [each for scored in pool.map(score, batches) for each in scored]


def _prefetched(work: _Work, batches: list[Rows]) -> Iterator[tuple[Rows, PaddedBatch]]:
    """Lays the next batch out while the caller works on this one."""
    with ThreadPoolExecutor(max_workers=1) as layouts:
        pending = deque(layouts.submit(work.lay_out, rows) for rows in batches[:1])
        for index, rows in enumerate(batches):
            batch = pending.popleft().result()
            pending.extend(layouts.submit(work.lay_out, later) for later in batches[index + 1 : index + 2])
            yield rows, batch


def _in_order(scored: list[_Scored], count: int) -> npt.NDArray[np.float32]:
    """float32[count], in the order of the inputs."""
    import torch

    log_odds = np.empty(count, dtype=np.float32)
    if scored:
        rows = np.concatenate([each.rows for each in scored])
        log_odds[rows] = torch.cat([each.log_odds for each in scored]).cpu().numpy()
    return log_odds


def _is_out_of_memory(error: Exception) -> bool:
    import torch

    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def _check_finite(log_odds: npt.NDArray[np.float32], reference: str) -> None:
    broken = int(np.count_nonzero(~np.isfinite(log_odds)))
    if broken:
        raise DataError(
            f"{broken} of {len(log_odds)} scores of the checkpoint {reference} are not finite, and cannot be ranked: "
            "its activations overflow in this dtype, or its weights are broken. Run with dtype float32"
        )
