"""monoBERT over the candidates."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from beamrank.config.cascade import ConfiguredStage
from beamrank.config.run import RunConfig
from beamrank.config.stages import OF_TOPICS, MonoConfig, SegmentsConfig
from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import Lengths, SegmentRule, cut_segments, mono_kept
from models.checkpoints.checkpoint import Checkpoint
from models.scoring.answers import Answers, Contents
from models.scoring.engine import Prepared
from models.scoring.mono import known_mono, prepare_mono
from models.stages.base import Key
from models.stages.compute import ShardInputs
from models.stages.planning import Planning
from models.stages.pointwise import Pointwise
from models.stages.scoring import ModelStage


@dataclass(frozen=True, kw_only=True)
class ScoreMono(Pointwise, ModelStage):
    """Scores the docs that it receives one by one, or each of their segments.

    `ModelStage.compute` prepares the inputs, scores them and makes the part.
    """

    type_name = "mono"
    method = "monobert"
    section = MonoConfig

    segments: Annotated[
        SegmentRule | None, Key("{own_name}.segments (length, stride, limit)", selects=True)
    ] = None

    @classmethod
    def read_checkpoint(cls, own: ConfiguredStage, config: RunConfig) -> Checkpoint | None:
        checkpoint = super().read_checkpoint(own, config)
        if checkpoint and checkpoint.doc_parts > 1 and own.section.segments:
            raise PreflightError(
                f"the checkpoint {checkpoint.reference} cuts a doc into {checkpoint.doc_parts} "
                f"parts itself, as it was trained to: leave out {own.name}.segments"
            )
        return checkpoint

    @classmethod
    def settings(cls, own: ConfiguredStage, planning: Planning) -> dict[str, Any]:
        """Scores of segments are pooled when they are read: `pooling` decides no score."""
        found: SegmentsConfig | None = own.section.segments
        rule = None if found is None else SegmentRule(found.length_tokens, found.stride, found.most)
        pooling = "max" if found is None else found.pooling
        return {**super().settings(own, planning), "segments": rule, "pooling": pooling}

    def cost(self, topics: int) -> int:
        """Every candidate, or its most segments."""
        return super().cost(topics) * (1 if self.segments is None else self.segments.limit)

    @property
    def rank_keys(self) -> dict[str, Any]:
        return {f"{self.name}.segments.pooling": self.pooling, **super().rank_keys}

    def read_tokens(self, queries: Lengths, docs: Lengths, instructions: Lengths) -> Lengths:
        """Up to the end of the last segment, as far as it is kept."""
        segments = cut_segments(docs, self.segments)
        before = instructions[segments.docs] if self.instruction == OF_TOPICS else 0
        kept = mono_kept(
            self.input_lengths, self.limits, queries[segments.docs], segments.lengths, before
        )[1]
        found = np.zeros_like(docs)
        np.maximum.at(found, segments.docs, segments.starts + kept)
        return found

    def prepare(self, inputs: ShardInputs) -> Prepared:
        architecture = self.checkpoint_of(inputs).architecture
        tokens = inputs.read(self.tokens)
        return prepare_mono(architecture, tokens, self.received(inputs), self.limits, self.segments)

    def known_answers(self, part: pa.Table, tokens: pa.Table) -> Answers:
        contents = Contents.of(tokens, instructed=self.instruction == OF_TOPICS)
        return known_mono(part, contents, self.most_tokens, self.segments)

    def _metadata(self) -> dict[str, str]:
        cut = {} if self.segments is None else self.segments._asdict()
        return super()._metadata() | {f"segment_{name}": str(value) for name, value in cut.items()}
