"""monoBERT and duoBERT over the shards."""

import time
from dataclasses import asdict, dataclass
from functools import lru_cache

import pyarrow as pa

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import InputLimits, Truncation
from beamrank.ranking.segments import SegmentPooling, SegmentRule, pool_segments
from beamrank.stages.receipts import Receipt, StageFolder
from models.checkpoints.check import resolve_checkpoint
from models.scoring.duo import score_duo
from models.scoring.engine import ScoringEngine, StageCounts
from models.scoring.mono import score_mono
from transforms.shards import ShardTask


@dataclass(frozen=True)
class ScoreJob:
    """Scores the shards of one stage, `mono` or `duo`; `inputs` are the folders of the parts that a task names."""

    url: str
    inputs: tuple[str, ...]
    kind: str
    checkpoint: str
    checkpoint_digest: str
    device: str
    dtype: str
    threads: int
    token_budget: int
    truncation: Truncation
    max_query_length: int
    max_length: int
    k: int
    segments: SegmentRule | None
    pooling: SegmentPooling
    opponents: int | None
    seed: int

    @property
    def folder(self) -> StageFolder:
        """Where the parts and receipts go."""
        return StageFolder(self.url)

    def run(self, task: ShardTask) -> Receipt:
        """Scores one shard.

        Raises:
            DataError: the checkpoint's files changed, so that nothing is committed.
        """
        engine = _engine(
            self.checkpoint,
            self.checkpoint_digest,
            self.kind,
            self.device,
            self.dtype,
            self.threads,
            self.token_budget,
        )
        start = time.monotonic()
        with engine.checkpoint.held():
            table, counts = self._score(engine, task)
        return self.folder.commit(
            task.shard,
            task.digest,
            table.replace_schema_metadata(self._metadata()),
            seconds=time.monotonic() - start,
            counts=asdict(counts),
        )

    def _metadata(self) -> dict[str, str]:
        """What a reader of a part alone should know of its scores."""
        found = {
            "checkpoint": self.checkpoint_digest,
            "dtype": self.dtype,
            "truncation": self.truncation,
            "max_query_length": str(self.max_query_length),
            "max_length": str(self.max_length),
        }
        cut = {} if self.segments is None else self.segments._asdict()
        return found | {f"segment_{name}": str(value) for name, value in cut.items()}

    def _score(self, engine: ScoringEngine, task: ShardTask) -> tuple[pa.Table, StageCounts]:
        tokens, *rest = (StageFolder(url).read_part(each) for url, each in zip(self.inputs, task.inputs, strict=True))
        limits = InputLimits(self.truncation, self.max_query_length, self.max_length)
        if self.kind == "mono":
            return score_mono(engine, tokens, self.k, limits, self.segments)
        mono = pool_segments(rest[0], self.pooling)
        return score_duo(engine, tokens, mono, self.k, limits, self.opponents, self.seed)


@lru_cache(maxsize=1)
def _engine(
    reference: str, digest: str, kind: str, device: str, dtype: str, threads: int, token_budget: int
) -> ScoringEngine:
    checkpoint = resolve_checkpoint(reference, kind)
    if checkpoint.digest != digest:
        raise PreflightError(
            f"the checkpoint {reference} changed since the run was planned: its digest is "
            f"{checkpoint.digest[:12]}, the plan has {digest[:12]}. Scores of two models would be mixed: start the "
            "run again to plan it anew"
        )
    with checkpoint.held():
        return ScoringEngine(checkpoint, device, dtype, threads, token_budget)
