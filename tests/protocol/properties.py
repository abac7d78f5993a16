"""The invariants as conditions on the states of a model, and on steps between them."""

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from tests.protocol.model import (
    CURRENT,
    DONE,
    OPEN,
    RUN,
    SHORT,
    SUCCESS,
    Checks,
    Model,
    Receipt,
    counts,
    run_part,
)
from tests.protocol.search import Search, search
from tests.protocol.world import ACTORS, FILES, Actor, Points, Rules, Snapshot, World


class Properties:
    """What must hold of a model's states; `plans` are those of which a launcher can be started."""

    def __init__(self, model: Model, plans: Sequence[str]) -> None:
        self._model = model
        self._of_files: dict[Any, str | None] = {}
        self._of_steps: dict[Any, str | None] = {}
        # Without a protection, other invariants break later than this one.
        self._plans = () if model.without else plans
        self._last = {
            plan: Points(-1, Actor("last", plan, lambda me, plan=plan: model.launcher(me, plan)))  # type: ignore[misc]
            for plan in plans
        }
        self._ends: dict[Any, bool] = {}

    def broken_state(self, world: World, state: Any) -> str | None:
        """The name of an invariant that a state breaks."""
        files = state[FILES]
        if files not in self._of_files:
            self._of_files[files] = self._files_break(world, files)
        return self._of_files[files] or self._actors_break(world, state)

    def broken_step(self, world: World, before: Any, after: Any) -> str | None:
        """The name of an invariant that a step breaks."""
        if before[FILES] == after[FILES]:
            return None
        removes = self._removes(world, before, after)
        running = self._at_work(world, before) if removes else frozenset()
        key = before[FILES], after[FILES], running, removes
        if key not in self._of_steps:
            self._of_steps[key] = self._step_breaks(world, *key)
        return self._of_steps[key]

    # States.

    def _files_break(self, world: World, files: Any) -> str | None:
        contents = Snapshot(world.files.values[files], frozenset()).contents
        model = self._model
        receipts = [one for one in contents.values() if isinstance(one, Receipt)]
        sealed = [one for name, one in contents.items() if "/manifest-" in name]
        for one in receipts:
            if not one.changed and contents.get(one.part) not in (one.content, SHORT):
                return "part-whole"
            is_done = counts(one, one.digest, contents, model.checks)
            if is_done and contents[one.part] != one.content:
                return "done-is-done"
        for manifest in sealed:
            if any(contents.get(one.part) != one.content for one in manifest):
                return "sealed-stays"
            if len(manifest) < model.shards:
                return "done-is-done"
        answers = {one.content[-1] for one in receipts} if model.asks else set()
        if len(answers) > 1:
            return "one-answer"
        if SUCCESS in contents:
            parts = [contents.get(run_part(shard)) for shard in range(model.shards)]
            if None in parts:
                return "done-is-done"
            if len({part[0] for part in parts if part}) > 1:
                return "one-plan"
        return None if all(self._run_ends(world, plan, files) for plan in self._plans) else "ends"

    def _actors_break(self, world: World, state: Any) -> str | None:
        for number, actor in enumerate(world.actors):
            point = world.point(state, number)
            if point is None or point.request is not None or not isinstance(point.status, str):
                continue
            contents = Snapshot(world.files.values[state[FILES]], frozenset()).contents
            is_current = contents.get(CURRENT) == (actor.plan, number)
            run_plan = contents.get(RUN, [actor.plan])[0]
            if point.status == DONE and is_current and run_plan != actor.plan:
                return "one-plan"
            state_, _, what = point.status.partition(": ")
            if state_ == OPEN:
                stage, _, shard = what.partition(" ")
                told = f"{stage}/receipts/open-{shard}", f"{stage}/receipts/{shard}"
                if contents.keys().isdisjoint(told):
                    return "open-told"
        return None

    def _run_ends(self, world: World, plan: str, files: Any) -> bool:
        """Whether a launcher that runs alone from here ends with the right bytes."""
        points = self._last[plan]
        path: list[Any] = []
        at = points.first
        while (files, at, plan) not in self._ends:
            path.append((files, at, plan))
            request = points.points[at].request
            if request is None:
                contents = Snapshot(world.files.values[files], frozenset()).contents
                is_right = points.points[at].status == DONE and self._is_right(plan, contents)
                self._ends[path[-1]] = is_right
                break
            files, answer = world.perform(files, frozenset({-1}), request)
            at = points.after(at, answer)
        result = self._ends[files, at, plan]
        self._ends |= dict.fromkeys(path, result)
        return result

    def _is_right(self, plan: str, contents: dict[str, Any]) -> bool:
        shards = range(self._model.shards)
        if self._model.in_parts:
            parts = [contents.get(run_part(shard)) for shard in shards]
            if SUCCESS not in contents or None in parts:
                return False
            rows = [part[1] for part in parts if part]
        else:
            rows = list(contents[RUN][1:])
        return [(row[1], row[3]) for row in rows] == [(plan, shard) for shard in shards]

    # Steps.

    def _at_work(self, world: World, state: Any) -> frozenset[tuple[str, int]]:
        """The plans and numbers of the processes that may work in the output."""
        at_work = set[tuple[str, int]]()
        for number in world.alive(state):
            point = world.point(state, number)
            if point is not None and "owner:launched" not in point.within:
                at_work.add((world.actors[number].plan, number))
        return frozenset(at_work)

    def _removes(self, world: World, before: Any, after: Any) -> bool:
        """Whether a step removes what its actor takes to be needed by nobody."""
        for number in range(len(world.actors)):
            if before[ACTORS + number] != after[ACTORS + number]:
                point = world.point(before, number)
                return point is not None and point.request is not None and point.request.needless
        return False

    def _step_breaks(
        self,
        world: World,
        before: Any,
        after: Any,
        running: frozenset[tuple[str, int]],
        removes: bool,
    ) -> str | None:
        was, now = (
            Snapshot(world.files.values[files], frozenset()).contents for files in (before, after)
        )
        for name, content in was.items():
            if isinstance(content, Receipt) and self._was_counted(name, content, was):
                later = now.get(name)
                if isinstance(later, Receipt) and later.content != content.content:
                    return "one-counts"
            if "/manifest-" in name and name in now and now[name] != content:
                return "sealed-stays"
        if removes:
            gone = was.keys() - now.keys()
            current = was.get(CURRENT)
            plans = {plan for plan, _ in running} | ({current[0]} if current else set())
            writers = {number for _, number in running}
            if any(self._is_needed(name, was, plans, writers) for name in gone):
                return "needed-stays"
        return None

    def _was_counted(self, name: str, receipt: Receipt, files: dict[str, Any]) -> bool:
        return counts(receipt, receipt.digest, files, Checks(size=True, inside=True))

    def _is_needed(
        self, name: str, files: dict[str, Any], plans: set[str], writers: set[int]
    ) -> bool:
        """Whether a file is a receipt of a plan that runs or is current, a part that is named, the
        topics of a plan, or written now.
        """
        if name.endswith(".tmp"):
            return files[name] in writers
        if name.startswith("topics-"):
            return name.replace("topics-", "plan-") in files
        if "/receipts/" in name:
            return name.rpartition("-")[2] in plans
        named = {one.part for one in files.values() if isinstance(one, Receipt)}
        sealed = [one for key, one in files.items() if "/manifest-" in key]
        return name in named | {one.part for manifest in sealed for one in manifest}


def explore(
    model: Model,
    actors: Sequence[Actor],
    plans: Sequence[str],
    files: Sequence[Mapping[str, Hashable]] = ({},),
    most_states: int = 5_000_000,
    **rules: Any,
) -> Search:
    """Searches all that some actors of a model may do, from each of the files."""
    world = World(actors, Rules(creates=model.has("create-only"), **rules))
    properties = Properties(model, plans)
    return search(
        map(world.initial, files),
        world.steps,
        partial(properties.broken_state, world),
        partial(properties.broken_step, world),
        most_states,
    )
