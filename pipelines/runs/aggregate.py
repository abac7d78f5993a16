"""Runs of other aggregations of stored log-odds, made without a model."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from beamrank.commit.parts import iter_shards, sealed_stages
from beamrank.commit.plan import Plan, read_plan
from beamrank.config.load import stored_config
from beamrank.config.run import RunConfig
from beamrank.errors import ConfigError, PreflightError
from beamrank.formats.run_writer import run_scores
from beamrank.formats.runs import RunScores
from beamrank.ranking.aggregation import check_method
from models.stages.core import open_stages
from models.stages.duo import ScoreDuo
from pipelines.runs.run_file import RunFile


def aggregate(
    output: str | os.PathLike[str],
    aggregation: str,
    k1: int | None = None,
    *,
    opponents: int | None = None,
    seed: int | None = None,
    stage: str | None = None,
) -> RunScores:
    """The duo run for a different aggregation, or for a smaller k1. Writes nothing.

    Args:
        output: the output of a run that has a duo stage.
        aggregation: a name in `beamrank.ranking.aggregation.METHODS`: sum, min, ...
        k1: how many of mono's best are compared; by default all whose pairs were scored.
        opponents: with `sample`, how many opponents a candidate meets.
        seed: with `sample`, which opponents are drawn; 0 by default.
        stage: the stage that compared pairs, where there are several.

    Returns:
        {query_id: {doc_id: score}}: queries sorted by query_id, docs best first, with the scores of
        a written run.

    Raises:
        ConfigError: the aggregation is unknown, or the arguments do not go together.
        PreflightError: the output has no finished duo stage, or not as many pairs.
    """
    plan, _, stages, (file, *_) = other_runs(
        os.fsdecode(output), [aggregation], k1, opponents, seed, stage
    )
    scores: RunScores = {}
    for parts in iter_shards(plan, stages, sealed_stages(plan)):
        scores |= {
            query_id: run_scores(query_id, ranking)
            for query_id, ranking in file.rankings(parts).items()
        }
    return dict(sorted(scores.items()))


def other_runs(
    output: str,
    aggregations: Sequence[str],
    k1: int | None,
    opponents: int | None,
    seed: int | None,
    stage: str | None = None,
) -> tuple[Plan, RunConfig, Sequence[Any], list[RunFile]]:
    """The runs of other aggregations, each in every format of the configuration; arguments as of
    `aggregate`.

    Before them come their plan, its configuration and its stages.
    """
    plan = read_plan(output)
    config = stored_config(plan.config, output)
    stages = open_stages(plan.stages)
    duo = _pairwise(output, stages, stage)
    if k1 is not None and k1 > duo.k:
        raise PreflightError(
            f"--k1 {k1} is more than the {duo.k} candidates whose pairs were scored ({duo.name}.k)"
        )
    for name in aggregations:
        check_method(name)
    if ("sample" in aggregations and duo.opponents is None) != (opponents is not None):
        raise ConfigError(
            "--opponents is how many opponents `sample` draws from a full matrix: give both or "
            "neither"
        )
    if duo.opponents is not None and k1 is not None:
        raise ConfigError(
            f"the stored pairs are a sample ({duo.name}.opponents): no smaller k1 can be taken "
            "from them"
        )
    if seed is not None and opponents is None:
        raise ConfigError("--seed decides which --opponents are drawn: give both")
    files = []
    for name in aggregations:
        drawn = (opponents, seed or 0) if name == "sample" and opponents is not None else None
        run = replace(duo, aggregation=name, drawn=drawn).varied_run_name(k1)
        variant = (("aggregation", name), ("drawn", drawn))
        files += [
            RunFile(run, duo.name, run_format, k1, variant, config.in_parts(run_format))
            for run_format in config.run_formats
        ]
    return plan, config, stages, files


def _pairwise(output: str, stages: Sequence[Any], name: str | None) -> ScoreDuo:
    """The stage whose pairs are aggregated."""
    comparing = {stage.name: stage for stage in stages if isinstance(stage, ScoreDuo)}
    if not comparing:
        raise PreflightError(f"{output} has no duo stage: there are no pairs to aggregate")
    if name not in comparing and (name is not None or len(comparing) > 1):
        raise ConfigError(
            f"--stage {name}: choose a stage of {output} that compares pairs: "
            f"{', '.join(comparing)}"
        )
    return next(iter(comparing.values())) if name is None else comparing[name]
