"""duoBERT over pairs of the best candidates."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import pyarrow as pa

from beamrank.commit import schemas
from beamrank.config.cascade import ConfiguredStage
from beamrank.config.stages import DuoConfig
from beamrank.ranking.aggregation import METHODS, pair_inferences
from beamrank.ranking.input_layout import Lengths, duo_kept
from beamrank.ranking.rankings import Rankings, rank_pairs
from beamrank.ranking.variants import Depths, Variants, opponents, pair_variants
from models.scoring.answers import Answers
from models.scoring.duo import known_duo, prepare_duo
from models.scoring.engine import Prepared
from models.stages.base import Key
from models.stages.compute import ShardInputs
from models.stages.planning import Planning
from models.stages.scoring import ModelStage


@dataclass(frozen=True, kw_only=True)
class ScoreDuo(ModelStage):
    """Compares the docs that it receives: all pairs, or those with a sample of opponents."""

    type_name = "duo"
    method = "duobert"
    section = DuoConfig
    schema = schemas.DUO
    input_docs = 2

    opponents: Annotated[int | None, Key("{own_name}.opponents", selects=True)] = None
    seed: Annotated[int, Key("{own_name}.seed", selects=True)] = 0
    aggregation: str = "sum"
    # What a full matrix is drawn from in place of `opponents`: see `beamrank aggregate`.
    drawn: tuple[int, int] | None = None

    @classmethod
    def settings(cls, own: ConfiguredStage, planning: Planning) -> dict[str, Any]:
        """The seed matters only if pairs are sampled."""
        seed = 0 if own.section.opponents is None else own.section.seed
        return {**super().settings(own, planning), "seed": seed}

    def cost(self, topics: int) -> int:
        """All pairs that are scored."""
        return topics * int(pair_inferences(self.k, self.k, self.opponents))

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
        found = re.fullmatch(
            rf"{re.escape(self.name)}-(\w+)(?:-k([0-9]+))?(?:-m([0-9]+)-s(-?[0-9]+))?", name
        )
        if found is None or found[1] not in METHODS:
            return None
        drawn = None if found[3] is None else (int(found[3]), int(found[4]))
        return (("aggregation", found[1]), ("drawn", drawn)), None if found[2] is None else int(
            found[2]
        )

    @property
    def rank_keys(self) -> dict[str, Any]:
        return {f"{self.name}.aggregation": self.aggregation}

    @property
    def described(self) -> dict[str, Any]:
        drawn = {} if self.drawn is None else {"opponents": self.drawn[0], "seed": self.drawn[1]}
        sampled = {} if self.opponents or self.drawn else {"seed": None}
        return {"aggregation": self.aggregation, **sampled, **drawn}

    def rank(self, before: Rankings | None, part: pa.Table, k: int | None = None) -> Rankings:
        """The docs by the aggregated scores of their pairs."""
        assert before is not None
        return rank_pairs(before, part, self.k, self.aggregation, k=k, drawn=self.drawn)

    @property
    def alternatives(self) -> Sequence[Self]:
        """All aggregations that need no draw, of a full matrix."""
        if self.opponents is not None:
            return (self,)
        return [replace(self, aggregation=name) for name in METHODS if name != "sample"]

    def variants(self, depths: Depths) -> Variants | None:
        """Every k1 and aggregation of a full matrix."""
        return pair_variants(self.k, depths) if self.opponents is None else None

    def details(self, part: pa.Table, query_id: str) -> Mapping[str, Mapping[str, Any]]:
        """The strongest and the weakest opponent of each doc."""
        return opponents(part, query_id)

    def read_tokens(self, queries: Lengths, docs: Lengths, instructions: Lengths) -> Lengths:  # noqa: ARG002
        return duo_kept(self.input_lengths, self.limits, queries, docs, docs)[1]

    def prepare(self, inputs: ShardInputs) -> Prepared:
        architecture = self.checkpoint_of(inputs).architecture
        tokens = inputs.read(self.tokens)
        received = self.received(inputs)
        return prepare_duo(architecture, tokens, received, self.limits, self.opponents, self.seed)

    def known_answers(self, part: pa.Table, tokens: pa.Table) -> Answers:
        return known_duo(part, tokens, self.most_tokens)
