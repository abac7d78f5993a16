"""monoBERT over the candidates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

import pyarrow as pa

from beamrank.config.models import MonoConfig
from beamrank.config.run import RunConfig
from beamrank.ranking.segments import SegmentRule, cut_segments
from models.scoring.engine import Scorer, StageCounts
from models.scoring.known import KnownScores
from models.scoring.mono import known_mono, score_mono
from models.stages.base import CANDIDATE_BYTES, Cost, CostOf, Decides
from models.stages.planning import Planning
from models.stages.sample import Sample
from models.stages.scoring import ScoringStage

_SAMPLE_DOCS = 4


@dataclass(frozen=True, kw_only=True)
class ScoreMono(ScoringStage):
    """Scores the first `k` candidates of each query, or each of their segments."""

    type_name = "mono"
    step = "mono"
    rows = "mono"

    segments: Annotated[SegmentRule | None, Decides("mono.segments (length, stride, limit)", selects=True)] = None

    @classmethod
    def from_config(cls, section: MonoConfig, planning: Planning, tokens: str) -> Self:
        return cls(k=section.k, segments=_segment_rule(section), **cls.shared_settings(planning, tokens))

    @classmethod
    def estimate(cls, config: RunConfig, sample: Sample) -> CostOf:
        """Every candidate; with segments, as many as the sampled docs have."""
        assert config.mono is not None
        k, rule = config.mono.k, _segment_rule(config.mono)
        # The most that any doc can have, and the mean of the sampled docs.
        most = 1 if rule is None else rule.limit
        mean = len(cut_segments(sample.doc_lengths, rule).docs) / max(1, len(sample.doc_lengths))
        seconds = sample.seconds_per_mono(_SAMPLE_DOCS)
        return lambda topics: Cost(topics * k * most, topics * k * most * CANDIDATE_BYTES, topics * k * mean * seconds)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.tokens,)

    def score(self, engine: Scorer, tokens: pa.Table, *_: pa.Table) -> tuple[pa.Table, StageCounts]:
        return score_mono(engine, tokens, self.k, self.limits, self.segments)

    def known(self, tokens: pa.Table, scores: pa.Table, keys: Mapping[str, Any]) -> KnownScores:
        rule = None if keys["segments"] is None else SegmentRule(*keys["segments"])
        return known_mono(self.resolved().architecture, tokens, scores, keys["k"], self.limits, rule)

    def _metadata(self) -> dict[str, str]:
        cut = {} if self.segments is None else self.segments._asdict()
        return super()._metadata() | {f"segment_{name}": str(value) for name, value in cut.items()}


def _segment_rule(mono: MonoConfig) -> SegmentRule | None:
    """The segments of docs; None if docs are read whole. Scores are pooled when they are read."""
    segments = mono.segments
    return None if segments is None else SegmentRule(segments.length_tokens, segments.stride, segments.most)
