"""duoBERT over pairs of monoBERT's best candidates; also as if monoBERT had scored fewer."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Self

import pyarrow as pa

from beamrank.commit.pace import pair_inferences
from beamrank.commit.stage_record import ScoringWork
from beamrank.config.models import DuoConfig
from beamrank.config.run import RunConfig
from beamrank.ranking.segments import SegmentPooling, pool_segments
from models.scoring.duo import known_duo, score_depths, score_duo
from models.scoring.engine import Scorer, StageCounts
from models.scoring.known import KnownScores
from models.stages.base import Cost, CostOf, Decides
from models.stages.planning import Planning
from models.stages.sample import Sample
from models.stages.scoring import ScoringStage, TakesFrom

_SAMPLE_DOCS = 3


@dataclass(frozen=True, kw_only=True)
class ScoreDuo(ScoringStage):
    """Compares the best `k` candidates of each query: all pairs, or those with a sample of opponents."""

    type_name = "duo"
    step = "duo"
    rows = "duo"

    pooling: Annotated[SegmentPooling, Decides("mono.segments.pooling", selects=True)]
    opponents: Annotated[int | None, Decides("duo.opponents", selects=True)] = None
    seed: Annotated[int, Decides("duo.seed", selects=True)] = 0
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
        seconds = sample.seconds_per_duo(_SAMPLE_DOCS)
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

    def known(self, tokens: pa.Table, scores: pa.Table, keys: Mapping[str, Any]) -> KnownScores:  # noqa: ARG002
        return known_duo(self.resolved().architecture, tokens, scores, self.limits)

    def score(self, engine: Scorer, tokens: pa.Table, *others: pa.Table) -> tuple[pa.Table, StageCounts]:
        mono = pool_segments(others[0], self.pooling)
        return score_duo(engine, tokens, mono, self.k, self.limits, self.opponents, self.seed)


@dataclass(frozen=True, kw_only=True)
class ScoreDepths(ScoringStage):
    """Compares the best `k` candidates of each query among the first k0, for each of `k0s`: the pairs of figure 4.

    Its plan has the other stages of a finished run, whose scores of pairs it takes over.
    """

    type_name = "duo_depths"
    step = "duo-depths"
    rows = "duo"
    pooling: Annotated[SegmentPooling, Decides("mono.segments.pooling", selects=True)]
    k0s: Annotated[tuple[int, ...], Decides("--k0", selects=True)]

    @classmethod
    def after(cls, duo: ScoreDuo, k0s: tuple[int, ...], k: int) -> Self:
        """The stage that compares with the model of another; `k` is the largest k1."""
        shared = {each.name: getattr(duo, each.name) for each in fields(ScoringStage)}
        return cls(**{**shared, "k": k}, pooling=duo.pooling, k0s=k0s)

    @property
    def takes_from(self) -> TakesFrom:
        """Of its own run, from any machine: a curve does not show the last digits."""
        return TakesFrom.ALL

    @property
    def kind(self) -> str:
        return "duo"

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.tokens, "mono")

    @property
    def run_name(self) -> str | None:
        return None

    @property
    def work(self) -> ScoringWork:
        return ScoringWork(self.k, 2, None, self.max_length, self.token_cost)

    def known(self, tokens: pa.Table, scores: pa.Table, keys: Mapping[str, Any]) -> KnownScores:  # noqa: ARG002
        return known_duo(self.resolved().architecture, tokens, scores, self.limits)

    def score(self, engine: Scorer, tokens: pa.Table, *others: pa.Table) -> tuple[pa.Table, StageCounts]:
        mono = pool_segments(others[0], self.pooling)
        return score_depths(engine, tokens, mono, self.k, self.limits, self.k0s)
