"""duoBERT over pairs of the best candidates; also as if the stage before had scored fewer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Self

import pyarrow as pa

from beamrank.commit.pace import pair_inferences
from beamrank.commit.stage_record import ScoringWork
from beamrank.commit.tasks import ShardTask
from beamrank.config.cascade import ConfiguredStage
from beamrank.config.models import DuoConfig
from beamrank.config.run import RunConfig
from beamrank.join import schemas
from beamrank.ranking.aggregation import METHODS
from beamrank.ranking.rankings import Rankings, rank_pairs
from models.scoring.duo import known_duo, score_depths, score_duo
from models.scoring.engine import Scorer, StageCounts
from models.scoring.known import KnownScores
from models.stages.base import Cost, CostOf, Decides, Stage
from models.stages.planning import Planning
from models.stages.sample import Sample
from models.stages.scoring import ScoringStage, TakesFrom

_SAMPLE_DOCS = 3


@dataclass(frozen=True, kw_only=True)
class ScoreDuo(ScoringStage):
    """Compares the docs that it receives: all pairs, or those with a sample of opponents."""

    type_name = "duo"
    method = "duobert"
    section = DuoConfig

    opponents: Annotated[int | None, Decides("{own_name}.opponents", selects=True)] = None
    seed: Annotated[int, Decides("{own_name}.seed", selects=True)] = 0
    aggregation: str = "sum"
    # What a full matrix is drawn from in place of `opponents`: see `beamrank aggregate`.
    drawn: tuple[int, int] | None = None

    @classmethod
    def from_config(cls, own: ConfiguredStage, planning: Planning, before: Sequence[Stage], tokens: str) -> Self:
        """Made from its section. The seed matters only if pairs are sampled."""
        section = own.section
        return cls(
            opponents=section.opponents,
            seed=0 if section.opponents is None else section.seed,
            aggregation=section.aggregation,
            **cls.shared_settings(own, planning, before, tokens),
        )

    @classmethod
    def estimate(cls, own: ConfiguredStage, config: RunConfig, sample: Sample) -> CostOf:  # noqa: ARG003
        """All pairs that are scored."""
        k = own.section.k
        asked = int(pair_inferences(k, k, own.section.opponents))
        seconds = sample.seconds_per_input(own.name, "duo", _SAMPLE_DOCS, best=True)
        return lambda topics: Cost(topics * asked, topics * k**2 * 4, topics * asked * seconds)

    @property
    def schema(self) -> pa.Schema:
        return schemas.DUO

    @property
    def run_name(self) -> str:
        return f"{self.name}-{self.aggregation}"

    def varied_run_name(self, k: int | None) -> str:
        """The name of a run of `drawn` pairs, or of the first `k` docs."""
        depth = "" if k is None else f"-k{k}"
        sample = "" if self.drawn is None else f"-m{self.drawn[0]}-s{self.drawn[1]}"
        return f"{self.run_name}{depth}{sample}"

    def parse_run_name(self, name: str) -> tuple[tuple[tuple[str, Any], ...], int | None] | None:
        """See `Stage.parse_run_name` and `varied_run_name`."""
        found = re.fullmatch(rf"{re.escape(self.name)}-(\w+)(?:-k(\d+))?(?:-m(\d+)-s(-?\d+))?", name)
        if found is None or found[1] not in METHODS:
            return None
        drawn = None if found[3] is None else (int(found[3]), int(found[4]))
        return (("aggregation", found[1]), ("drawn", drawn)), None if found[2] is None else int(found[2])

    @property
    def rank_keys(self) -> dict[str, Any]:
        return {f"{self.name}.aggregation": self.aggregation}

    @property
    def described(self) -> dict[str, Any]:
        drawn = {} if self.drawn is None else {"opponents": self.drawn[0], "seed": self.drawn[1]}
        sampled = {} if self.opponents or self.drawn else {"seed": None}
        return {"aggregation": self.aggregation, **sampled, **drawn}

    @property
    def work(self) -> ScoringWork:
        return ScoringWork(self.k, 2, self.opponents, self.max_length, self.token_cost)

    def rank(self, before: Rankings | None, part: pa.Table, k: int | None = None) -> Rankings:
        """The docs by the aggregated scores of their pairs."""
        assert before is not None
        opponents, seed = self.drawn or (None, 0)
        return rank_pairs(before, part, self.k, self.aggregation, k=k, opponents=opponents, seed=seed)

    def known(self, tokens: pa.Table, scores: pa.Table, keys: Mapping[str, Any]) -> KnownScores:  # noqa: ARG002
        return known_duo(self.resolved().architecture, tokens, scores, self.limits)

    def score(self, engine: Scorer, tokens: pa.Table, task: ShardTask) -> tuple[pa.Table, StageCounts]:
        return score_duo(engine, tokens, self.received(task), self.limits, self.opponents, self.seed)


@dataclass(frozen=True, kw_only=True)
class ScoreDepths(ScoringStage):
    """Compares the best `k` docs of each query among the first k0, for each of `k0s`: the pairs of figure 4.

    Its plan has the other stages of a finished run, whose scores of pairs it reuses.
    """

    type_name = "duo_depths"
    ranks = False
    k0s: Annotated[tuple[int, ...], Decides("--k0", selects=True)]

    @classmethod
    def after(cls, duo: ScoreDuo, k0s: tuple[int, ...], k: int) -> Self:
        """The stage that compares with the model of another; `k` is the largest k1."""
        shared = {each.name: getattr(duo, each.name) for each in fields(ScoringStage)}
        return cls(**{**shared, "k": k, "own_name": "duo-depths"}, k0s=k0s)

    @property
    def schema(self) -> pa.Schema:
        return schemas.DUO

    @property
    def takes_from(self) -> TakesFrom:
        """Of its own run, from any machine: a curve does not show the last digits."""
        return TakesFrom.ALL

    @property
    def kind(self) -> str:
        return "duo"

    @property
    def run_name(self) -> str | None:
        return None

    @property
    def work(self) -> ScoringWork:
        return ScoringWork(self.k, 2, None, self.max_length, self.token_cost)

    def known(self, tokens: pa.Table, scores: pa.Table, keys: Mapping[str, Any]) -> KnownScores:  # noqa: ARG002
        return known_duo(self.resolved().architecture, tokens, scores, self.limits)

    def score(self, engine: Scorer, tokens: pa.Table, task: ShardTask) -> tuple[pa.Table, StageCounts]:
        *earlier, last = zip(self.chain, (part.read() for part in task.inputs[-len(self.reads) :]), strict=True)
        before: Rankings | None = None
        for stage, part in earlier:
            before = stage.rank(before, part)
        by_depth = [last[0].rank(before, last[1], k0) for k0 in (None, *self.k0s)]
        received, *among = (
            {query_id: each.doc_ids[: each.scored][:most] for query_id, each in rankings.items()}
            for rankings, most in zip(by_depth, (None, *[self.k] * len(self.k0s)), strict=True)
        )
        return score_depths(engine, tokens, received, among, self.limits)
