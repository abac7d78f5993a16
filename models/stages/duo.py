"""duoBERT over pairs of monoBERT's best candidates."""

from dataclasses import dataclass
from typing import Annotated, Self

import pyarrow as pa

from beamrank.config.models import DuoConfig
from beamrank.config.run import RunConfig
from beamrank.ranking.segments import SegmentPooling, pool_segments
from beamrank.stages.pace import pair_inferences
from beamrank.stages.stage_record import ScoringWork
from models.scoring.duo import score_duo
from models.scoring.engine import ScoringEngine, StageCounts
from models.stages.base import Cost, CostOf, Decides
from models.stages.planning import Planning
from models.stages.sample import Sample
from models.stages.scoring import ScoringStage

_SAMPLE_DOCS = 6


@dataclass(frozen=True, kw_only=True)
class ScoreDuo(ScoringStage):
    """Compares the best `k` candidates of each query: all pairs, or those with a sample of opponents."""

    type_name = "duo"
    step = "duo"
    rows = "duo"

    pooling: Annotated[SegmentPooling, Decides("mono.segments.pooling")]
    opponents: Annotated[int | None, Decides("duo.opponents")] = None
    seed: Annotated[int, Decides("duo.seed")] = 0
    aggregation: str

    @classmethod
    def from_config(cls, section: DuoConfig, planning: Planning, tokens: str) -> Self:
        """Made from the section `duo`. The seed matters only if pairs are sampled."""
        assert planning.config.mono is not None
        return cls(
            k=section.k,
            pooling=planning.config.mono.pooling,
            opponents=section.opponents,
            seed=0 if section.opponents is None else section.seed,
            aggregation=section.aggregation,
            **cls.shared_settings(planning, tokens),
        )

    @classmethod
    def estimate(cls, config: RunConfig, sample: Sample) -> CostOf:
        """All pairs that are scored."""
        assert config.duo is not None
        k = config.duo.k
        asked = int(pair_inferences(k, k, config.duo.opponents))
        seconds = sample.seconds_per_inference("duo", _SAMPLE_DOCS)
        return lambda topics: Cost(topics * asked, topics * k**2 * 4, topics * asked * seconds)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.tokens, "mono")

    @property
    def run_name(self) -> str:
        return f"duo-{self.aggregation}"

    @property
    def work(self) -> ScoringWork:
        return ScoringWork(self.k, 2, self.opponents, self.max_length, self.token_cost)

    def score(self, engine: ScoringEngine, tokens: pa.Table, *others: pa.Table) -> tuple[pa.Table, StageCounts]:
        mono = pool_segments(others[0], self.pooling)
        return score_duo(engine, tokens, mono, self.k, self.limits, self.opponents, self.seed)
