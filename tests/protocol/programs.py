"""What the simulated processes run: launchers, shares, workers and gc, over stages that compute
next to nothing. No Beam and no model; the code of the commit protocol is the product's.
"""

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.commit import check, owner, receipts, schemas
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.commit.shards import ShardTask, cut_shards
from beamrank.config.cascade import PLUGINS
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, LeftOpenError, WorkerLostError
from beamrank.machine import Machine
from beamrank.notes import Silent
from beamrank.ranking.rankings import Rankings, rank_candidates, rank_docs
from beamrank.records import Topic
from beamrank.storage import files as storage
from beamrank.system import system
from models.stages import attempt, calls
from models.stages.base import Key, Stage
from models.stages.compute import Computed, ShardInputs
from pipelines.launcher import Launcher, resumable
from pipelines.runs import run_files
from pipelines.runs.run_metadata import ENDING
from pipelines.shares import Share, ShareLauncher, check_share
from tests.protocol.local_world import LocalWorld
from tests.protocol.schedules import Process, Scheduler

KINDS = {"simulated-first": f"{__name__}:First", "simulated-asking": f"{__name__}:Asking"}
DAY_SECONDS = 24 * 3600.0


@dataclass
class Server:
    """Gives answers, each another one, once it is up.

    Attributes:
        differ: whether attempts give different bytes, as on machines of different kinds.
        down: how many of the next calls get no answer.
        calls: how many were made.
        used: the grades in parts, by query.
        left_open: the shards that got no answer, with the process.
    """

    differ: bool = False
    down: int = 0
    calls: int = 0
    used: dict[str, set[float]] = field(default_factory=dict)
    left_open: list[tuple[Process | None, int]] = field(default_factory=list)

    scheduler: Scheduler = field(default_factory=Scheduler)

    def begin(self, scheduler: Scheduler, differ: bool, down: int) -> None:
        """A new simulation."""
        self.scheduler, self.differ, self.down, self.calls = scheduler, differ, down, 0
        self.used, self.left_open = {}, []

    def number(self) -> float:
        """The number of an attempt, or zero."""
        self.calls += 1
        return float(self.calls) if self.differ else 0.0

    def answer(self) -> dict[str, float]:
        if self.down:
            self.down -= 1
            raise LeftOpenError("the server does not answer")
        return {"grade": 1.0 + self.number()}


SERVER = Server()


@dataclass(frozen=True, kw_only=True)
class First(Stage):
    """Candidates: two docs for each topic."""

    type_name = "simulated-first"
    schema = schemas.CANDIDATES
    reads_input = True
    mark: Annotated[float, Key("mark")] = 0.0

    def compute(self, inputs: ShardInputs) -> Computed:
        rows = [
            (topic.query_id, f"d{rank}", rank, 10.0 - rank)
            for topic in inputs.topics
            for rank in (1, 2)
        ]
        query_ids, doc_ids, ranks, scores = zip(*rows, strict=True)
        number = SERVER.number()
        scores = tuple(score + self.mark + number for score in scores)
        return Computed(pa.table([query_ids, doc_ids, ranks, scores], schema=self.schema), {})

    def rank(self, before: Rankings | None, part: pa.Table, k: int | None = None) -> Rankings:
        return rank_candidates(part)


@dataclass(frozen=True, kw_only=True)
class Asking(Stage):
    """Asks for the grade of the first doc of each topic."""

    type_name = "simulated-asking"
    schema = schemas.MONO
    asks = True
    mark: Annotated[float, Key("mark", selects=True)] = 0.0

    def compute(self, inputs: ShardInputs) -> Computed:
        table = inputs.read("retrieve")
        query_ids = sorted(set(table["query_id"].to_pylist()))
        try:
            answers = [inputs.ask(query_id.encode(), SERVER.answer) for query_id in query_ids]
        except LeftOpenError:
            SERVER.left_open.append((SERVER.scheduler.current, inputs.shard))
            raise
        for query_id, answer in zip(query_ids, answers, strict=True):
            SERVER.used.setdefault(query_id, set()).add(answer["grade"])
        grades = [answer["grade"] + self.mark for answer in answers]
        count = len(query_ids)
        columns = [query_ids, ["d2"] * count, [0] * count, [2] * count, grades]
        return Computed(pa.table(columns, schema=self.schema), {})

    def rank(self, before: Rankings | None, part: pa.Table, k: int | None = None) -> Rankings:
        assert before is not None
        return rank_docs(before, part, self.k, "max", k)


class Quiet(Silent):
    """A console that shows nothing."""

    def bar(self, _: str, /) -> AbstractContextManager[Any]:
        return nullcontext(QUIET_BAR)


class _Bar(Silent):
    meter: Any = type("Meter", (), {"skip_start": lambda *_: None})()


QUIET_BAR = _Bar()


def make_plan(
    output: str, label: str, shards: int = 2, in_parts: bool = False, first: float | None = None
) -> tuple[Plan, RunConfig]:
    """A plan of two stages whose runs have the tag `label`; `first` marks the candidates, which two
    plans can share.
    """
    mark = float(ord(label))
    retrieve = First(own_name="retrieve", mark=mark if first is None else first)
    asking = Asking(own_name="asking", k=2, reads=("retrieve",), mark=mark)
    values = {"run_tag": label, "run_files": "parts" if in_parts else "one"}
    stages = tuple(stage.record() for stage in (retrieve, asking))
    plan = Plan(label, output, _shards(shards), stages, values, written=label)
    config = RunConfig.model_construct(
        run_tag=label,
        output=output,
        corpus=_Path("corpus"),
        topics=_Path("topics"),
        qrels=None,
        measures=(),
        reuse=(),
        run_formats=("trec",),
        run_files=values["run_files"],
        stall_minutes=30.0,
        cascade=(),
    )
    return plan, config


@dataclass(frozen=True)
class _Path:
    path: str


_cut: dict[int, Any] = {}


def _shards(count: int) -> Any:
    if count not in _cut:
        _cut[count] = cut_shards([Topic(f"q{number}", "text") for number in range(count)], count)
        assert len(_cut[count]) == count
    return _cut[count]


@dataclass
class Programs:
    """The programs of one simulation.

    Attributes:
        by_worker: whether the shards of a launcher are done by another process, which goes on where
            the launcher crashes.
    """

    scheduler: Scheduler
    by_worker: bool = False
    workers: Iterator[int] = field(default_factory=itertools.count)

    def launch(self, plan: Plan, config: RunConfig) -> None:
        """`beamrank run`."""
        launcher = _Launcher(plan, config, Quiet())  # type: ignore[arg-type]
        launcher.programs = self
        self._finish(launcher, plan, config)

    def share(self, plan: Plan, config: RunConfig, number: int, processes: int) -> None:
        """`beamrank run --only NUMBER/PROCESSES`."""
        check_share(plan)
        launcher = _ShareLauncher(plan, config, Quiet(), share=Share(number, processes))  # type: ignore[arg-type]
        launcher.programs = self
        self._finish(launcher, plan, config)

    def _finish(self, launcher: Launcher, plan: Plan, config: RunConfig) -> None:
        with resumable(), owner.made_current(plan):
            launcher.run(plan.stages)
            if launcher.finish():
                run_files.write_runs(plan, config, Quiet(), None)

    def gc(self, output: str) -> None:
        """`beamrank gc --yes`."""
        garbage = check.find_garbage(output, system.time(), DAY_SECONDS)
        check.collect_garbage(output, garbage, DAY_SECONDS)

    def do(self, work: Any, tasks: Sequence[ShardTask]) -> None:
        """The shards of a job."""
        here = partial(_exhaust, partial(attempt.done_here, work, tasks))
        me = self.scheduler.current
        if not self.by_worker or me is None:
            here()
            return
        name = f"worker{next(self.workers)} of {me.name}"
        worker = self.scheduler.add(name, me.machine, here)
        self.scheduler.wait(lambda: worker.ended or worker.crashed, worker)
        if worker.crashed:
            raise WorkerLostError("a worker process died")
        if worker.error is not None:
            raise worker.error


def _exhaust(shards: Callable[[], Iterator[int]]) -> None:
    for _ in shards():
        pass


class _Here:
    """Does jobs without Beam."""

    programs: Programs

    def _run_job(
        self,
        _stage: Any,
        _folder: Any,
        _digests: Any,
        progress: Callable[[], object],
        tasks: Sequence[ShardTask],
        work: Any,
    ) -> None:
        self.programs.do(work, tasks)


class _Launcher(_Here, Launcher):
    pass


class _ShareLauncher(_Here, ShareLauncher):
    pass


class _InTurn:
    """In place of a pool of threads."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> "_InTurn":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    map = staticmethod(map)


_MACHINE = Machine("processor", "", 1, 1.0, (), "system", "3", {})
_tables: dict[bytes, Any] = {}


def _read_part(folder: StageFolder, receipt: Receipt, columns: Any = None) -> Any:
    """`StageFolder.read_part`, which parses each content once."""
    content = folder.part_content(receipt)
    if content not in _tables:
        _tables[content] = pq.read_table(pa.BufferReader(content))
    table = _tables[content]
    return table if columns is None else table.select(columns)


def _write_run_metadata(plan: Plan, config: RunConfig, file: Any, *_: object) -> None:
    """The file beside a run, without YAML."""
    storage.replace(f"{file.url(plan)}{ENDING}", plan.run_tag.encode())


_CALLS = (
    *("time", "monotonic", "gethostname", "getpid", "uuid4", "open", "dup", "close", "write"),
    *("fsync", "fdopen", "flock", "link", "replace", "unlink", "mkdir", "makedirs", "rmdir"),
    *("utime", "stat", "readlink", "scandir", "path", "local_filesystem"),
)


@contextmanager
def simulated(world: LocalWorld) -> Iterator[None]:
    """Processes of this process see the world, and no other."""
    changes: list[tuple[Any, str, Any]] = [
        *((system, name, getattr(world, name)) for name in _CALLS),
        (attempt, "ThreadPoolExecutor", _InTurn),
        (storage, "ThreadPoolExecutor", _InTurn),
        (owner, "_renewed", partial(_renewed, world)),
        (owner, "open_run_log", lambda plan: None),
        (receipts, "describe_machine", lambda: _MACHINE),
        (StageFolder, "read_part", _read_part),
        (run_files, "write_run_metadata", _write_run_metadata),
        # A process remembers what it published.
        (receipts, "_publish_in_process", storage.publish_content),
        (PLUGINS, "_entries", {}),
        (PLUGINS, "_loaded", {"simulated-first": First, "simulated-asking": Asking}),
    ]
    missing = object()
    before = [(place, name, vars(place).get(name, missing)) for place, name, _ in changes]
    for place, name, value in changes:
        setattr(place, name, value)
    calls.start()
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        for place, name, value in before:
            if value is missing:
                delattr(place, name)
            else:
                setattr(place, name, value)


@contextmanager
def _renewed(world: LocalWorld, renew: Callable[[], None]) -> Iterator[None]:
    """The thread that renews an entry, without the thread."""
    process = world.scheduler.current

    def keep() -> None:
        with suppress(BeamrankError, OSError):
            renew()

    if process is not None:
        process.renewals.append(keep)
    try:
        yield
    finally:
        if process is not None and keep in process.renewals:
            process.renewals.remove(keep)
