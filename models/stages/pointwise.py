"""The base of stages that score docs one by one."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit import schemas
from beamrank.config.cascade import ConfiguredStage
from beamrank.config.stages import CombineConfig, PointwiseConfig
from beamrank.errors import ConfigError, PreflightError
from beamrank.ranking.combine import Combine
from beamrank.ranking.input_layout import SegmentPooling
from beamrank.ranking.rankings import Rankings, pool_segments, rank_docs
from beamrank.ranking.variants import Depths, Variants, depth_variants
from models.stages.base import Stage
from models.stages.planning import Planning


@dataclass(frozen=True, kw_only=True)
class Pointwise(Stage):
    """A stage that scores the docs that it receives one by one. Its section has the key `combine`,
    which decides no score.
    """

    section: ClassVar[type[PointwiseConfig]]
    schema = schemas.MONO
    input_docs = 1

    pooling: SegmentPooling = "max"
    combine: Combine | None = None

    @classmethod
    def settings(cls, own: ConfiguredStage, planning: Planning) -> dict[str, Any]:
        """Raises ConfigError where the stage before has no scores to combine with, and
        PreflightError where the checkpoint names no weight.
        """
        section, before = own.section.combine, planning.before[-1]
        if section is not None and not before.has_scores:
            raise ConfigError(
                f"{own.name}.combine: the run before it, {before.run_name}, has ranks and no "
                "scores: give one with scores, or leave this key out"
            )
        combine = section and Combine(_weight(own, planning), section.normalize)
        return {**super().settings(own, planning), "combine": combine}

    def cost(self, topics: int) -> int:
        """Every candidate."""
        return topics * self.k

    @property
    def rank_keys(self) -> dict[str, Any]:
        keys = self.described["combine"] or {}
        return {f"{self.name}.combine.{key}": value for key, value in keys.items()}

    @property
    def described(self) -> dict[str, Any]:
        return {"combine": self.combine and self.combine._asdict()}

    def rank(self, before: Rankings | None, part: pa.Table, k: int | None = None) -> Rankings:
        """The docs by the pooled scores of their segments, combined with those before."""
        assert before is not None
        return rank_docs(before, part, self.k, self.pooling, k, self.combine)

    def variants(self, depths: Depths) -> Variants | None:
        """Every depth."""
        return depth_variants(self.k, depths, self.combine)

    def details(self, part: pa.Table, query_id: str) -> Mapping[str, Mapping[str, Any]]:
        """The score that was combined."""
        if self.combine is None:
            return {}
        pooled = pool_segments(part.filter(pc.equal(part["query_id"], query_id)), self.pooling)
        rows = zip(pooled["doc_id"].to_pylist(), pooled["score"].to_pylist(), strict=True)
        return {doc_id: {"own_score": score} for doc_id, score in rows}


def _weight(own: ConfiguredStage, planning: Planning) -> float:
    """The weight of the section, or that of the checkpoint's config.json."""
    section: CombineConfig = own.section.combine
    if section.weight == "card":
        config = getattr(planning.checkpoints.get(own.name), "config", {})
        with suppress(KeyError, TypeError, ValueError):
            weight = config["beamrank"]["combine_weight"]
            section = CombineConfig.model_validate({"weight": weight})
    if isinstance(section.weight, str):
        raise PreflightError(
            f"{own.name}.combine.weight is `card`, and config.json of the checkpoint has no "
            "beamrank.combine_weight from 0 to 1: give the weight itself"
        )
    return section.weight
