"""A stage that scores docs by the terms that they share with the query."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from beamrank.config.cascade import ConfiguredStage
from beamrank.config.run import RunConfig
from beamrank.config.stages import PointwiseConfig
from beamrank.errors import PreflightError
from beamrank.section import Path as FilePath
from models.stages.base import Key
from models.stages.compute import ShardInputs
from models.stages.planning import Planning
from models.stages.text_stage import TextPairs, TextStage


class Weights(NamedTuple):
    """The checkpoint: the weight of each term, 1 for all others."""

    digest: str
    of_terms: Mapping[str, float]

    @classmethod
    def read(cls, path: str) -> Self:
        """Raises PreflightError where the file is missing, or holds something else."""
        try:
            content = Path(path).read_bytes()
            weights = {str(term): float(weight) for term, weight in json.loads(content).items()}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise PreflightError(
                f"the weights {path} cannot be read ({error}): give a JSON object of terms"
            ) from error
        return cls(sha256(content).hexdigest(), weights)

    def score(self, query: str, doc: str) -> float:
        """The sum of the weights of the terms that both have."""
        return sum(self.of_terms.get(term, 1.0) for term in {*query.split()} & {*doc.split()})


class OverlapConfig(PointwiseConfig):
    """Weighted overlap of terms."""

    weights: FilePath
    """A JSON file of terms and their weights."""


@dataclass(frozen=True, kw_only=True)
class Overlap(TextStage):
    """Scores a doc by the terms that it shares with the query."""

    type_name = "overlap"
    section = OverlapConfig
    # Sums of Python are the same everywhere, so that parts of any machine are reused.
    any_processor = True

    # A `Key` decides the bytes of parts; the place of the file does not.
    weights_digest: Annotated[str, Key("{own_name}.weights")]
    weights: str

    @classmethod
    def read_checkpoint(cls, own: ConfiguredStage, config: RunConfig) -> Weights:  # noqa: ARG003
        """Called once, when a run is planned: `settings` gets what it returns."""
        return Weights.read(own.section.weights)

    @classmethod
    def settings(cls, own: ConfiguredStage, planning: Planning) -> dict[str, Any]:
        """The fields that are no keys of the section."""
        weights: Weights = planning.checkpoints[own.name]
        return {**super().settings(own, planning), "weights_digest": weights.digest}

    def score(self, inputs: ShardInputs, texts: TextPairs) -> Sequence[float]:
        """Called on workers, for each shard."""
        weights = inputs.opened(lambda: Weights.read(self.weights))
        if weights.digest != self.weights_digest:
            raise PreflightError(f"{self.weights} changed since the run was planned: run again")
        return [weights.score(texts.queries[query], texts.docs[doc]) for query, doc in texts.pairs]
