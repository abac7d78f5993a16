"""The stages of beamrank and of plugins, and those of a configuration and of a plan."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from beamrank.commit.stage import StageRecord
from beamrank.config.cascade import PLUGINS, ConfiguredStage
from beamrank.config.run import RunConfig
from beamrank.config.stages import ModelConfig
from beamrank.errors import ConfigError, PreflightError
from models.checkpoints.checkpoint import tokenizer_of
from models.stages.base import LaterStage, Stage
from models.stages.bm25 import RetrieveBm25
from models.stages.duo import ScoreDuo
from models.stages.first_stage import FIRST, FirstStage
from models.stages.given_run import GivenRun
from models.stages.mono import ScoreMono
from models.stages.pairs import ScorePairs
from models.stages.planning import Planning
from models.stages.tokenize import TokenizeDocs

_CORE: tuple[type[Stage], ...] = (
    *(RetrieveBm25, GivenRun, TokenizeDocs),
    *(ScoreMono, ScoreDuo, ScorePairs),
)
_BY_KIND: dict[str, type[Any]] = {each.type_name: each for each in _CORE}


def stage_class(kind: str) -> type[Any]:
    """The class of a kind of stage.

    Raises:
        PreflightError: no package that is installed here has it.
    """
    if kind in _BY_KIND:
        return _BY_KIND[kind]
    try:
        found: type[Any] = PLUGINS[kind]
    except KeyError:
        raise PreflightError(
            f"the plan has a stage of the kind {kind!r}, and this beamrank has {', '.join([*_BY_KIND, *PLUGINS])}: "
            "install the package that brings it, or run again into a different folder"
        ) from None
    return found


class StepClass(NamedTuple):
    """A step of a configuration that is not planned yet; `own` is the section by which its cost is estimated."""

    step: str
    stage: type[Stage]
    own: ConfiguredStage


def steps_of(config: RunConfig) -> list[StepClass]:
    """The steps of a configuration, in order: all tokens are made before all scores."""
    first, *later = config.stages
    found = [StepClass(FIRST, stage_class(first.kind), first)]
    if _token_readers(config):
        found.append(StepClass("tokenize", TokenizeDocs, later[0]))
    return found + [StepClass(each.name, stage_class(each.kind), each) for each in later]


def first_stage_of(config: RunConfig) -> type[FirstStage]:
    """The first stage of a configuration."""
    found: type[FirstStage] = stage_class(config.stages[0].kind)
    return found


def plan_stages(planning: Planning) -> list[Stage]:
    """The stages of a run, in the order in which they are done."""
    config = planning.config
    first = first_stage_of(config).from_config(config.first_stage, planning).with_options(config)
    same_tokenizer: dict[str, list[ConfiguredStage]] = {}
    for each in _token_readers(config):
        same_tokenizer.setdefault(tokenizer_of(planning.checkpoints[each.name]).digest, []).append(each)
    tokens: dict[str, str] = {}
    tokenizing: list[Stage] = []
    for group in same_tokenizer.values():
        stage = TokenizeDocs.from_config(group, config.stages[1], planning)
        tokenizing.append(stage)
        tokens |= dict.fromkeys((each.name for each in group), stage.name)
    ranking: list[Stage] = [first]
    for own in config.stages[1:]:
        ranking.append(stage_class(own.kind).from_config(own, planning, ranking, tokens.get(own.name, "")))
    _check_run_names(ranking)
    return [first, *tokenizing, *ranking[1:]]


def _check_run_names(stages: Sequence[Stage]) -> None:
    """Raises ConfigError where the run of a stage has the name of a run that another's parts can be ranked as."""
    for stage, other in itertools.permutations(stages, 2):
        name = str(stage.run_name)
        if name == other.run_name or other.parse_run_name(name) is not None:
            raise ConfigError(
                f"the run of {stage.name} would be {name}, which is a run of {other.name}: one would replace the "
                "other. Choose a different `name`"
            )


def _token_readers(config: RunConfig) -> list[ConfiguredStage]:
    """The stages with a checkpoint, which read tokens."""
    return [each for each in config.stages[1:] if isinstance(each.section, ModelConfig)]


def open_stages(records: Sequence[StageRecord]) -> list[Any]:
    """The stages of a plan, in its order, each with those that rank before it.

    Raises:
        PreflightError: this beamrank does not have such a stage, or the plan is of a different version.
    """
    found: dict[str, Stage] = {}
    for record in records:
        stage: Stage = stage_class(record.type_name).of_record(record)
        if isinstance(stage, LaterStage):
            stage = replace(stage, chain=tuple(found[name] for name in stage.reads))
        found[record.name] = stage
    return list(found.values())


def open_stage(records: Sequence[StageRecord], name: str) -> Any:
    """One stage of a plan: see `open_stages`."""
    return next(stage for stage in open_stages(records) if stage.name == name)
