"""The cost of a run: counts from the configuration, seconds from a short measurement on this machine."""

from dataclasses import dataclass

from beamrank.commit.shards import cut_shards
from beamrank.config.run import RunConfig
from beamrank.evaluation.measures import parse_measures
from beamrank.formats.corpora import list_units
from beamrank.storage import files as storage
from models.stages.core import steps_of
from models.stages.planning import resolve_checkpoints
from models.stages.sample import Sample
from models.stages.tokenize import stored_doc_tokens
from pipelines.plan.join_passes import join_passes
from pipelines.plan.make_plan import check_apart, chosen_topics
from pipelines.plan.plan_changes import Change
from pipelines.plan.remaining import find_remaining


@dataclass(frozen=True)
class StageEstimate:
    """The whole stage, and as `remaining_*` its shards without a receipt.

    `remaining_inferences` are the most that are made, and `remaining_reused` the most that are taken over from earlier
    runs; `remaining_undecided` count in both, since the candidates or texts of their queries can have changed. The
    seconds are those of `remaining_inferences`.
    """

    stage: str
    inferences: int
    bytes: int
    seconds: float
    remaining_shards: int
    remaining_inferences: int
    remaining_reused: int
    remaining_undecided: int
    remaining_bytes: int
    remaining_seconds: float

    def predicted_seconds(self, shards: int) -> float:
        """Of the whole stage, which has so many shards, without what will be taken over."""
        return self.remaining_seconds if self.remaining_shards == shards else self.seconds


@dataclass(frozen=True)
class Estimate:
    """A whole run; the corpus is read at most `join_passes` times, with the memory that is free now.

    `changed` holds the differences from the current plan of the output; `note` explains why they are unknown.
    `not_reused` explains why scores of earlier runs are not taken over, a line each.
    """

    topics: int
    shards: int
    join_passes: int
    stages: tuple[StageEstimate, ...]
    changed: tuple[Change, ...]
    note: str | None
    not_reused: tuple[str, ...] = ()

    @property
    def resumes(self) -> bool:
        """Whether receipts of earlier runs count."""
        return any(stage.remaining_shards < self.shards for stage in self.stages)


def estimate(config: RunConfig) -> Estimate:
    """Estimates a run and the rest of it after earlier runs. Writes nothing.

    Every topic is taken to have all its candidates, so that counts are upper bounds.

    Raises:
        PreflightError: an input is missing or invalid.
    """
    check_apart(config)
    storage.check_folder(config.output)
    parse_measures(config.measures)
    topics = chosen_topics(config).kept
    shards = cut_shards(topics, config.shards)
    checkpoints = resolve_checkpoints(config)
    models = [each for each in config.stages if each.name in checkpoints]
    doc_tokens = max((stored_doc_tokens(config, each, checkpoints[each.name]) for each in models), default=0)
    sample = Sample(config, topics, checkpoints, doc_tokens)
    costs = [(each.step, each.stage.estimate(each.own, config, sample)) for each in steps_of(config)]
    remaining = find_remaining(config)
    stages = []
    for step, cost in costs:
        missing = remaining.shards.get(step, range(len(shards)))
        open_topics = [topic.query_id for shard in missing for topic in shards[shard].topics]
        rest, expected = cost(len(open_topics)), remaining.reused.get(step)
        made, reused, seconds = rest.inferences, 0, rest.seconds
        if expected is not None and (inputs := expected.inputs * len(open_topics)):
            scored, taken = expected.most_scored(open_topics), expected.most_taken(open_topics)
            made, reused, seconds = made * scored // inputs, made * taken // inputs, seconds * scored / inputs
        undecided = max(0, made + reused - rest.inferences)
        whole = cost(len(topics))
        stages.append(StageEstimate(step, *whole, len(missing), made, reused, undecided, rest.bytes, seconds))
    passes = 0
    if models:
        passes = join_passes(
            len(topics) * config.stages[1].section.k, list_units(config.corpus), len(shards), doc_tokens
        )
    reasons = dict.fromkeys(
        f"{name}: not taken over: {one}" for name, each in remaining.reused.items() for one in each.refused
    )
    return Estimate(len(topics), len(shards), passes, tuple(stages), remaining.changed, remaining.note, tuple(reasons))
