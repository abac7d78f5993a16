"""Simulations: processes on machines that share an output, by decisions; then one launcher that
runs alone, and what must be true at the end.
"""

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.status import read_status
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError
from beamrank.formats.run_writer import run_lines
from tests.protocol.local_world import Change, LocalWorld
from tests.protocol.observer import Broken, Observer
from tests.protocol.programs import DAY_SECONDS, SERVER, Programs, make_plan, simulated
from tests.protocol.schedules import Decision, Scheduler, When, draw, shrink
from tests.protocol.store_world import PROTOCOL, StoreWorld

OUTPUT = "/out"
STORE = f"{PROTOCOL}://out"
_START = 1_000_000.0
_FAULTS = ("crash", "crash", "sleep")
_OF_STORES = (*_FAULTS, "lose", "lose", "resend", "delay")


Damage: TypeAlias = Callable[[bytes], bytes | None]


class Member(NamedTuple):
    """A process of a scenario.

    Attributes:
        does: `launch` a plan, do a `share`, or `gc`.
        plan: the label of its plan.
        machine: where it runs.
        share: its number, and of how many.
    """

    does: str
    plan: str = "A"
    machine: str = "m1"
    share: tuple[int, int] = (0, 1)


@dataclass(frozen=True)
class Scenario:
    """What runs.

    Attributes:
        members: the processes.
        shards: of each plan.
        in_parts: whether runs are folders.
        at_store: whether the output is at a store.
        before: what was done two days ago: launches of plans, each ended by a crash at a call, or
            finished (0).
        differ: whether attempts give different bytes.
        by_worker: whether shards are done by processes of their own.
        down: how many calls get no answer.
        shared: whether all plans have the same candidates.
        offsets: of the clocks of machines, in seconds.
        faults: what may fail.
        damage: of files whose paths match, before the start: their new content, None to remove
            them.
    """

    members: tuple[Member, ...]
    shards: int = 2
    in_parts: bool = False
    at_store: bool = False
    before: tuple[tuple[str, int], ...] = ()
    differ: bool = False
    by_worker: bool = False
    down: int = 0
    shared: bool = False
    offsets: tuple[tuple[str, float], ...] = ()
    faults: tuple[str, ...] = _FAULTS
    damage: tuple[tuple[str, Damage], ...] = ()

    @property
    def output(self) -> str:
        return STORE if self.at_store else OUTPUT

    def plan(self, label: str) -> tuple[Plan, RunConfig]:
        return _plan(self.output, label, self.shards, self.in_parts, self.shared)


@cache
def _plan(
    output: str, label: str, shards: int, in_parts: bool, shared: bool
) -> tuple[Plan, RunConfig]:
    return make_plan(output, label, shards, in_parts, 5.0 if shared else None)


@dataclass
class Outcome:
    """What a simulation showed."""

    problems: list[Broken]
    steps: int
    puts: int
    trace: list[tuple[int, str, str]] = field(repr=False, default_factory=list)

    @property
    def broken(self) -> list[str]:
        """The names of the invariants that were broken."""
        return [problem.invariant for problem in self.problems]

    def __str__(self) -> str:
        lines = [f"{step:5} {who:20} {what}" for step, who, what in self.trace]
        return "\n".join([*lines, *map(str, self.problems)])


def simulate(scenario: Scenario, decisions: Sequence[Decision | When] = ()) -> Outcome:
    """Runs a scenario by decisions."""
    earlier = _earlier(scenario)
    world = _world(scenario, Scheduler(decisions, now=_START))
    scheduler = world.scheduler
    with simulated(world):
        _restore(world, earlier)
        for path, change in scenario.damage:
            damage(world, path, change)
        observer = _observe(world, scenario)
        SERVER.begin(scheduler, scenario.differ, scenario.down)
        SERVER.calls = 100
        mine = Programs(scheduler, scenario.by_worker)
        for number, member in enumerate(scenario.members):
            name = f"{member.does}{number}"
            scheduler.add(name, member.machine, partial(_live, scenario, mine, member, observer))
        lost_power: Callable[[str, int], None] = world.power

        def power(machine: str, value: int) -> None:
            lost_power(machine, value)
            observer.recheck()

        scheduler.power = power
        scheduler.run()
        calm = all(one.what == "to" for one in decisions)
        _check_ends(scenario, scheduler, observer, calm)
        _check_status(scenario, observer)
        _alone(scenario, world, observer)
    return Outcome(observer.problems, scheduler.steps, scheduler.puts, scheduler.trace)


def _world(scenario: Scenario, scheduler: Scheduler) -> Any:
    world = (StoreWorld if scenario.at_store else LocalWorld)(scheduler)
    world.offsets = dict(scenario.offsets)
    return world


def _observe(world: Any, scenario: Scenario) -> Observer:
    observer = Observer(world, OUTPUT)
    observer.shards = scenario.shards
    for path, content in _contents(world).items():
        world.watch(Change(path, None, content))
    # Damage is no fault of the code.
    observer.problems.clear()
    return observer


def damage(world: Any, pattern: str, change: Damage) -> None:
    """Changes the local files whose paths match."""
    for folder, inside in world.folders.items():
        for name, node in list(inside.names.items()):
            if re.search(pattern, f"{folder}/{name}"):
                content = change(node.content)
                if content is None:
                    del inside.names[name]
                else:
                    node.content = node.synced = content


def _contents(world: Any) -> dict[str, bytes]:
    objects = getattr(world, "objects", None)
    if objects is not None:
        contents = {path: stored.content for path, stored in objects.items()}
    else:
        contents = {
            f"{folder}/{name}": node.content
            for folder, inside in world.folders.items()
            for name, node in inside.names.items()
        }
    # Parts before receipts before manifests.
    return dict(
        sorted(contents.items(), key=lambda one: ("/part-" not in one[0], "receipts" not in one[0]))
    )


@cache
def _earlier(scenario: Scenario) -> Any:
    """The files that earlier runs left."""
    world = _world(scenario, Scheduler(now=_START - 2 * DAY_SECONDS))
    if not scenario.before:
        return _snapshot(world)
    with simulated(world):
        SERVER.begin(world.scheduler, scenario.differ, 0)
        for label, crash in scenario.before:
            scheduler = Scheduler(
                [Decision(crash, "crash")] if crash else [], now=world.scheduler.now + 5000
            )
            world.scheduler, scheduler.released = scheduler, world.release
            plan, config = scenario.plan(label)
            mine = Programs(scheduler)
            process = scheduler.add("earlier", "m0", partial(mine.launch, plan, config))
            scheduler.run()
            if process.error is not None:
                raise process.error
    for folder in world.folders.values():
        folder.durable, folder.journal = dict(folder.names), []
        for node in folder.names.values():
            node.synced = node.content
    return _snapshot(world)


def _snapshot(world: Any) -> Any:
    return deepcopy((world.folders, getattr(world, "objects", None)))


def _restore(world: Any, snapshot: Any) -> None:
    world.folders, objects = deepcopy(snapshot)
    if objects is not None:
        world.objects = objects


def _live(scenario: Scenario, mine: Programs, member: Member, observer: Observer) -> None:
    plan, config = scenario.plan(member.plan)
    if member.does == "gc":
        mine.gc(plan.output)
        return
    if member.does == "share":
        mine.share(plan, config, *member.share)
    else:
        mine.launch(plan, config)
    # No call of the world comes between the last one of the launcher and this.
    current = observer.pointed()
    if current == plan.name and observer.has_runs(scenario.in_parts):
        observer.written = member.plan


def _check_ends(scenario: Scenario, scheduler: Scheduler, observer: Observer, calm: bool) -> None:
    cooperate = {(one.does, one.plan) for one in scenario.members} <= {("launch", "A")}
    for name in scheduler.stuck:
        observer.broken("ends", f"{name} waits forever")
    for process in scheduler.processes:
        error = process.error
        if error is not None and not isinstance(error, BeamrankError | OSError):
            observer.broken("ends", f"{process.name} ended with {error!r}")
        elif error is not None and calm and cooperate and not scenario.down + scenario.in_parts:
            observer.broken("ends", f"{process.name} ended with {error}, though nothing failed")
    for asker, shard in SERVER.left_open:
        told = observer.paths(rf"asking/receipts/(open-)?{shard:05d}-.*")
        if asker is not None and not asker.crashed and not told:
            observer.broken("open-told", f"{asker.name} left shard {shard} open")
    collected = any(member.does == "gc" for member in scenario.members)
    for query_id, grades in SERVER.used.items():
        if len(grades) > 1 and not collected:
            observer.broken("one-answer", f"parts have the grades {sorted(grades)} of {query_id}")


def _check_status(scenario: Scenario, observer: Observer) -> None:
    """What `status` calls done is done."""
    if observer.pointed() is None:
        return
    try:
        plan = read_plan(scenario.output)
    except BeamrankError as error:
        observer.broken("ends", f"the current plan cannot be read: {error}")
        return
    for status in read_status(plan):
        sealed = plan.gather(status.stage) if status.finished else None
        if status.finished and sealed is None:
            observer.broken("done-is-done", f"{status.stage} is called finished")
        for receipt in sealed.receipts if sealed else ():
            if not observer.is_whole(status.stage, receipt):
                observer.broken("done-is-done", f"{receipt.part} of {status.stage} is not whole")


def _alone(scenario: Scenario, world: Any, observer: Observer) -> None:
    """One launcher of the plan that is current, or else of the first one, ends in the right
    bytes.
    """
    labels = {scenario.plan(one.plan)[0].name: one.plan for one in scenario.members}
    label = labels.get(observer.pointed() or "", "A")
    plan, config = scenario.plan(label)
    before = world.scheduler
    scheduler = Scheduler(now=before.now + 4000)
    world.scheduler, scheduler.released, scheduler.power = scheduler, world.release, world.power
    observer.written = None
    SERVER.down = 0
    process = scheduler.add("alone", "m9", partial(Programs(scheduler).launch, plan, config))
    scheduler.run()
    before.trace += [(0, "", "alone:"), *scheduler.trace]
    world.scheduler = before
    if process.error is not None:
        observer.broken("ends", f"alone: {process.error!r}")
        return
    expected = expected_run(plan, config)
    actual = observer.run(scenario.in_parts)
    if actual != expected:
        observer.broken("ends", f"the run is {actual!r}, and must be {expected!r}")


def expected_run(plan: Plan, config: RunConfig) -> bytes:
    """The lines of the run of the last stage, by its sealed parts."""
    sealed = plan.manifests(lambda folder, _, digests: folder.manifest(digests))
    rows = [
        (row["query_id"], row["doc_id"], row["score"])
        for receipt in sealed["asking"].receipts
        for row in plan.folder("asking").read_part(receipt).to_pylist()
    ]
    if config.run_files == "one":
        rows.sort()
    lines = [
        line
        for query_id, doc_id, score in rows
        for line in run_lines(query_id, [(doc_id, score)], plan.run_tag, "trec")
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def drawn(scenario: Scenario, seed: int) -> list[Decision]:
    """The decisions of a seed, which do not depend on what they cause."""
    usual = _usual(scenario)
    return draw(seed, usual.trace, usual.puts, len(scenario.members), scenario.faults)


@cache
def _usual(scenario: Scenario) -> Outcome:
    return simulate(scenario)


def explain(scenario: Scenario, decisions: Sequence[Decision], invariant: str) -> str:
    """The shortest trace in which an invariant is broken."""
    fewest = shrink(decisions, lambda some: invariant in simulate(scenario, some).broken)
    return f"{fewest}\n{simulate(scenario, fewest)}"
