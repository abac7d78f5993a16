"""What is searched: processes, the files that they find, and the faults of each configuration."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tests.protocol.model import (
    CURRENT,
    GC,
    PROTECTIONS,
    RUN,
    SHORT,
    SUCCESS,
    Model,
    Receipt,
    manifest_name,
    part_name,
    receipt_name,
    run_part,
)
from tests.protocol.properties import explore
from tests.protocol.search import Search
from tests.protocol.world import Actor

P, Q = "P", "Q"


@dataclass(frozen=True)
class Configuration:
    """Processes of a model, and the rules of their world; see `world.Rules`.

    `files` are what the processes find, one beginning each; `plans` are those that a launcher that
    runs alone must be able to finish.
    """

    model: Model
    processes: tuple[tuple[str, str], ...]
    rules: Mapping[str, Any]
    plans: tuple[str, ...] = (P,)
    files: tuple[Mapping[str, Hashable], ...] = ({},)

    def search(self, *without: str) -> Search:
        """Searches all states, without some of `PROTECTIONS`."""
        assert PROTECTIONS.keys() >= set(without)
        model = replace(self.model, without=frozenset(without))
        actors = [_actor(model, *process) for process in self.processes]
        return explore(model, actors, self.plans, self.files, **self.rules)


def _actor(model: Model, name: str, does: str) -> Actor:
    if does == GC:
        return Actor(name, GC, partial(model.gc, ahead=name.endswith("ahead")), is_launcher=False)
    if does.isdigit():
        return Actor(name, P, partial(model.share, plan=P, own=(int(does),)))
    return Actor(name, does, partial(model.launcher, plan=does))


def _content(plan: str) -> tuple[Hashable, ...]:
    return ("part", plan, plan, 0, "-")


def _planned(plan: str, *, is_done: bool, is_sealed: bool = False) -> dict[str, Hashable]:
    """The files of a plan of one shard: its part, the receipt if it is done, the manifest if it is
    sealed.
    """
    content = _content(plan)
    receipt = Receipt(plan, 0, part_name("mono", 0, content), content)
    files: dict[str, Hashable] = {f"topics-{plan}": plan, f"plan-{plan}": plan}
    files[receipt.part] = content
    if is_done:
        files[receipt_name("mono", 0, plan)] = receipt
    if is_sealed:
        files[manifest_name("mono", (plan,))] = (receipt,)
    return files


def _damaged(*, is_short: bool) -> dict[str, Hashable]:
    """A shard that was done, and whose part was cut, or whose receipt was changed."""
    files = _planned(P, is_done=True)
    part, name = part_name("mono", 0, _content(P)), receipt_name("mono", 0, P)
    if is_short:
        return {**files, part: SHORT}
    return {**files, name: Receipt(P, 0, part, ("part", P, P, 0, "other"), changed=True)}


_TWO = (("launcher 1", P), ("launcher 2", P))
_OF_ONE_PLAN = {"keeps": True, "alike": True}
_EARLIER_RUN = {run_part(shard): ("earlier", ("part", "earlier")) for shard in range(3)}
_SHARED: tuple[Mapping[str, Hashable], ...] = (
    {},
    # The part of a killed attempt of the current plan, and another plan that was interrupted.
    {**_planned(P, is_done=False), **_planned(Q, is_done=True), CURRENT: (P, -2)},
    {
        **_planned(P, is_done=True, is_sealed=True),
        **_planned(Q, is_done=False),
        CURRENT: (P, -2),
        RUN: (P, _content(P)),
    },
)
_GC_RULES = {"ticks": 2, "delays_all": False}

CONFIGURATIONS: Mapping[str, Configuration] = {
    "2 launchers, 2 shards": Configuration(Model(shards=2), _TWO, _OF_ONE_PLAN),
    "3 launchers, 2 shards": Configuration(
        Model(shards=2), (*_TWO, ("launcher 3", P)), _OF_ONE_PLAN
    ),
    "2 plans, 1 shard, gc, clocks an hour apart": Configuration(
        Model(varies=False, shared=True),
        (("launcher of P", P), ("launcher of Q", Q), ("gc, an hour ahead", GC)),
        _GC_RULES,
        (P, Q),
        _SHARED,
    ),
    "3 shares, 3 shards, 2 stages": Configuration(
        Model(shards=3, stages=("mono", "duo"), varies=False),
        (("--only 0/3", "0"), ("--only 1/3", "1"), ("--only 2/3", "2")),
        {"keeps": True},
    ),
    "a run in parts, 2 launchers": Configuration(
        Model(shards=2, in_parts=True, varies=False),
        _TWO,
        _OF_ONE_PLAN,
        files=({}, {**_EARLIER_RUN, SUCCESS: "earlier"}),
    ),
    "answers that cost money, 2 launchers": Configuration(
        Model(shards=2, asks=True), _TWO, _OF_ONE_PLAN
    ),
    "damaged files, 2 launchers": Configuration(
        Model(varies=False),
        _TWO,
        {"alike": True},
        files=(_damaged(is_short=True), _damaged(is_short=False)),
    ),
    "hidden files, 2 launchers": Configuration(
        Model(is_local=True), _TWO, {"alike": True, "faults": ("crash",)}
    ),
    "2 plans, suspended for ten minutes": Configuration(
        Model(varies=False, shared=True, at_once=True),
        (("launcher of P", P), ("launcher of Q", Q)),
        {"faults": ("crash", "suspended")},
        (P, Q),
    ),
    "a launcher beside gc": Configuration(
        Model(varies=False, shared=True),
        (("launcher of Q", Q), ("gc, an hour ahead", GC)),
        _GC_RULES,
        (P, Q),
        _SHARED,
    ),
    "2 plans": Configuration(
        Model(varies=False, shared=True),
        (("launcher of P", P), ("launcher of Q", Q)),
        {"faults": ("crash", "lost")},
        (P, Q),
    ),
}
"""By name; the invariants hold in all states of each."""

QUICK = {
    "2 launchers, 2 shards",
    "a run in parts, 2 launchers",
    "damaged files, 2 launchers",
    "hidden files, 2 launchers",
}
"""Those that take seconds."""
_LAUNCHERS, _PARTS = "2 launchers, 2 shards", "a run in parts, 2 launchers"
_DAMAGED, _ANSWERS = "damaged files, 2 launchers", "answers that cost money, 2 launchers"
WITHOUT: Mapping[str, str] = {
    "create-only": _LAUNCHERS,
    "receipt after part": _LAUNCHERS,
    "digest in the name": _LAUNCHERS,
    "size check": _DAMAGED,
    "check inside a receipt": _DAMAGED,
    "first receipt wins": _LAUNCHERS,
    "manifest last": _LAUNCHERS,
    "_SUCCESS first": _PARTS,
    "_SUCCESS last": _PARTS,
    "current plan before runs": "2 plans, suspended for ten minutes",
    "gc's 24 hours": "a launcher beside gc",
    "gc waits for launchers": "a launcher beside gc",
    "sweeps by age": "hidden files, 2 launchers",
    "the owner's lock": "2 plans",
    "the loser uses the published answer": _ANSWERS,
    "an open shard's file before the exit": _ANSWERS,
}
"""The configuration in which a protection is missed."""

LIMITS: Mapping[str, tuple[Configuration, str]] = {
    "suspended between the look at the current plan and the put": (
        Configuration(
            Model(varies=False, shared=True),
            (("launcher of P", P), ("launcher of Q", Q)),
            {"faults": ("suspended",)},
            (P, Q),
        ),
        "one-plan",
    ),
    "a put of a killed launcher that arrives after another plan's run": (
        Configuration(
            Model(varies=False, shared=True),
            (("launcher of P", P), ("launcher of Q", Q)),
            {"faults": ("crash", "delayed")},
            (P, Q),
        ),
        "one-plan",
    ),
}
"""What no plain put can rule out, and the invariant that breaks; `beamrank verify` finds it."""
