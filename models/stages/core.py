"""The stages of beamrank and of plugins, and those of a configuration and of a plan."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from beamrank.commit.stage import StageRecord
from beamrank.config.cascade import PLUGINS, ConfiguredStage
from beamrank.config.run import RunConfig
from beamrank.errors import ConfigError, PreflightError
from beamrank.formats.files import paths_of
from beamrank.section import SELF, Relative, relative
from beamrank.storage import files as storage
from models.checkpoints.checkpoint import tokenizer_of
from models.stages.base import FIRST, Stage
from models.stages.bm25 import RetrieveBm25
from models.stages.duo import ScoreDuo
from models.stages.given_run import GivenRun
from models.stages.mono import ScoreMono
from models.stages.planning import Planning
from models.stages.texts import TEXTS, PassTexts
from models.stages.tokenize import TokenizeDocs

_CORE: tuple[type[Stage], ...] = (
    RetrieveBm25,
    GivenRun,
    TokenizeDocs,
    PassTexts,
    ScoreMono,
    ScoreDuo,
)
# What makes what later stages need.
_JOINS: dict[str, type[Any]] = {"tokens": TokenizeDocs, TEXTS: PassTexts}
_BY_KIND: dict[str, type[Any]] = {each.type_name: each for each in _CORE}


def stage_class(kind: str) -> type[Any]:
    """The class of a kind of stage; raises PreflightError where no package that is installed here
    has it.
    """
    if kind in _BY_KIND:
        return _BY_KIND[kind]
    try:
        found: type[Any] = PLUGINS[kind]
    except KeyError:
        raise PreflightError(
            f"the plan has a stage of the kind {kind!r}, and this beamrank has "
            f"{', '.join([*_BY_KIND, *PLUGINS])}: install the package that brings it, or run "
            "again into a different folder"
        ) from None
    return found


def steps_of(config: RunConfig) -> dict[str, type[Stage]]:
    """The steps of a configuration that is not planned yet, in order: all tokens and texts are made
    before all scores.
    """
    first, *later = config.cascade
    needs = {stage_class(own.kind).needs for own in later}
    return {
        FIRST: stage_class(first.kind),
        **{join.step: join for need, join in _JOINS.items() if need in needs},
        **{own.name: stage_class(own.kind) for own in later},
    }


def worker_paths(config: RunConfig) -> list[tuple[str, str]]:
    """All that workers read and write, with their keys."""
    found = {"corpus.path": config.corpus.path, "output": config.output}
    for own in config.cascade:
        if not stage_class(own.kind).needs_workers(config):
            continue
        if getattr(own.section, "uses_index", False) and config.index is not None:
            found["index.path"] = config.index.path
        for key, field in type(own.section).model_fields.items():
            value = getattr(own.section, key)
            if relative(field) is None or value in (None, SELF):
                continue
            # Of several, one that workers may not reach. A Hugging Face id is the same on every
            # machine.
            path = min(paths_of(value), key=storage.is_remote)
            if relative(field) is not Relative.CHECKPOINT or is_checkpoint_path(path):
                found[f"{own.name}.{key}"] = path
    return [*found.items(), *(("reuse", path) for path in config.reuse)]


def is_checkpoint_path(reference: str) -> bool:
    """Whether a checkpoint is a folder or its URL; neither a Hugging Face id nor embedded:NAME."""
    return "://" in reference or reference.startswith(("/", ".", "~"))


def plan_stages(planning: Planning) -> list[Stage]:
    """The stages of a run, in the order in which they are done."""
    first, *later = planning.config.cascade
    ranking: list[Stage] = [stage_class(first.kind).from_config(first, planning)]
    groups: dict[tuple[str, str], list[ConfiguredStage]] = {}
    for own in later:
        need, checkpoint = stage_class(own.kind).needs, planning.checkpoints.get(own.name)
        if need == TEXTS:
            groups.setdefault((need, ""), []).append(own)
        # One without a checkpoint reads the tokens of the stage before it: see its `planned`.
        elif need and checkpoint:
            groups.setdefault((need, tokenizer_of(checkpoint).digest), []).append(own)
    joins = [_JOINS[need].of_stages(group, planning) for (need, _), group in groups.items()]
    tokens = {
        own.name: join.name
        for join, group in zip(joins, groups.values(), strict=True)
        for own in group
    }
    for own in later:
        placed = replace(
            planning, tokens=tokens, before=tuple(stage for stage in ranking if stage.ranks)
        )
        ranking.extend(stage_class(own.kind).planned(own, placed))
    _check_names(ranking)
    return [ranking[0], *joins, *ranking[1:]]


def _check_names(stages: Sequence[Stage]) -> None:
    """Raises ConfigError where two stages have one folder, or the run of a stage has the name of a
    run that another's parts can be ranked as.
    """
    for stage, other in itertools.permutations(stages, 2):
        if stage.name == other.name:
            raise ConfigError(
                f"the cascade has two stages that write into {stage.name}: choose a different "
                "`name` for one"
            )
        name = str(stage.run_name)
        if name == other.run_name or other.parse_run_name(name) is not None:
            raise ConfigError(
                f"the run of {stage.name} would be {name}, which is a run of {other.name}: one "
                "would replace the other. Choose a different `name`"
            )


def read_checkpoints(config: RunConfig) -> dict[str, Any]:
    """The checkpoints of the stages that have one, by stage; raises PreflightError where one is
    missing, or does not fit the configuration.
    """
    read = {own.name: stage_class(own.kind).read_checkpoint(own, config) for own in config.cascade}
    return {name: checkpoint for name, checkpoint in read.items() if checkpoint is not None}


def open_record(record: StageRecord) -> Any:
    """A stage of a plan by itself, without those that rank before it."""
    return stage_class(record.type_name).of_record(record)


def open_stages(records: Sequence[StageRecord]) -> list[Any]:
    """The stages of a plan, in its order, each with those that rank before it.

    Raises:
        PreflightError: this beamrank does not have such a stage, or the plan is of a different
            version.
    """
    found: dict[str, Stage] = {}
    for record in records:
        stage: Stage = open_record(record)
        if stage.reads:
            stage = replace(stage, chain=tuple(found[name] for name in stage.reads))
        found[record.name] = stage
    return list(found.values())


def open_stage(records: Sequence[StageRecord], name: str) -> Any:
    """One stage of a plan: see `open_stages`."""
    return next(stage for stage in open_stages(records) if stage.name == name)
