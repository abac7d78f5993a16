"""The pairs of figure 4 as a stage: the best docs of each query among the first k0 candidates, for
several k0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, NoReturn, Self

import numpy as np
import pyarrow as pa

from beamrank.commit import schemas
from beamrank.commit.listing import DEPTHS
from beamrank.config.stages import StageConfig
from beamrank.errors import ConfigError
from beamrank.ranking.rankings import Rankings
from models.scoring.answers import Answers
from models.scoring.duo import Asked, known_duo, prepare_pairs
from models.scoring.engine import Prepared
from models.stages.base import Key
from models.stages.compute import ShardInputs
from models.stages.duo import ScoreDuo
from models.stages.scoring import ModelStage


@dataclass(frozen=True, kw_only=True)
class ScoreDepths(ModelStage):
    """Compares the best `k` docs of each query among the first k0, for each of `k0s`.

    Its plan has the other stages of a finished run, whose scores of pairs it reuses.
    """

    type_name = "duo_depths"
    section = StageConfig
    schema = schemas.DUO
    ranks = False
    input_docs = 2
    # A curve does not show the last digits.
    any_processor = True
    k0s: Annotated[tuple[int, ...], Key("--k0", selects=True)]

    @classmethod
    def from_config(cls, *_: Any) -> NoReturn:
        """It is not a stage of a configuration."""
        raise ConfigError(
            f"the stage {cls.type_name} belongs to `beamrank report --score-missing`: leave it out"
        )

    @classmethod
    def after(cls, duo: ScoreDuo, k0s: tuple[int, ...], k: int) -> Self:
        """The stage that compares with the model of a run's own; `k` is the largest k1."""
        shared = {field.name: getattr(duo, field.name) for field in fields(ModelStage)}
        return cls(**{**shared, "k": k, "own_name": DEPTHS}, k0s=k0s)

    def known_answers(self, part: pa.Table, tokens: pa.Table) -> Answers:
        return known_duo(part, tokens, self.most_tokens)

    def prepare(self, inputs: ShardInputs) -> Prepared:
        """All pairs of the best docs at each depth; NaN for pairs that no depth has."""
        parts, last = self.parts_before(inputs), self.chain[-1]
        among = [_scored(parts.rank(last, k0), self.k) for k0 in self.k0s]
        chosen = {
            query_id: [
                doc_id for doc_id in doc_ids if any(doc_id in best[query_id] for best in among)
            ]
            for query_id, doc_ids in _scored(parts.rankings(last.name), None).items()
        }

        def asked(query_id: str, doc_ids: Sequence[str]) -> Asked:
            wanted = np.zeros((len(doc_ids), len(doc_ids)), np.bool_)
            for best in among:
                member = np.isin(doc_ids, best[query_id])
                wanted |= member[:, None] & member
            np.fill_diagonal(wanted, False)
            return wanted

        model, tokens = self.checkpoint_of(inputs).architecture, inputs.read(self.tokens)
        return prepare_pairs(model, tokens, chosen, self.limits, asked)


def _scored(rankings: Rankings, most: int | None) -> dict[str, Sequence[str]]:
    return {
        query_id: ranking.doc_ids[: ranking.scored][:most] for query_id, ranking in rankings.items()
    }
