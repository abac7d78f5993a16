"""Attempts at shards whose inputs are done, here and in another process."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple

from beamrank.commit import working
from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.receipts import Receipt
from beamrank.commit.shards import ShardTask
from beamrank.commit.working import shard_at_work
from models.stages import attempt as worker
from tests.support.outputs import make_plan, seal_stage, shard_table

TOKENS = "tokenize-0a1b2c3d"


def planned(output: str) -> Plan:
    """A plan of which all is done but mono."""
    plan = make_plan(output)
    plan.publish()
    for name in ("retrieve", TOKENS):
        seal_stage(plan, name)
    return plan


def task_of(plan: Plan, shard: int = 0) -> ShardTask:
    sealed = plan.seal(TOKENS)
    assert sealed is not None
    return plan.task(plan.stage("mono"), shard, [sealed.receipts[shard]], "")


def attempt(plan: Plan, shard: int, count: Callable[[], None]) -> Receipt:
    """Does a shard of mono, and `count` meanwhile."""
    task = task_of(plan, shard)

    def run() -> Receipt:
        count()
        return task.commit(shard_table(plan, "mono", shard), seconds=1.0, counts={})

    receipt = worker.attempt(task, run).receipt
    assert receipt is not None
    return receipt


class Worker(NamedTuple):
    """Another process, which does shard 0."""

    process: multiprocessing.process.BaseProcess
    orders: Connection

    def do(self, inputs: int) -> None:
        """Waits until it has counted so many inputs; none is no progress."""
        self.orders.send(inputs)
        self.orders.recv()

    def finish(self) -> None:
        """Waits until it has committed the shard."""
        self.orders.send(None)
        self.orders.recv()


def _obey(output: str, orders: Connection) -> None:
    working.TELL_SECONDS = 0.0

    def count() -> None:
        shard_at_work().add(0, 100)
        while (inputs := orders.recv()) is not None:
            if inputs:
                shard_at_work().add(inputs)
            orders.send(inputs)

    attempt(read_plan(output), 0, count)
    orders.send(None)


@contextmanager
def worker_process(output: str) -> Iterator[Worker]:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_obey, args=(output, theirs))
    process.start()
    try:
        yield Worker(process, ours)
    finally:
        process.kill()
        process.join()
