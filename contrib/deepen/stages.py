"""The stages that go deeper than a mono where its scores promise most, within a number of
inferences.

For a mono named `mono`: `mono-deeper-gaps` reduces each topic's scores to one number,
`mono-deeper-depths` decides from the numbers of all topics how many more docs each gets, and
`mono-deeper` scores these with mono's model. Its parts hold mono's scores too, so that they equal
the parts of one deeper mono.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Annotated, Any, NamedTuple, NoReturn, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.plan import Plan
from beamrank.config.cascade import ConfiguredStage
from beamrank.config.stages import StageConfig
from beamrank.errors import ConfigError
from beamrank.ranking.rankings import Floats, Rankings, rank_docs
from beamrank.ranking.variants import Depths
from beamrank.section import Positive
from models.scoring.answers import Answered
from models.stages.base import Key, Stage
from models.stages.compute import Computed, ShardInputs
from models.stages.mono import ScoreMono
from models.stages.planning import Planning

GAPS = pa.schema(
    {"query_id": pa.string(), "gap": pa.float32(), "scored": pa.int32(), "left": pa.int32()},
    metadata={"beamrank.schema": "gaps/1"},
)
DEPTHS = pa.schema(
    {"query_id": pa.string(), "docs": pa.int32()}, metadata={"beamrank.schema": "depths/1"}
)
_HEAD = 10
_FILES_AT_ONCE = 16


def gap(scores: Floats) -> float:
    """By how much the tenth best doc is above the best one in the second half of the first depth.

    The lower it is, the more the last docs that were scored contend with the first, and so may
    those below them. Of a first depth below twenty, the doc in the middle takes the place of the
    tenth.

    Args:
        scores: float64[n], of the docs that were scored, in the order before.
    """
    if len(scores) < 2:
        return 0.0
    half = len(scores) // 2
    return float(np.sort(scores)[-min(_HEAD, half)] - scores[half:].max())


class Cut(NamedTuple):
    """The last topic that gets docs, by its gap and its id, and how many; topics before it get all
    that are left.
    """

    gap: float
    query_id: str
    docs: int

    @classmethod
    def of(cls, gaps: pa.Table, docs: int) -> Self:
        """The end of so many docs, spent on the smallest gaps first."""
        order = pc.sort_indices(gaps, [("gap", "ascending"), ("query_id", "ascending")]).to_numpy()
        spent = np.cumsum(gaps["left"].to_numpy()[order], dtype=np.int64)
        place = int(np.searchsorted(spent, docs, side="right"))
        if place == len(order):
            return cls(math.inf, "", 0)
        row = gaps.slice(order[place], 1).to_pylist()[0]
        return cls(row["gap"], row["query_id"], docs - int(spent[place] - row["left"]))

    def docs_of(self, gap: float, query_id: str, left: int) -> int:
        """How many more docs of a topic are scored."""
        here, last = (gap, query_id), (self.gap, self.query_id)
        return left if here < last else self.docs if here == last else 0


class DeeperConfig(StageConfig):
    """Goes deeper than the mono before it, where this promises most."""

    deepens = True

    k: Positive = 1000
    """How many candidates of a topic the mono before it and this stage score together, at most."""
    inferences: Positive
    """How many inferences the mono before it and this stage make together, at most."""


@dataclass(frozen=True, kw_only=True)
class _Deciding(Stage):
    """A stage that decides for another, which it `prepares`, and ranks nothing."""

    section = StageConfig
    ranks = False
    prepares: str

    @classmethod
    def from_config(cls, *_: Any) -> NoReturn:
        """It is not a stage of a configuration."""
        raise ConfigError(
            f"the stage {cls.type_name} is a part of `{ScoreDeeper.type_name}`: leave it out"
        )

    @property
    def step(self) -> str:
        return self.prepares

    def compute(self, inputs: ShardInputs) -> Computed:
        part = pa.Table.from_pylist(list(self._rows(inputs)), self.schema)
        return Computed(part, {"queries": part.num_rows})

    @abstractmethod
    def _rows(self, inputs: ShardInputs) -> Iterable[Mapping[str, Any]]:
        """The rows of its part."""


@dataclass(frozen=True, kw_only=True)
class FindGaps(_Deciding):
    """The gap of each topic, and how many docs of it are left below the first depth."""

    type_name = "gaps"
    schema = GAPS

    depth: Annotated[int, Key("{prepares}.k")]

    def _rows(self, inputs: ShardInputs) -> Iterator[dict[str, Any]]:
        parts, name = self.parts_before(inputs), self.chain[-1].name
        before, after = parts.before(name), parts.rankings(name)
        assert before is not None
        for query_id, ranking in sorted(after.items()):
            given = before[query_id]
            score_of = dict(
                zip(ranking.doc_ids[: ranking.scored], ranking.scores.tolist(), strict=False)
            )
            scores = np.array(
                [score_of[doc_id] for doc_id in given.doc_ids[: self.k] if doc_id in score_of]
            )
            left = min(self.depth, len(given.doc_ids)) - min(self.k, given.scored)
            yield {"query_id": query_id, "gap": gap(scores), "scored": len(scores), "left": left}


@dataclass(frozen=True, kw_only=True)
class DecideDepths(_Deciding):
    """How many more docs of each topic are scored: a topic with a smaller gap gets all that are
    left before another.
    """

    type_name = "depths"
    schema = DEPTHS

    inferences: Annotated[int, Key("{prepares}.inferences")]
    inferences_a_doc: int
    waits_for: str
    cut: Cut | None = None
    """The decision of `decided`."""

    def decided(self, plan: Plan) -> Self:
        manifest, folder = plan.manifest(self.waits_for), plan.folder(self.waits_for)
        assert manifest is not None
        docs = self.inferences // self.inferences_a_doc
        tables = []
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            parts = pool.map(folder.read_part, manifest.receipts)
        for part in parts:
            docs -= pc.sum(part["scored"], min_count=0).as_py()
            tables.append(part.select(["query_id", "gap", "left"]))
        return replace(self, cut=Cut.of(pa.concat_tables(tables), max(0, docs)))

    def _rows(self, inputs: ShardInputs) -> Iterator[dict[str, Any]]:
        assert self.cut is not None
        for row in inputs.read(self.waits_for).to_pylist():
            docs = self.cut.docs_of(row["gap"], row["query_id"], row["left"])
            yield {"query_id": row["query_id"], "docs": docs}


@dataclass(frozen=True, kw_only=True)
class ScoreDeeper(ScoreMono):
    """Scores the first `docs` docs below the docs that mono scored; its parts have mono's scores
    too.
    """

    type_name = "deeper"
    section = DeeperConfig  # type: ignore[assignment]

    # The mono before it, its depth, and the stage that decides the depths.
    mono: str
    first_k: int
    depths: str
    inferences: int

    @classmethod
    def planned(cls, own: ConfiguredStage, planning: Planning) -> Sequence[Stage]:
        """With the stages that decide how deep it goes.

        Raises:
            ConfigError: the stage before it is no mono, or one that combines scores.
        """
        mono = planning.before[-1]
        if type(mono) is not ScoreMono:
            raise ConfigError(
                f"{own.name} goes deeper than a mono, and {mono.name} before it is none: give it "
                "a mono"
            )
        if mono.combine is not None:
            raise ConfigError(
                f"{own.name} goes deeper by the scores of {mono.name}, which has combined ones: "
                f"leave out {own.name} or {mono.name}.combine"
            )
        placed: dict[str, Any] = {
            "ranked_by": mono.ranked_by | mono.rank_keys,
            "k": mono.k,
            "prepares": own.name,
        }
        reads = (*mono.reads, mono.name)
        gaps = FindGaps(own_name=f"{own.name}-gaps", reads=reads, depth=own.section.k, **placed)
        most = 1 if mono.segments is None else mono.segments.limit
        budget = {"inferences": own.section.inferences, "inferences_a_doc": most}
        depths = DecideDepths(
            own_name=f"{own.name}-depths",
            reads=(gaps.name,),
            waits_for=gaps.name,
            **placed,
            **budget,
        )
        shared = {field.name: getattr(mono, field.name) for field in fields(ScoreMono)}
        shared |= {
            "own_name": own.name,
            "k": own.section.k,
            "ranked_by": placed["ranked_by"],
            "reads": reads,
        }
        deeper = {
            "mono": mono.name,
            "first_k": mono.k,
            "depths": depths.name,
            "inferences": own.section.inferences,
        }
        return gaps, depths, cls(**shared, **deeper)

    @property
    def inputs(self) -> tuple[str, ...]:
        *others, mono = super().inputs
        return (*others, self.depths, mono)

    def cost(self, topics: int) -> int:
        """The budget that the mono before it leaves, if all topics have as many candidates as
        possible.
        """
        most = super().cost(topics)
        return max(0, min(most, self.inferences) - most * self.first_k // self.k)

    def received(self, inputs: ShardInputs) -> dict[str, Sequence[str]]:
        """The docs that mono scored, and below them as many more as were decided."""
        docs = {row["query_id"]: row["docs"] for row in inputs.read(self.depths).to_pylist()}
        ranked = self.parts_before(inputs).rankings(self.mono)
        return {
            query_id: ranking.doc_ids[: ranking.scored + docs[query_id]]
            for query_id, ranking in ranked.items()
        }

    def rank(self, before: Rankings | None, part: pa.Table, k: int | None = None) -> Rankings:
        """The docs by the scores of both stages: the ranking of a mono that is deeper for some
        topics.
        """
        assert before is not None
        last = part.group_by("query_id").aggregate([("rank", "max")])
        depths = dict(zip(last["query_id"].to_pylist(), last["rank_max"].to_pylist(), strict=True))
        deeper = {
            query_id: replace(ranking, scored=max(ranking.scored, depths.get(query_id, 0)))
            for query_id, ranking in before.items()
        }
        return rank_docs(deeper, part, self.k, self.pooling, k)

    def variants(self, depths: Depths) -> None:
        """None: topics have different depths."""

    def answered(self, inputs: ShardInputs) -> Answered:
        """Its part has mono's scores too."""
        known = self.known_answers(inputs.read(self.mono), inputs.read(self.tokens))
        return super().answered(replace(inputs, earlier=chain([known], inputs.earlier)))
