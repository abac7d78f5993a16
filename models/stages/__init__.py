"""The stages of a run, one class a file (docs/internals/extending.md). Another stage is one file, and one line here."""

from beamrank.commit.stage_record import StageRecord
from beamrank.config.run import RunConfig, add_first_stage, remove_first_stage
from beamrank.errors import PreflightError
from models.stages.base import Stage
from models.stages.bm25 import RetrieveBm25
from models.stages.duo import ScoreDepths, ScoreDuo
from models.stages.first_stage import FirstStage
from models.stages.given_run import GivenRun
from models.stages.mono import ScoreMono
from models.stages.pairs import ScorePairs
from models.stages.planning import Planning
from models.stages.tokenize import TokenizeDocs

_LATER: tuple[type[Stage], ...] = (TokenizeDocs, ScoreMono, ScoreDuo, ScoreDepths, ScorePairs)
STAGES: dict[str, type[Stage]] = {each.type_name: each for each in _LATER}
FIRST_STAGES: dict[str, type[FirstStage]] = {}


def register_first_stage(stage: type[FirstStage]) -> None:
    """Adds a first stage; its type_name is its section of the configuration."""
    FIRST_STAGES[stage.type_name] = STAGES[stage.type_name] = stage
    add_first_stage(stage.type_name, stage.section)


def unregister_first_stage(stage: type[FirstStage]) -> None:
    """Removes a first stage, for tests."""
    del FIRST_STAGES[stage.type_name], STAGES[stage.type_name]
    remove_first_stage(stage.type_name)


for each in (RetrieveBm25, GivenRun):
    register_first_stage(each)


def first_stage_of(config: RunConfig) -> type[FirstStage]:
    """The first stage of a configuration."""
    return FIRST_STAGES[config.first_stage_name]


def stages_of(config: RunConfig) -> list[type[Stage]]:
    """The stages of a configuration, in order; two models with different tokenizers have two that tokenize."""
    found: list[type[Stage]] = [first_stage_of(config)]
    if config.mono is not None:
        found += [TokenizeDocs, ScoreMono]
    if config.duo is not None:
        found.append(ScoreDuo)
    return found


def plan_stages(planning: Planning) -> list[Stage]:
    """The stages of a run, in the order in which they are done."""
    config = planning.config
    first = first_stage_of(config).from_config(config.first_stage, planning).with_options(config)
    return [first, *plan_later_stages(planning)]


def plan_later_stages(planning: Planning) -> list[Stage]:
    """Those after the first stage, whose index they do not need."""
    config = planning.config
    stages: dict[str, Stage] = {}
    # All tokens before all scores.
    tokens = {model: TokenizeDocs.from_config(model, planning) for model in planning.checkpoints}
    for each in tokens.values():
        stages.setdefault(each.name, each)
    if config.mono is not None:
        stages["mono"] = ScoreMono.from_config(config.mono, planning, tokens["mono"].name)
    if config.duo is not None:
        stages["duo"] = ScoreDuo.from_config(config.duo, planning, tokens["duo"].name)
    return list(stages.values())


def stage_of(record: StageRecord) -> Stage:
    """The stage that a plan holds.

    Raises:
        PreflightError: this beamrank does not have such a stage, or the plan is of another version.
    """
    if record.type_name not in STAGES:
        raise PreflightError(
            f"the plan has a stage of type {record.type_name!r}, and this beamrank has {', '.join(STAGES)}: use the "
            "beamrank that planned the run, or run again into another folder"
        )
    return STAGES[record.type_name].of_record(record)
