"""The differences between two plans, by the keys of the configuration, and the stages that are
redone for them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from beamrank.commit.plan import Plan
from beamrank.commit.stage import StageRecord
from beamrank.config.cascade import find_section
from models.stages.base import RANKED_BY
from models.stages.core import open_stages

# A key whose name ends so holds a digest; users know the path or name in the configuration.
_DIGEST = "_digest"


@dataclass(frozen=True)
class Change:
    """A key whose value differs, and the steps that are redone for it.

    `before` and `after` are equal if the content behind a path or name has changed.
    """

    key: str
    before: Any
    after: Any
    stages: tuple[str, ...]

    def __str__(self) -> str:
        if self.before == self.after:
            return f"{self.key}: the content of {_shown(self.after)} changed"
        return f"{self.key} {_shown(self.before)} -> {_shown(self.after)}"


def plan_changes(before: Plan, after: Plan) -> list[Change]:
    """The keys that decide bytes and differ, in the order of the stages; never the run tag or
    measures.
    """
    changes: dict[str, Change] = {}
    for change in (*_changes_of_all_stages(before, after), *_stage_changes(before, after)):
        stages = {*change.stages, *(changes[change.key].stages if change.key in changes else ())}
        steps = dict.fromkeys(stage.step for stage in after.stages)
        changes[change.key] = replace(
            change, stages=tuple(step for step in steps if step in stages)
        )
    return list(changes.values())


def _changes_of_all_stages(before: Plan, after: Plan) -> Iterator[Change]:
    everything = tuple(stage.step for stage in after.stages)
    if before.engine_version != after.engine_version:
        yield Change("engine_version", before.engine_version, after.engine_version, everything)
    old, new = before.topics, after.topics
    both, unchanged = (len(topics) for topics in new.in_both(old))
    if not len(old) == len(new) == unchanged:
        differ = (
            f"{len(new) - both:,} new, {len(old) - both:,} gone, {both - unchanged:,} with "
            "another text"
        )
        yield Change("topics", f"{len(old):,}", f"{len(new):,} ({differ})", everything)
    elif len(before.shards) != len(after.shards):
        yield Change("shards", len(before.shards), len(after.shards), everything)


def _stage_changes(before: Plan, after: Plan) -> Iterator[Change]:
    names_before, names_after = (
        {stage.name: stage.config_keys for stage in open_stages(plan.stages)}
        for plan in (before, after)
    )
    for stage in after.stages:
        affected = _following(after, stage)
        # Another tokenizer has another folder.
        same = before.of_step(stage.step)
        old = next(
            (earlier for earlier in same if earlier.name == stage.name), same[0] if same else None
        )
        if old is None:
            # A new model brings its tokens too: both are one change.
            keys = names_after[stage.name].items()
            models = (
                name for key, name in keys if key.endswith(_DIGEST) and name.endswith(".checkpoint")
            )
            name = next(models, None)
            shown = stage.type_name if name is None else _configured(after.config, name)
            yield Change((name or stage.step).removesuffix(".checkpoint"), None, shown, affected)
            continue
        then, now = _flat(old.keys), _flat(stage.keys)
        names = names_before[old.name] | names_after[stage.name]
        for key in {**then, **now}:
            if then.get(key) != now.get(key):
                name = names.get(key, key)
                values = [
                    _configured(plan.config, name) if key.endswith(_DIGEST) else keys.get(key)
                    for plan, keys in ((before, then), (after, now))
                ]
                yield Change(name, values[0], values[1], affected)


def _flat(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a stage, and of how the stages before it rank, under the names of the
    configuration.
    """
    return {
        **{key: value for key, value in keys.items() if key != RANKED_BY},
        **keys.get(RANKED_BY, {}),
    }


def _following(plan: Plan, stage: StageRecord) -> tuple[str, ...]:
    """The steps of a stage and of all that read it, directly or not."""
    names = {stage.name: stage.step}
    for later in plan.stages:
        if names.keys() & set(later.inputs):
            names[later.name] = later.step
    return tuple(names.values())


def _configured(config: Mapping[str, Any], name: str) -> Any:
    """The value of a dotted key, also of a stage in the list; None where the configuration does not
    have it.

    A digest is shown by it: users know the path or name.
    """
    first, *rest = name.split(".")
    section: Any = find_section(config, first) or config.get(first)
    for part in rest:
        section = section.get(part) if isinstance(section, Mapping) else None
    return section


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)
