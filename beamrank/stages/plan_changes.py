"""What differs between two plans, by the keys of the configuration, and which stages are done again for it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from beamrank.stages.plan import Plan, StageKind, StageSpec

# What a key of a stage is called in the configuration, where that is not `stage.key`.
_NAMES: dict[tuple[StageKind, str], str] = {
    ("retrieve", "index"): "index.path",
    ("retrieve", "k1"): "bm25.k1",
    ("retrieve", "b"): "bm25.b",
    ("retrieve", "run"): "candidates.run",
    ("retrieve", "ties"): "candidates.ties",
    ("tokenize", "corpus"): "corpus.path",
    ("tokenize", "k"): "mono.k",
    ("tokenize", "max_doc_tokens"): "wordpieces stored of a doc",
    ("tokenize", "on_missing_doc"): "on_missing_doc",
    ("mono", "segments"): "mono.segments (length, stride, limit)",
    ("duo", "pooling"): "mono.segments.pooling",
}
_SHARED = {
    "truncation": "input.truncation",
    "max_query_length": "input.max_query_length",
    "max_length": "input.max_length",
    "device": "device",
    "dtype": "dtype",
    "token_budget": "tokens of a batch",
}
# These hold digests: what a user knows is the path or name in the configuration.
_DIGESTS = ("index", "run", "corpus", "tokenizer", "checkpoint")


@dataclass(frozen=True)
class Change:
    """A key whose value differs, and the kinds of stages that it decides: they are done again.

    `before` and `after` are alike where what a path or name leads to has changed.
    """

    key: str
    before: Any
    after: Any
    stages: tuple[StageKind, ...]

    def __str__(self) -> str:
        """Without its stages."""
        if self.before == self.after:
            return f"{self.key}: the content of {_shown(self.after)} changed"
        return f"{self.key} {_shown(self.before)} -> {_shown(self.after)}"


def plan_changes(before: Plan, after: Plan) -> list[Change]:
    """The keys that decide bytes and differ, in the order of the stages; never the run tag, measures or the like."""
    found: dict[str, Change] = {}
    for change in (*_topic_changes(before, after), *_stage_changes(before, after)):
        same = found.get(change.key)
        stages = change.stages if same is None else (*same.stages, *change.stages)
        kinds = dict.fromkeys(stage.kind for stage in after.stages)
        found[change.key] = Change(
            change.key, change.before, change.after, tuple(kind for kind in kinds if kind in stages)
        )
    return list(found.values())


def _topic_changes(before: Plan, after: Plan) -> Iterator[Change]:
    everything = tuple(stage.kind for stage in after.stages)
    old, new = ({topic.query_id: topic.text for topic in plan.topics} for plan in (before, after))
    if old != new:
        texts = sum(old[query_id] != new[query_id] for query_id in old.keys() & new.keys())
        differ = (
            f"{len(new.keys() - old.keys()):,} new, {len(old.keys() - new.keys()):,} gone, {texts:,} with another text"
        )
        yield Change("topics", f"{len(old):,}", f"{len(new):,} ({differ})", everything)
    elif len(before.shards) != len(after.shards):
        yield Change("shards", len(before.shards), len(after.shards), everything)


def _stage_changes(before: Plan, after: Plan) -> Iterator[Change]:
    for stage in after.stages:
        old = _counterpart(before, stage)
        affected = _following(after, stage)
        if old is None:
            # Tokens are made for the models of another stage.
            yield Change(stage.places.get("kind", stage.name), None, stage.places.get("checkpoint"), affected)
            continue
        for key in dict.fromkeys([*old.keys, *stage.keys]):
            if old.keys.get(key) != stage.keys.get(key):
                name = _name(key, stage if key in stage.keys else old)
                yield Change(name, _value(before, old, key, name), _value(after, stage, key, name), affected)


def _counterpart(before: Plan, stage: StageSpec) -> StageSpec | None:
    """The stage of the other plan that did the same; another tokenizer makes another folder."""
    same = [old for old in before.stages if old.kind == stage.kind]
    return next((old for old in same if old.name == stage.name), same[0] if same else None)


def _following(plan: Plan, stage: StageSpec) -> tuple[StageKind, ...]:
    """The kinds of a stage and of all that read it, directly or not."""
    names: dict[str, StageKind] = {stage.name: stage.kind}
    for each in plan.stages:
        if names.keys() & set(each.inputs):
            names[each.name] = each.kind
    return tuple(names.values())


def _value(plan: Plan, stage: StageSpec, key: str, name: str) -> Any:
    """What decides the bytes; what the configuration says instead of a digest, or of a default that has no key."""
    value = None if key in _DIGESTS else stage.keys.get(key)
    return _configured(plan.config, name) if value is None else value


def _name(key: str, stage: StageSpec) -> str:
    if key == "tokenizer":
        return f"{stage.places['kind']}.checkpoint"
    if stage.kind == "retrieve" and key == "k":
        return "candidates.k" if "run" in stage.keys else "bm25.k"
    return _NAMES.get((stage.kind, key)) or _SHARED.get(key) or f"{stage.kind}.{key}"


def _configured(config: Mapping[str, Any], name: str) -> Any:
    """The value of a dotted key; None where the configuration does not have it."""
    found: Any = config
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)
