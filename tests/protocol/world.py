"""A store, processes that send it one request at a time, and the faults between them.

A process is a generator, written as the code is: it yields a request and is sent the answer. Its
state is where it waits, with its variables, so two histories that led to the same are one state.
"""

import inspect
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import CodeType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

from tests.protocol.search import State, Step

Files: TypeAlias = frozenset[tuple[str, Hashable, int]]
"""The name, content and age of each file."""
Program: TypeAlias = Generator["Request", Any, Any]
_Value = TypeVar("_Value", bound=Hashable)
_Written = TypeVar("_Written", bound=Callable[..., Program])
CODE: dict[CodeType, str] = {}
"""The function of the code that a function of the model stands for, as `module:name`."""
OLD, NEARLY_OLD, YOUNG = 2, 1, 0
MOST_FAULTS = 2
_WAITS, _DEAD = -1, -2
# The places of the files and of the first actor in a state.
FILES, ACTORS = 2, 5


def stands_for(name: str) -> Callable[[_Written], _Written]:
    """Names the function of the code that a function of the model stands for."""

    def note(function: _Written) -> _Written:
        CODE[function.__code__] = name
        return function

    return note


@dataclass(frozen=True)
class Request:
    """What a process asks the store: `look`, `create`, `replace` or `remove`; or a server: `call`,
    which is answered or not.

    Attributes:
        content: what is written; of a look the function that reads the files, given which processes
            live, and its arguments.
        needless: whether the process takes the file to be needed by nobody.
        plan: nothing is written where this is not the current plan.
    """

    kind: str
    name: str
    content: Hashable = None
    needless: bool = False
    plan: str = ""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.name, self.content))

    @cached_property
    def of_alive(self) -> bool:
        """Whether the answer depends on which processes live."""
        return self.kind == "look" and self.name.startswith("launcher-")

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def look(name: str, read: Callable[..., Hashable], *arguments: Hashable) -> Request:
    """Reads some files at once: what `read(files, alive, *arguments)` returns."""
    return Request("look", name, (read, arguments))


class Snapshot(NamedTuple):
    """The files of a state with their ages, and the processes that live."""

    files: Files
    alive: frozenset[int]

    @property
    def contents(self) -> dict[str, Any]:
        """The content of each file."""
        return {name: content for name, content, _ in self.files}

    @property
    def ages(self) -> dict[str, int]:
        """The age of each file."""
        return {name: age for name, _, age in self.files}


@dataclass(frozen=True)
class Point:
    """Where a process waits: its request, the functions that it is in, and the answers that led it
    there; at its end its `status`.
    """

    request: Request | None
    place: str
    within: str
    answers: tuple[Any, ...]
    status: Hashable = None


class Actor(NamedTuple):
    """A process of a world: its name, its plan, the program that begins it, and whether it is a
    launcher, which a day's passing waits for.
    """

    name: str
    plan: str
    begin: Callable[[int], Program]
    is_launcher: bool = True


class Points:
    """The points of one actor, numbered as they are reached."""

    def __init__(self, number: int, actor: Actor) -> None:
        self._number, self.actor = number, actor
        self.points: list[Point] = []
        self._keys: dict[Hashable, int] = {}
        self._after: dict[tuple[int, Hashable], int] = {}

    @cached_property
    def first(self) -> int:
        """The point at which it begins."""
        return self._point(())

    def after(self, point: int, answer: Hashable) -> int:
        """The point after an answer."""
        after = self._after.get((point, answer))
        if after is None:
            after = self._point((*self.points[point].answers, answer))
            self._after[point, answer] = after
        return after

    def _point(self, answers: tuple[Any, ...]) -> int:
        """The point that answers lead to."""
        program = self.actor.begin(self._number)
        request = None
        try:
            request = next(program)
            for answer in answers:
                request = program.send(answer)
        except StopIteration as end:
            key: Hashable = ("ended", end.value)
            point = Point(None, "", "", (), end.value)
        else:
            frames = list(_frames(program))
            places = [CODE[code] for code, *_ in frames if code in CODE]
            key = (request, tuple(frames))
            point = Point(request, places[-1], " ".join(places), answers)
        known = self._keys.setdefault(key, len(self.points))
        if known == len(self.points):
            self.points.append(point)
        return known


def _frames(program: Any) -> Iterator[tuple[CodeType, int, Hashable]]:
    while inspect.isgenerator(program):
        frame = program.gi_frame
        yield frame.f_code, frame.f_lasti, tuple(sorted(frame.f_locals.items()))
        program = program.gi_yieldfrom


class Rules(NamedTuple):
    """What a world allows and promises.

    Attributes:
        faults: of `crash`, `lost`, `delayed` and `suspended`, at most two in a trace.
        ticks: how often a day passes while no launcher is at work and no put is on its way.
        creates: whether the store refuses a second create.
        delays_all: whether puts that replace may be delayed too.
        keeps: whether what was created is never removed: then a delayed create of it does nothing.
        alike: whether the actors differ by their numbers alone: then they begin in this order.
    """

    faults: tuple[str, ...] = ("crash", "lost", "delayed")
    ticks: int = 0
    creates: bool = True
    delays_all: bool = True
    keeps: bool = False
    alike: bool = False


class Numbers(Generic[_Value]):
    """Values by the number that each gets."""

    def __init__(self) -> None:
        self.values: list[_Value] = []
        self._numbers: dict[_Value, int] = {}

    def of(self, value: _Value) -> int:
        """The number of a value."""
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class World:
    """A state is: how many faults there were, and how many days passed; the number of its files, of
    the puts that are on their way, and of the actors that others take to have ended; then the point
    of each actor.
    """

    def __init__(self, actors: Sequence[Actor], rules: Rules) -> None:
        self.actors, self.rules = actors, rules
        self.points = [Points(number, actor) for number, actor in enumerate(actors)]
        self.files = Numbers[Files]()
        self._moving = Numbers[tuple[Request, ...]]()
        self._suspended = Numbers[frozenset[int]]()
        self._performed: dict[Any, tuple[int, Hashable]] = {}
        self._alive: dict[State, frozenset[int]] = {}
        self._older: dict[int, int] = {}

    def initial(self, files: Mapping[str, Hashable], age: int = OLD) -> State:
        """The state in which no actor has begun."""
        content = frozenset((name, value, age) for name, value in files.items())
        # The number of nothing is 0.
        numbers = self.files.of(content), self._moving.of(()), self._suspended.of(frozenset())
        return (0, 0, *numbers, *(_WAITS for _ in self.actors))

    def point(self, state: State, number: int) -> Point | None:
        """Where an actor waits; None before it begins, and once it crashed."""
        at = state[ACTORS + number]
        return None if at < 0 else self.points[number].points[at]

    def alive(self, state: State) -> frozenset[int]:
        """The actors that are at work."""
        key = state[ACTORS:]
        alive = self._alive.get(key)
        if alive is None:
            at_work = (
                number
                for number, at in enumerate(key)
                if at >= 0 and self.points[number].points[at].request is not None
            )
            alive = self._alive[key] = frozenset(at_work)
        return alive

    def steps(self, state: State) -> Iterator[Step]:
        """All that can happen in a state."""
        faults, ticks, files, moving, suspended, *_ = state
        alive = self.alive(state)
        for number, points in enumerate(self.points):
            at = state[ACTORS + number]
            if number in alive:
                yield from self._steps_of(state, number, points, at, alive)
            elif at == _WAITS:
                yield from self._steps_of(state, number, points, points.first, alive)
                if self.rules.alike:
                    break
        if moving:
            requests = self._moving.values[moving]
            for place, request in enumerate(requests):
                after, _ = self.perform(files, alive, request)
                rest = self._still_moving(after, (*requests[:place], *requests[place + 1 :]))
                label = ("the delayed", request, "arrives")
                yield label, (faults, ticks, after, rest, suspended, *state[ACTORS:])
        if ticks == self.rules.ticks or moving:
            return
        if not any(self.actors[one].is_launcher for one in alive):
            older = self._aged(files)
            if older != files:
                yield ("a day passes",), (faults, ticks + 1, older, *state[3:])

    def _steps_of(
        self, state: State, number: int, points: "Points", at: int, alive: frozenset[int]
    ) -> Iterator[Step]:
        faults, ticks, files, moving, suspended, *_ = state
        point, name, place = points.points[at], points.actor.name, ACTORS + number
        request = point.request
        assert request is not None
        if suspended:
            alive -= self._suspended.values[suspended]
        after, answer = self.perform(files, alive | {number}, request)
        before, behind = state[ACTORS:place], state[place + 1 :]
        requests = self._moving.values[moving]
        rest = self._still_moving(after, requests) if moving and after != files else moving
        moved = (*before, points.after(at, answer), *behind)
        yield (name, point), (faults, ticks, after, rest, suspended, *moved)
        if request.kind == "call":
            unanswered = (*before, points.after(at, False), *behind)
            yield (name, point, "gets no answer"), (faults, ticks, *state[2:ACTORS], *unanswered)
        if faults >= MOST_FAULTS:
            return
        allowed = self.rules.faults
        if "crash" in allowed and state[place] != _WAITS:
            dead = (*before, _DEAD, *behind)
            yield (name, "crashes"), (faults + 1, ticks, files, moving, suspended, *dead)
        if "suspended" in allowed and number not in self._suspended.values[suspended]:
            ended = self._suspended.of(self._suspended.values[suspended] | {number})
            others = (files, moving, ended, *state[ACTORS:])
            yield (name, "is suspended for ten minutes"), (faults + 1, ticks, *others)
        if after == files:
            return
        still = (*before, at, *behind)
        if "lost" in allowed:
            lost = (faults + 1, ticks, after, rest, suspended, *still)
            yield (name, point, "its answer is lost"), lost
        if "delayed" in allowed and (request.kind == "create" or self.rules.delays_all):
            later = self._moving.of(tuple(sorted((*requests, request), key=repr)))
            delayed = (faults + 1, ticks, files, later, suspended, *still)
            yield (name, point, "it is delayed"), delayed

    def _still_moving(self, files: int, requests: tuple[Request, ...]) -> int:
        """The puts that are on their way, without those that would do nothing."""
        if self.rules.keeps:
            requests = tuple(
                one
                for one in requests
                if one.kind != "create" or self.perform(files, frozenset(), one)[0] != files
            )
        return self._moving.of(requests)

    def perform(self, files: int, alive: frozenset[int], request: Request) -> tuple[int, Hashable]:
        """The number of the files after a request, and its answer."""
        # Only looks at entries of launchers depend on who lives.
        key = (files, request, alive) if request.of_alive else (files, request)
        known = self._performed.get(key)
        if known is None:
            after, answer = self._perform(Snapshot(self.files.values[files], alive), request)
            known = self._performed[key] = self.files.of(after), answer
        return known

    def _perform(self, now: Snapshot, request: Request) -> tuple[Files, Hashable]:
        kind, name, content = request.kind, request.name, request.content
        if kind == "look":
            read, arguments = cast(Any, content)
            return now.files, read(now, *arguments)
        others = frozenset(file for file in now.files if file[0] != name)
        exists = len(others) < len(now.files)
        if kind == "call":
            return now.files, True
        if request.plan and now.contents["current-plan.json"][0] != request.plan:
            return now.files, False
        if kind == "remove":
            return others, exists
        if kind == "create" and exists and self.rules.creates:
            return now.files, False
        return others | {(name, content, YOUNG)}, True

    def _aged(self, files: int) -> int:
        """The files a day later."""
        if files not in self._older:
            older = (
                (name, value, min(age + 1, OLD)) for name, value, age in self.files.values[files]
            )
            self._older[files] = self.files.of(frozenset(older))
        return self._older[files]


def words(label: Hashable) -> str:
    """A label of a step for readers."""
    assert isinstance(label, tuple)
    said = []
    for part in label:
        if isinstance(part, Point):
            said += [f"{part.place}:", str(part.request)]
        elif part:
            said.append(str(part))
    return " ".join(said)
