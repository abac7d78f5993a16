"""The reader of a shard's parts: each is read and ranked once."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest, StageFolder
from beamrank.commit.schemas import candidates_table
from beamrank.commit.shards import find_shards
from beamrank.commit.stage import Stage
from beamrank.errors import PreflightError
from beamrank.formats.run_writer import RUN_TABLE, scores_of_query
from beamrank.ranking.rankings import Rankings


class ShardParts:
    """The parts of one shard, and the rankings that follow from them."""

    def __init__(self, shard: int, stages: Sequence[Stage], read: Callable[..., Any]) -> None:
        """Reads nothing yet; `read` returns the shard's part of a stage, or some of its columns;
        `stages` are in order.
        """
        self.shard = shard
        self.stages = [stage for stage in stages if stage.ranks]
        self.part = cache(read)
        """The part of a stage, by its name, or some of its columns (a tuple); raises ReceiptError
        where it is missing or damaged.
        """
        self._rankings: dict[str, Rankings] = {}

    def rankings(self, name: str) -> Rankings:
        """The rankings after a stage, by query_id."""
        if name not in self._rankings:
            self._rankings[name] = self.rank(
                next(stage for stage in self.stages if stage.name == name)
            )
        return self._rankings[name]

    def rank(self, stage: Stage, k: int | None = None) -> Rankings:
        """The rankings after a stage, which may have other settings, as if it had scored only the
        first k docs.
        """
        return stage.rank(self.before(stage.name), self.part(stage.name), k)

    def before(self, name: str) -> Rankings | None:
        """The rankings that a stage re-ranks; None for the first stage."""
        place = [stage.name for stage in self.stages].index(name)
        return self.rankings(self.stages[place - 1].name) if place else None

    def table(self, name: str, rankings: Rankings) -> Any:
        """Rankings of a stage as a table of `RUN_TABLE`; raises DataError for a score that is not
        finite in float32.
        """
        counts = [len(ranking.doc_ids) for ranking in rankings.values()]
        scores = [
            scores_of_query(query_id, ranking.scores.tolist())
            for query_id, ranking in rankings.items()
        ]
        table = candidates_table(
            list(rankings), [ranking.doc_ids for ranking in rankings.values()], scores
        )
        raw = np.concatenate([np.empty(0), *(ranking.scores for ranking in rankings.values())])
        scored = np.repeat([ranking.scored for ranking in rankings.values()], counts)
        names = [stage.name for stage in self.stages]
        chain = {before: self.rankings(before) for before in names[: names.index(name)]}
        # The stage that scored a doc last gave it its place.
        stage_of = {
            (query_id, doc_id): stage
            for stage, by_query in {**chain, name: rankings}.items()
            for query_id, ranking in by_query.items()
            for doc_id in ranking.doc_ids[: ranking.scored]
        }
        stages = [
            stage_of[one, doc_id] for one, ranking in rankings.items() for doc_id in ranking.doc_ids
        ]
        by_stage = pa.array(raw, mask=table["rank"].to_numpy() > scored)
        return pa.table([*table.columns, pa.array(stages, pa.string()), by_stage], schema=RUN_TABLE)


def sealed_stages(plan: Plan) -> dict[str, Manifest]:
    """The manifest of every stage, by name.

    Raises:
        PreflightError: stages are not finished; it names them, and how to run them or to do without
            them.
    """
    manifests = plan.manifests(StageFolder.seal)
    missing = [stage for stage in plan.stages if stage.name not in manifests]
    if not missing:
        return manifests
    steps = ", then ".join(
        f"--stage {step}" for step in dict.fromkeys(stage.step for stage in missing)
    )
    message = (
        f"{', '.join(stage.name for stage in missing)} {'is' if len(missing) == 1 else 'are'} not "
        f"finished under {plan.output}, and the runs are written from all stages of the "
        f"configuration. Run what is missing: with {steps}, or everything without --stage"
    )
    ranking = [stage for stage in plan.stages if stage.run_name is not None]
    if optional := [
        f"--set {stage.name}=null" for stage in reversed(ranking[1:]) if stage in missing
    ]:
        message += f". Or do without: {' '.join(optional)}"
    raise PreflightError(message)


def iter_shards(
    plan: Plan,
    stages: Sequence[Stage],
    manifests: Mapping[str, Manifest],
    queries: Collection[str] | None = None,
) -> Iterator[ShardParts]:
    """The parts of each shard, or the rows of some queries, all of the plan, in their shards."""

    def read(shard: int, name: str, columns: Collection[str] | None = None) -> Any:
        part = plan.folder(name).read_part(manifests[name].receipts[shard], columns)
        if queries is None:
            return part
        return part.filter(pc.is_in(part["query_id"], pa.array(sorted(queries), pa.string())))

    shards = range(len(plan.shards))
    for shard in (
        shards
        if queries is None
        else np.unique(find_shards(plan.shards.first_hashes, queries)).tolist()
    ):
        yield ShardParts(shard, stages, partial(read, shard))
