"""monoBERT over the candidates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
import pyarrow as pa

from beamrank.commit.shards import ShardTask
from beamrank.config.cascade import ConfiguredStage
from beamrank.config.run import RunConfig
from beamrank.config.stages import MonoConfig
from beamrank.join import schemas
from beamrank.ranking.input_layout import Lengths, SegmentPooling, SegmentRule, cut_segments, mono_kept
from beamrank.ranking.rankings import Rankings, rank_docs
from beamrank.ranking.variants import Depths, Variants, depth_variants
from models.scoring.engine import Prepared
from models.scoring.mono import prepare_mono, reusable_mono
from models.scoring.reuse import ReusableScores
from models.stages.base import CANDIDATE_BYTES, Cost, CostOf, Key, Stage
from models.stages.planning import Planning, Sample
from models.stages.scoring import ScoringStage

_SAMPLE_DOCS = 4


@dataclass(frozen=True, kw_only=True)
class ScoreMono(ScoringStage):
    """Scores the docs that it receives one by one, or each of their segments."""

    type_name = "mono"
    method = "monobert"
    section = MonoConfig
    schema = schemas.MONO

    segments: Annotated[SegmentRule | None, Key("{own_name}.segments (length, stride, limit)", selects=True)] = None
    pooling: SegmentPooling = "max"

    @classmethod
    def from_config(cls, own: ConfiguredStage, planning: Planning, before: Sequence[Stage], tokens: str) -> Self:
        """Made from its section."""
        shared = cls.shared_settings(own, planning, before, tokens)
        return cls(segments=_segment_rule(own.section), pooling=own.section.pooling, **shared)

    @classmethod
    def estimate(cls, own: ConfiguredStage, config: RunConfig, sample: Sample) -> CostOf:  # noqa: ARG003
        """Every candidate; with segments, as many as the sampled docs have."""
        k, rule = own.section.k, _segment_rule(own.section)
        # The most that any doc can have, and the mean of the sampled docs.
        most = 1 if rule is None else rule.limit
        mean = len(cut_segments(sample.doc_lengths, rule).docs) / max(1, len(sample.doc_lengths))
        seconds = sample.seconds_per_input(own.name, "mono", _SAMPLE_DOCS)
        return lambda topics: Cost(topics * k * most, topics * k * most * CANDIDATE_BYTES, topics * k * mean * seconds)

    @property
    def rank_keys(self) -> dict[str, Any]:
        return {f"{self.name}.segments.pooling": self.pooling}

    def rank(self, before: Rankings | None, part: pa.Table, k: int | None = None) -> Rankings:
        """The docs by the pooled scores of their segments."""
        assert before is not None
        return rank_docs(before, part, self.k, self.pooling, k)

    def variants(self, depths: Depths) -> Variants:
        """Every depth."""
        return depth_variants(self.k, depths)

    def read_tokens(self, queries: Lengths, docs: Lengths) -> Lengths:
        """Up to the end of the last segment, as far as it is kept."""
        segments = cut_segments(docs, self.segments)
        kept = mono_kept(self.input_lengths, self.limits, queries[segments.docs], segments.lengths)[1]
        found = np.zeros_like(docs)
        np.maximum.at(found, segments.docs, segments.starts + kept)
        return found

    def prepare(self, tokens: pa.Table, task: ShardTask) -> Prepared:
        return prepare_mono(self.resolved().architecture, tokens, self.received(task), self.limits, self.segments)

    def reusable(self, tokens: pa.Table, part: pa.Table, keys: Mapping[str, Any]) -> ReusableScores:
        rule = None if keys["segments"] is None else SegmentRule(*keys["segments"])
        return reusable_mono(self.resolved().architecture, tokens, part, self.limits, rule)

    def _metadata(self) -> dict[str, str]:
        cut = {} if self.segments is None else self.segments._asdict()
        return super()._metadata() | {f"segment_{name}": str(value) for name, value in cut.items()}


def _segment_rule(mono: MonoConfig) -> SegmentRule | None:
    """The segments of docs; None if docs are read whole. Scores are pooled when they are read."""
    segments = mono.segments
    return None if segments is None else SegmentRule(segments.length_tokens, segments.stride, segments.most)
