"""Other aggregations of the log-odds that a run stored, without a model."""

import os
from collections.abc import Sequence

from beamrank.commit.plan import Plan, read_plan
from beamrank.config.run import RunConfig, stored_config
from beamrank.errors import ConfigError, PreflightError
from beamrank.formats.run_writer import run_scores
from beamrank.formats.runs import RunScores
from beamrank.ranking.aggregation import check_method
from pipelines.runs.run_names import RunFile
from pipelines.runs.shard_rankings import iter_shards


def aggregate(
    output: str | os.PathLike[str],
    aggregation: str,
    k1: int | None = None,
    *,
    opponents: int | None = None,
    seed: int | None = None,
) -> RunScores:
    """The duo run for another aggregation, or for a smaller k1. Writes nothing.

    Args:
        output: the output of a run that has a duo stage.
        aggregation: a name in `beamrank.ranking.aggregation.METHODS`: sum, min, ...
        k1: how many of mono's best are compared; by default all whose pairs were scored.
        opponents: with `sample`, how many opponents a candidate meets.
        seed: with `sample`, which opponents are drawn; 0 by default.

    Returns:
        {query_id: {doc_id: score}}: queries sorted by query_id, docs best first, with the scores of a written run.

    Raises:
        ConfigError: the aggregation is unknown, or the arguments do not go together.
        PreflightError: the output has no finished duo stage, or not as many pairs.
    """
    plan, config, (file,) = other_runs(os.fsdecode(output), [aggregation], k1, opponents, seed)
    found: RunScores = {}
    for shard in iter_shards(plan, config):
        found |= {query_id: run_scores(query_id, ranking) for query_id, ranking in shard.of(file).items()}
    return dict(sorted(found.items()))


def other_runs(
    output: str, aggregations: Sequence[str], k1: int | None, opponents: int | None, seed: int | None
) -> tuple[Plan, RunConfig, list[RunFile]]:
    """The plan and the configuration of an output, and the runs that can be made from its stored pairs.

    Raises:
        ConfigError: see `aggregate`.
        PreflightError: see `aggregate`.
    """
    plan = read_plan(output)
    config = stored_config(plan.config, output)
    if config.duo is None:
        raise PreflightError(f"{output} has no duo stage: there are no pairs to aggregate")
    if k1 is not None and k1 > config.duo.k:
        raise PreflightError(f"--k1 {k1} is more than the {config.duo.k} candidates whose pairs were scored (duo.k)")
    for name in aggregations:
        check_method(name)
    stored = config.duo.opponents is not None
    if ("sample" in aggregations and not stored) != (opponents is not None):
        raise ConfigError("--opponents is how many opponents `sample` draws from a full matrix: give both or neither")
    if stored and k1 is not None:
        raise ConfigError("the stored pairs are a sample (duo.opponents): no smaller k1 can be taken from them")
    if seed is not None and opponents is None:
        raise ConfigError("--seed decides which --opponents are drawn: give both")
    return (
        plan,
        config,
        [RunFile("duo", name, k1, opponents if name == "sample" else None, seed or 0) for name in aggregations],
    )
