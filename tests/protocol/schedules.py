"""Simulated processes, of which one runs at a time: a list of decisions says who goes on at which
call of the world, and what fails there. The same decisions give the same run.
"""

import random
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MOST_STEPS = 20_000
_CHANGES = re.compile("link|rename|unlink|create|put|delete")
_STEP_SECONDS = 0.01


class Crash(BaseException):
    """A process crashed: it makes no call any more."""


class Decision(NamedTuple):
    """What happens at a call.

    Attributes:
        at: the number of the call, or of the put, from 1.
        what: `to` another process; `crash` of the process, `power` failure of its machine; `sleep`:
            the process is suspended, and time passes for the others; `kill` of another process.
            Of a put: `lose` its answer, `resend` it, or `delay` it.
        value: which process, how many seconds, or how much is kept.
    """

    at: int
    what: str
    value: int = 0

    @property
    def of_put(self) -> bool:
        return self.what in ("lose", "resend", "delay")


class When(NamedTuple):
    """A decision of a directed schedule, which is taken once those before it were: at the next
    call of a process that matches a pattern.

    Attributes:
        who: the name of the process.
        call: a regular expression.
        what: as in `Decision`; `to` goes to the process `value`.
        value: see `Decision`.
    """

    who: str
    call: str
    what: str
    value: Any = 0


@dataclass(eq=False)
class Process:
    """A simulated process on a machine."""

    name: str
    machine: str
    program: Callable[[], Any]
    number: int
    result: Any = None
    error: BaseException | None = None
    crashed: bool = False
    ended: bool = False
    renewals: list[Callable[[], None]] = field(default_factory=list)
    waits: Callable[[], bool] | None = None
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    @property
    def is_ready(self) -> bool:
        return not self.ended and not self.crashed and (self.waits is None or self.waits())


class Scheduler:
    """Runs processes by decisions.

    Attributes:
        now: seconds of the clock of the storage.
        trace: the calls, by process.
        power: drops what a machine did not sync; it gets the decision's value.
        released: is told of a process that ended.
        stuck: the processes that waited for what never happened.
    """

    def __init__(self, decisions: Iterable[Decision | When] = (), now: float = 0.0) -> None:
        self.now, self.steps, self.puts = now, 0, 0
        self._directed = [one for one in decisions if isinstance(one, When)]
        decisions = [one for one in decisions if isinstance(one, Decision)]
        self._at = {one.at: one for one in decisions if not one.of_put}
        self._of_put = {one.at: one for one in decisions if one.of_put}
        self.processes: list[Process] = []
        self.current: Process | None = None
        self.stuck: list[str] = []
        self.trace: list[tuple[int, str, str]] = []
        self.power: Callable[[str, int], None] = lambda machine, value: None
        self.released: Callable[[Process], None] = lambda process: None
        self._main = threading.Semaphore(0)
        self._quiet = False
        self._later: list[tuple[int, Callable[[], object]]] = []

    def add(self, name: str, machine: str, program: Callable[[], Any]) -> Process:
        """A process, which runs once `run` gives it a turn."""
        process = Process(name, machine, program, len(self.processes))
        self.processes.append(process)
        threading.Thread(target=self._live, args=(process,), daemon=True).start()
        return process

    def run(self, first: int = 0) -> None:
        """Runs all processes to their ends."""
        ready = [process for process in self.processes if process.is_ready]
        if ready:
            self._give(ready[first % len(ready)])
            self._main.acquire()
        for _, change in self._later:
            change()
        self._later = []
        for process in self.processes:
            if not process.ended:
                # Its stack unwinds.
                self.stuck += [] if process.crashed else [process.name]
                process.crashed, self.current = True, process
                process.turn.release()
                self._main.acquire()
        self.current = None

    def later(self, steps: int, change: Callable[[], object]) -> None:
        """Does something after so many calls, at the latest at the end."""
        self._later.append((self.steps + steps, change))

    def _live(self, process: Process) -> None:
        process.turn.acquire()
        try:
            if not process.crashed:
                process.result = process.program()
        except Crash:
            process.crashed = True
        except BaseException as error:
            process.error = error
        if self.current is process:
            end = "crashes" if process.crashed else f"ends: {process.error}"
            self.trace.append((self.steps, process.name, end))
        self.released(process)
        process.ended = True
        self._next()

    def _give(self, process: Process) -> None:
        self.current = process
        process.turn.release()

    def _next(self) -> None:
        ready = [process for process in self.processes if process.is_ready]
        if ready and self.current is not None:
            self._give(ready[0])
        else:
            self._main.release()

    def stop(self, what: str) -> None:
        """A call of the current process, before it happens."""
        me = self.current
        if me is None or self._quiet:
            return
        if me.crashed:
            raise Crash
        self.steps += 1
        self.now += _STEP_SECONDS
        self.trace.append((self.steps, me.name, what))
        if self._later:
            due = [change for at, change in self._later if at <= self.steps]
            self._later = [one for one in self._later if one[0] > self.steps]
            for change in due:
                change()
        if self.steps > MOST_STEPS:
            raise AssertionError(f"no end after {MOST_STEPS} calls")
        decision: Decision | When | None = self._at.get(self.steps)
        next_one = self._directed[0] if self._directed else None
        if next_one and next_one.who == me.name and re.search(next_one.call, what):
            decision = self._directed.pop(0)
        if decision is not None:
            self._decide(me, decision)

    def put(self) -> Decision | None:
        """What fails of a put of the current process."""
        if self.current is None:
            return None
        self.puts += 1
        decision: Any = self._of_put.get(self.puts)
        if decision is not None:
            self.trace.append((self.steps, self.current.name, f"!! {decision.what}"))
        return decision

    def _decide(self, me: Process, decision: Decision | When) -> None:
        what, value = decision.what, decision.value
        self.trace.append((self.steps, me.name, f"!! {what} {value}"))
        if what == "crash":
            self._crash(me)
        elif what == "power":
            dead = [one for one in self.processes if one.machine == me.machine and not one.ended]
            for process in dead:
                self._crash(process)
            self.power(me.machine, value)
        elif what == "kill":
            self._crash(next(one for one in self.processes if one.name == value))
        elif what == "sleep":
            self.pass_time(value, me)
            self._switch(me, 0)
        else:
            self._switch(me, value)
        if me.crashed:
            raise Crash

    def _crash(self, process: Process) -> None:
        process.crashed = True
        self.released(process)

    def pass_time(self, seconds: float, suspended: Process | None = None) -> None:
        """Time passes, in which all renew what they hold, but not a suspended process."""
        self.now += seconds
        before, self._quiet = self.current, True
        for process in self.processes:
            if process is not suspended and not process.ended and not process.crashed:
                self.current = process
                for renew in process.renewals:
                    renew()
        self.current, self._quiet = before, False

    def _switch(self, me: Process, value: Any) -> None:
        others = [one for one in self.processes if one is not me and one.is_ready]
        if isinstance(value, str):
            others, value = [one for one in others if one.name == value], 0
        if others:
            self._give(others[value % len(others)])
            me.turn.acquire()

    def wait(self, condition: Callable[[], bool], of: Process | None = None) -> None:
        """The current process waits for something `of` another one."""
        me = self.current
        assert me is not None
        while not condition():
            me.waits = condition
            if of is not None and of.is_ready:
                self._give(of)
            else:
                self._next()
            me.turn.acquire()
            me.waits = None
            if me.crashed:
                raise Crash


def draw(
    seed: int,
    trace: Sequence[tuple[int, str, str]],
    puts: int,
    processes: int,
    faults: Sequence[str],
    most: int = 2,
) -> list[Decision]:
    """Decisions for a run that is like a usual one, with at most two faults; every other one is at
    a call that changes names.
    """
    chance = random.Random(seed)
    steps, drawn = max(step for step, _, _ in trace), {}
    changes = [step for step, _, what in trace if step and _CHANGES.match(what)]

    def moment() -> int:
        return chance.choice(changes) if chance.random() < 0.5 else chance.randint(1, steps)

    for _ in range(chance.choice((0, 1, 2, 3, 4, 6, 8, 12, 20, 40))):
        at = moment()
        drawn[at, False] = Decision(at, "to", chance.randrange(max(1, processes)))
    for _ in range(chance.randint(0, most)):
        what = chance.choice(faults)
        decision = Decision(0, what, chance.choice(VALUES.get(what, (0,))))
        at = chance.randint(1, puts) if decision.of_put else moment()
        drawn[at, decision.of_put] = decision._replace(at=at)
    return sorted(drawn.values())


VALUES = {"sleep": (30, 700, 4000), "power": (0, 1, 2, 3), "delay": (1, 10, 100, 1000)}


def shrink(
    decisions: Sequence[Decision], fails: Callable[[Sequence[Decision]], bool]
) -> list[Decision]:
    """The fewest decisions, from the last to the first, with which a run still fails."""
    left = list(decisions)
    changed = True
    while changed:
        changed = False
        for one in reversed(left):
            rest = [other for other in left if other is not one]
            if fails(rest):
                left, changed = rest, True
    return left
