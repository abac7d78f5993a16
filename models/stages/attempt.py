"""A worker's attempt at a shard of a stage, which it logs; it skips a shard that another attempt
has committed.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from beamrank import logs
from beamrank.commit import working
from beamrank.commit.listing import RECEIPTS, WORKING
from beamrank.commit.receipts import Receipt
from beamrank.commit.shards import ShardTask
from beamrank.storage import files as storage
from beamrank.storage.digested import reread
from models.stages.base import ShardStage
from models.stages.scoring import ModelLoad, new_loads

_log = logging.getLogger(__name__)
_in_progress: set[working.Work] = set()
_last_started = threading.Event()


def start_no_more() -> None:
    """From now on this process starts no shard: it is going to end. Those in progress continue."""
    _last_started.set()


def in_progress() -> bool:
    """Whether this process is doing a shard."""
    return bool(_in_progress)


def inputs_done() -> tuple[int, int]:
    """How many inputs of the shards that this process is doing are done, of how many."""
    shards = list(_in_progress)
    return sum(work.done for work in shards), sum(work.inputs for work in shards)


@contextmanager
def _progressing(task: ShardTask) -> Iterator[None]:
    """A shard in progress. After `start_no_more` it waits for the end of the process."""
    name = WORKING.name(task.digest, task.shard)
    work = working.Work(task.shard, storage.join(task.folder.url, RECEIPTS, name))
    token = working.current.set(work)
    # Before the look at the event, or the process might end at the start of a shard.
    _in_progress.add(work)
    try:
        if _last_started.is_set():
            _in_progress.discard(work)
            threading.Event().wait()
        yield
    finally:
        work.end()
        working.current.reset(token)
        _in_progress.discard(work)


class Outcome(NamedTuple):
    """A shard's receipt, whether it was run for it, and the models that were loaded meanwhile."""

    receipt: Receipt
    ran: bool
    loads: Sequence[ModelLoad] = ()


def run_shard(task: ShardTask, run: Callable[[], Receipt]) -> Outcome:
    """Runs a shard that no other attempt has committed."""
    with _progressing(task), logs.log_context(storage.name(task.folder.url), task.shard):
        receipt = task.receipt()
        if receipt is not None:
            _log.info("skipped: another attempt has committed this shard")
            return Outcome(receipt, ran=False)
        _log.info("started")
        try:
            receipt = run()
        except Exception:
            _log.exception("failed")
            raise
        counts = ", ".join(f"{name} {count}" for name, count in receipt.counts.items())
        _log.info(
            "done in %.3f s: rows %d%s", receipt.seconds, receipt.rows, counts and f", {counts}"
        )
        return Outcome(receipt, ran=True, loads=new_loads())


def shard_run(stage: ShardStage, task: ShardTask) -> Callable[[], Outcome]:
    """What runs a shard of a stage, once more where a file that it reads was written again
    meanwhile.
    """
    return partial(run_shard, task, partial(reread, partial(stage.run, task)))
